package main

import (
	"fmt"
	"strconv"
	"strings"
)

// rateUnits are tc's: bits per second, decimal.
var rateUnits = []struct {
	name string
	bits float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

func parseRate(s string) (uint64, error) {
	low := strings.ToLower(s)
	for _, u := range rateUnits {
		if n, ok := strings.CutSuffix(low, u.name); ok {
			if f, err := strconv.ParseFloat(n, 64); err == nil && f > 0 && f*u.bits < 1e12 {
				return uint64(f * u.bits), nil
			}
			break
		}
	}
	return 0, fmt.Errorf("rate %q: use a number with kbit, mbit or gbit, as 10mbit", s)
}

func formatRate(bits uint64) string {
	for _, u := range rateUnits {
		if float64(bits) >= u.bits {
			return strconv.FormatFloat(float64(bits)/u.bits, 'g', 4, 64) + u.name
		}
	}
	return "0bit"
}

// parsePart reads "5%" or "0.05" as 0.05.
func parsePart(s string) (float64, error) {
	n, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(n, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) { // NaN is neither
		return 0, fmt.Errorf("loss %q: use a percentage, as 5%%", s)
	}
	return f, nil
}

package api

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// units are the factors of the suffixes of Kubernetes quantities.
var units = map[string]*big.Rat{
	"": power(10, 0), "m": new(big.Rat).Inv(power(10, 3)), "k": power(10, 3), "M": power(10, 6), "G": power(10, 9), "T": power(10, 12), "P": power(10, 15),
	"Ki": power(2, 10), "Mi": power(2, 20), "Gi": power(2, 30), "Ti": power(2, 40), "Pi": power(2, 50),
}

func power(base, exponent int64) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(exponent), nil))
}

// value is what a quantity that CheckAmount passed comes to.
func value(amount string) *big.Rat {
	digits := strings.TrimRight(amount, "mkMGTPi")
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return new(big.Rat)
	}
	return n.Mul(n, units[amount[len(digits):]])
}

// Decimal writes a quantity without its unit, to two digits: "300m" is "0.3". What is no quantity, or would be nothing then, stays as it is.
func Decimal(amount string) string {
	if !quantity.MatchString(amount) {
		return amount
	}
	is := value(amount)
	if short := strings.TrimSuffix(strings.TrimRight(is.FloatString(2), "0"), "."); short != "0" || is.Sign() == 0 {
		return short
	}
	return amount
}

// Rounded writes an amount for people, with about three digits, in the largest unit that it fills: 11.7Gi for 12001Mi, 7.9 for 7910m.
func Rounded(name, amount string) string {
	digits := strings.TrimRight(amount, "mKMGTPi")
	n, err := strconv.ParseFloat(digits, 64)
	unit := amount[len(digits):]
	switch {
	case err != nil || amount == "0":
		return amount
	case name == CPU && unit == "m" && n >= 1000:
		return trimmed(n/1000, "")
	case !InBytes(name):
		return amount
	}
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	at := slices.Index(units, unit)
	if at < 0 || strings.Trim(digits, "0123456789.") != "" {
		return amount
	}
	for ; n >= 1024 && at < len(units)-1; at++ {
		n /= 1024
	}
	return trimmed(n, units[at])
}

func trimmed(n float64, unit string) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f%s", n, unit)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + unit
}

// CheckAsked says whether the amounts are such as can be asked for: well formed, and enough to be meant. The error is an *Error
// with CodeInvalid that names the field.
func CheckAsked(field string, r Resources) error {
	if err := CheckResources(field, r, false); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		n, at := value(r[name]), field+"."+name
		switch {
		case name == CPU:
			if n.Cmp(units["m"]) < 0 {
				return Invalid(at, r[name], "1m or more, such as 500m or 2")
			}
		case InBytes(name):
			if n.Cmp(units["Mi"]) < 0 {
				return Invalid(at, r[name], "1Mi or more, such as 512Mi or 4Gi: without a unit it is a number of bytes")
			}
		default:
			if !n.IsInt() || n.Sign() <= 0 {
				return Invalid(at, r[name], "a whole number, 1 or more")
			}
		}
	}
	return nil
}

// maxNone is how many resources that were asked for and not granted are named: a peer chooses these names, and must not crowd out the
// rest.
const maxNone = 3

// Change describes a grant in words, given what was granted before (was, empty: nothing), what is granted now (is) and what was asked
// for (asked, where a resource that is missing was left open): "cpu 1 → 2, memory 2Gi, pods 55 (asked 500)". Equal amounts must be
// the same text.
func Change(was, is, asked Resources) string {
	all := maps.Clone(is)
	if all == nil {
		all = Resources{}
	}
	for name := range was {
		all[name] = ""
	}
	names, none := all.Names(), Resources{}
	for name, amount := range asked {
		if _, granted := all[name]; !granted {
			none[name] = amount
		}
	}
	hidden := len(none)
	for _, name := range none.Names()[:min(maxNone, len(none))] {
		names = append(names, name)
		hidden--
	}
	var parts []string
	for _, name := range names {
		before, now, called := was[name], cmp.Or(is[name], "0"), Called(name)
		part := fmt.Sprintf("%s %s", called, now)
		switch {
		case len(was) == 0:
		case before == "":
			part = fmt.Sprintf("%s 0 → %s", called, now)
		case before != now:
			part = fmt.Sprintf("%s %s → %s", called, before, now)
		}
		if want := asked[name]; want != "" && want != now {
			part += fmt.Sprintf(" (asked %s)", want)
		}
		parts = append(parts, part)
	}
	if hidden > 0 {
		parts = append(parts, fmt.Sprintf("none of %d more that were asked for", hidden))
	}
	return strings.Join(parts, ", ")
}

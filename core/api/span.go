package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Span is a length of time in words, in the largest unit that it is a whole number of: "7 days", "36 hours", "90 minutes".
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		is   time.Duration
		word string
	}{{day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / u.is; {
		case d%u.is != 0 || n == 0:
		case n == 1:
			return "1 " + u.word
		default:
			return fmt.Sprintf("%d %ss", n, u.word)
		}
	}
	return d.String()
}

// ParseSpan reads a length of time as people write it: "30d", or a duration such as "36h".
func ParseSpan(s string) (time.Duration, error) {
	if digits, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			return 0, errors.New("not a whole number of days")
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}

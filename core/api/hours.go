package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Hours are a part of some days of the week in which a policy offers something.
type Hours struct {
	Days List[string] `json:"days,omitempty"` // Weekdays on which they begin; empty: every day
	From string       `json:"from"`           // "09:00"
	To   string       `json:"to"`             // "17:00" or "24:00"; on the next day, if that is no later than From
}

// Weekdays are the days of the week, as Hours have them.
var Weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

const hoursAllowed = "hours such as \"Mon-Fri 18:00-08:00; Sat,Sun 00:00-24:00\""

// ParseHours reads them as people write them: "Mon-Fri 18:00-08:00; Sat,Sun 00:00-24:00"; "" is none.
func ParseHours(field, text string) (all List[Hours], err error) {
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		from, to, ok := strings.Cut(words[len(words)-1], "-")
		h := Hours{From: from, To: to}
		for _, word := range words[:len(words)-1] {
			for days := range strings.SplitSeq(strings.Trim(word, ","), ",") {
				first, last, is := strings.Cut(days, "-")
				if !is {
					last = first
				}
				at, end := weekday(first), weekday(last)
				if at < 0 || end < 0 {
					return nil, Invalid(field, text, hoursAllowed)
				}
				for ; ; at = (at + 1) % len(Weekdays) {
					if !slices.Contains(h.Days, Weekdays[at]) {
						h.Days = append(h.Days, Weekdays[at])
					}
					if at == end {
						break
					}
				}
			}
		}
		if !ok {
			return nil, Invalid(field, text, hoursAllowed)
		}
		all = append(all, h)
	}
	return all, checkHours(field, all)
}

func weekday(word string) int {
	return slices.IndexFunc(Weekdays, func(d string) bool { return strings.EqualFold(d, word) })
}

func (h Hours) String() string {
	var words []string
	for i := 0; i < len(h.Days); {
		at, n := slices.Index(Weekdays, h.Days[i]), 1
		for i+n < len(h.Days) && at >= 0 && h.Days[i+n] == Weekdays[(at+n)%len(Weekdays)] {
			n++
		}
		if n > 2 {
			words = append(words, h.Days[i]+"-"+h.Days[i+n-1])
		} else {
			words = append(words, h.Days[i:i+n]...)
		}
		i += n
	}
	if len(words) == 0 {
		return h.From + "-" + h.To
	}
	return strings.Join(words, ",") + " " + h.From + "-" + h.To
}

// HoursWords are hours as ParseHours reads them, and their time zone.
func HoursWords(all List[Hours], zone string) string {
	var words []string
	for _, h := range all {
		words = append(words, h.String())
	}
	if zone != "" && len(all) > 0 {
		return strings.Join(words, "; ") + " " + zone
	}
	return strings.Join(words, "; ")
}

var (
	fromClock = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	toClock   = regexp.MustCompile(`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`)
	timeZone  = regexp.MustCompile(`^([A-Za-z][-+A-Za-z0-9_]*(/[-+A-Za-z0-9_]+){0,2})?$`)
)

const maxHours = 32

func checkHours(field string, all List[Hours]) error {
	if len(all) > maxHours {
		return Invalid(field, fmt.Sprint(len(all)), fmt.Sprintf("at most %d", maxHours))
	}
	for _, h := range all {
		known := !slices.ContainsFunc(h.Days, func(d string) bool { return !slices.Contains(Weekdays, d) })
		if !known || len(h.Days) > len(Weekdays) || !fromClock.MatchString(h.From) || !toClock.MatchString(h.To) {
			return Invalid(field, h.String(), hoursAllowed)
		}
		if h.From == h.To {
			return Invalid(field, h.String(), "hours that end later than they begin: a whole day is 00:00-24:00")
		}
	}
	return nil
}

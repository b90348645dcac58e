package sharing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // machines may have no list of time zones: containers have none

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Open is where a policy's hours are at a moment.
type Open struct {
	Now bool
	// Changes is when that ends: when the policy closes or, closed, when it opens next. Zero: never.
	Changes time.Time
}

// Hours says whether the policy's hours are now, and until when. A policy without hours is always open. Without a time zone the hours are
// those of now's location: of this machine, where now is what its clock says. One whose time zone is not known is never open.
func Hours(policy *v1alpha1.SharingPolicy, now time.Time) Open {
	if policy == nil || len(policy.Spec.Hours) == 0 {
		return Open{Now: true}
	}
	zone, err := location(policy.Spec.TimeZone, now.Location())
	if err != nil {
		return Open{}
	}
	for _, w := range windows(policy.Spec.Hours, now.In(zone)) {
		switch {
		case !now.Before(w.to):
		case now.Before(w.from):
			return Open{Changes: w.from}
		case w.to.Sub(now) > week:
			return Open{Now: true} // one window leads into the next, all week
		default:
			return Open{Now: true, Changes: w.to}
		}
	}
	return Open{}
}

const week = 7 * 24 * time.Hour

func location(name string, local *time.Location) (*time.Location, error) {
	if name == "" {
		return local, nil
	}
	return time.LoadLocation(name)
}

// window is a time that the policy is open in: from is in it, to is not.
type window struct{ from, to time.Time }

// windows are those of yesterday, whose hours may last past midnight, and of the nine days from today on, in their order; those that meet or overlap
// are one.
func windows(hours []v1alpha1.SharingHours, now time.Time) (all []window) {
	for day := -1; day <= 9; day++ {
		date := time.Date(now.Year(), now.Month(), now.Day()+day, 12, 0, 0, 0, time.UTC) // of a day there is in every zone
		for _, h := range hours {
			from, err1 := minutes(h.From)
			to, err2 := minutes(h.To)
			if err1 != nil || err2 != nil || len(h.Days) > 0 && !slices.Contains(h.Days, v1alpha1.Weekday(date.Weekday().String()[:3])) {
				continue
			}
			if to <= from { // the next day
				to += 24 * 60
			}
			if w := (window{wall(date, from, now.Location()), wall(date, to, now.Location())}); w.from.Before(w.to) {
				all = append(all, w)
			}
		}
	}
	slices.SortFunc(all, func(a, b window) int { return a.from.Compare(b.from) })
	merged := all[:0]
	for _, w := range all {
		if last := len(merged) - 1; last >= 0 && !merged[last].to.Before(w.from) {
			if merged[last].to.Before(w.to) {
				merged[last].to = w.to
			}
			continue
		}
		merged = append(merged, w)
	}
	return merged
}

// wall is the first moment at which the clocks of a place show so many minutes of the day, or more: where they are put forward over that, the
// moment at which they are; where they are put back and show it twice, the first of the two.
func wall(date time.Time, minute int, zone *time.Location) time.Time {
	want := time.Date(date.Year(), date.Month(), date.Day(), 0, minute, 0, 0, time.UTC)
	t := time.Date(want.Year(), want.Month(), want.Day(), want.Hour(), want.Minute(), 0, 0, zone)
	begins, ends := t.ZoneBounds()
	shown := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	switch { // time.Date leaves open which of the two offsets it takes
	case shown.After(want):
		return begins
	case shown.Before(want):
		return ends
	case begins.IsZero():
		return t
	}
	_, is := t.Zone()
	_, was := begins.Add(-time.Second).Zone()
	if earlier := t.Add(time.Duration(is-was) * time.Second); earlier.Before(begins) && was > is {
		return earlier
	}
	return t
}

// minutes of a day that "09:30" or "24:00" is.
func minutes(clock string) (int, error) {
	h, m, ok := strings.Cut(clock, ":")
	hours, err1 := strconv.Atoi(h)
	minute, err2 := strconv.Atoi(m)
	if !ok || len(clock) != 5 || err1 != nil || err2 != nil || hours < 0 || minute < 0 || minute > 59 || hours*60+minute > 24*60 {
		return 0, fmt.Errorf("%q is not a time of day from 00:00 to 24:00", clock)
	}
	return hours*60 + minute, nil
}

// Turns is when the policy's hours next let something be offered, or nothing any more, where an offer holds for so long; zero: never.
func Turns(policy *v1alpha1.SharingPolicy, now time.Time, holds time.Duration) time.Time {
	open := Hours(policy, now)
	if open.Now && !open.Changes.IsZero() {
		if last := open.Changes.Add(time.Second - MinValidity - holds); now.Before(last) {
			return last
		}
	}
	return open.Changes
}

// outside says why the policy's hours keep it from offering anything; nil when they do not.
func (in *OfferInput) outside() *Refusal {
	open, name := Hours(in.Policy, in.Now), in.Policy.Name
	switch _, ok := Until(in.Policy, in.Now, in.SignedBy); {
	case ok:
		return nil
	case open.Now:
		return &Refusal{Why: api.NoOfferCloses, Changes: open.Changes, Reason: fmt.Sprintf("the hours of SharingPolicy %s end %s, too soon for a contract", name, Clock(open.Changes))}
	case open.Changes.IsZero():
		return &Refusal{Why: api.NoOfferClosed, Reason: fmt.Sprintf("SharingPolicy %s has hours in the time zone %q, which is not known here", name, in.Policy.Spec.TimeZone)}
	}
	return &Refusal{Why: api.NoOfferClosed, Changes: open.Changes, Reason: fmt.Sprintf("it is outside of the hours of SharingPolicy %s, which begin %s", name, Clock(open.Changes))}
}

// Clock is a time as hours are thought of.
func Clock(t time.Time) string { return t.Format("Mon 2 Jan 15:04 MST") }

// Until is how long a contract may run that is signed now, at the latest at last, if it is to end with the policy's hours: as long as the policy's
// contracts run, or less. ok is false where what is left is too short for a contract.
func Until(policy *v1alpha1.SharingPolicy, now, last time.Time) (runs time.Duration, ok bool) {
	runs = Validity(policy)
	if open := Hours(policy, now); !open.Now {
		return 0, false
	} else if !open.Changes.IsZero() {
		runs = min(runs, open.Changes.Sub(last)).Truncate(time.Second)
	}
	return runs, runs >= MinValidity
}

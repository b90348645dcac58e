package doctor

import (
	"context"
	"slices"
	"strings"

	"kith.dev/core/api"
)

// Mend mends the findings of these names that are safe to be mended, one after the other, and looks again. What is done comes out of
// checks that it makes itself: a caller names findings and nothing else. Of a name that nothing is found of, nothing is done. Each step
// is reported in words.
func (m Machine) Mend(ctx context.Context, fix api.DoctorFix, report func(string)) []api.Fixed {
	look := func() []api.Finding { return Run(ctx, func(api.Finding) {}, m.Groups()...) }
	fixed := []api.Fixed{}
	for _, f := range look() {
		if !slices.Contains(fix.Findings, f.Name) || len(f.Fix) == 0 {
			continue
		}
		if other := unseen(f, fix.Shown); other != "" {
			fixed = append(fixed, api.Fixed{Finding: f, Did: []string{}, Error: "nothing was done: it takes `" + other + "` now, which was not shown; look again"})
			continue
		}
		report("mending " + f.Name + ": " + f.What)
		one := api.Fixed{Finding: f}
		done, err := carryOut(ctx, f.Fix)
		if one.Did = append([]string{}, done...); err != nil {
			one.Error = err.Error()
		}
		fixed = append(fixed, one)
	}
	if len(fixed) == 0 {
		return fixed
	}
	report("looking again")
	now := look()
	for i, one := range fixed {
		fixed[i].Now = again(one.Finding, now)
	}
	return fixed
}

// unseen gives a command of a finding that is not among those that were shown, if any were.
func unseen(f api.Finding, shown []string) string {
	i := slices.IndexFunc(f.Fix, func(command string) bool { return !slices.Contains(shown, command) })
	if len(shown) == 0 || i < 0 {
		return ""
	}
	return f.Fix[i]
}

// again is what a check found when it was made again: the worst of it. Checks say so when all is well; one that says nothing had no time.
func again(before api.Finding, now []api.Finding) api.Finding {
	found := api.Finding{
		Area: before.Area, Name: before.Name, State: api.CheckWarning, What: "it is not known whether it is mended: the check did not end when it was made again", Do: "look again: kith doctor",
	}
	seen := false
	for _, f := range now {
		if f.Area == before.Area && f.Name == before.Name && (!seen || found.State == api.CheckOK) {
			found, seen = f, true
		}
	}
	return found
}

// plain reports whether a word is one word on a command line, and no flag.
func plain(word string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"
	return word != "" && word[0] != '-' && strings.Trim(word, letters) == ""
}

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
func (m Machine) Mend(ctx context.Context, names []string, report func(string)) []api.Fixed {
	look := func() []api.Finding { return Run(ctx, func(api.Finding) {}, m.Groups()...) }
	fixed := []api.Fixed{}
	for _, f := range look() {
		if !slices.Contains(names, f.Name) || len(f.Fix) == 0 {
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
		fixed[i].Now = api.Finding{Area: one.Finding.Area, Name: one.Finding.Name, State: api.CheckOK, What: "nothing is wrong any more"}
		for _, f := range now {
			if f.Area == one.Finding.Area && f.Name == one.Finding.Name && (f.State != api.CheckOK || fixed[i].Now.State == api.CheckOK) {
				fixed[i].Now = f
			}
		}
	}
	return fixed
}

// plain reports whether a word is one word on a command line, and no flag.
func plain(word string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"
	return word != "" && word[0] != '-' && strings.Trim(word, letters) == ""
}

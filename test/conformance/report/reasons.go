package main

import (
	"fmt"
	"os"
	"regexp"

	"sigs.k8s.io/yaml"
)

// reasons is the table: why tests fail, in the words of the page.
type reasons []*reason

type reason struct {
	// ID names the reason in messages.
	ID string `json:"id"`
	// Runs is abroad, which the further sets with their pods at a peer are too, home, both, or one set.
	Runs string `json:"runs"`
	// Kind is a key of kinds.
	Kind string `json:"kind"`
	// Why is one or more sentences.
	Why string `json:"why"`
	// Tests are regular expressions (RE2) that match in the tests' names.
	Tests []string `json:"tests"`

	match []*regexp.Regexp
}

// kinds in the page's order.
var kinds = []struct{ key, title string }{
	{"host", "Host access, privileges"},
	{"nodes", "One node only, or one of another kind"},
	{"lab", "The lab: its images, its kernel, no internet"},
	{"design", "Different by design"},
	{"flaw", "Flaws of Kith"},
}

func readReasons(file string) (reasons, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var table reasons
	if err := yaml.UnmarshalStrict(b, &table); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, r := range table {
		known := false
		for _, k := range kinds {
			known = known || k.key == r.Kind
		}
		if r.ID == "" || r.Why == "" || len(r.Tests) == 0 || !known || !r.knowsRuns() {
			return nil, fmt.Errorf("%s: reason %q: id, runs (abroad, home, both, or a set), kind, why and tests are needed", file, r.ID)
		}
		for _, pattern := range r.Tests {
			re, err := regexp.Compile(pattern)
			if err != nil {
				return nil, fmt.Errorf("%s: reason %s: %w", file, r.ID, err)
			}
			r.match = append(r.match, re)
		}
	}
	return table, nil
}

func (r *reason) knowsRuns() bool {
	return r.Runs == abroad || r.Runs == home || r.Runs == "both" || setNamed(r.Runs) != nil
}

// holds reports whether the reason may be one in that run.
func (r *reason) holds(run string) bool {
	s := setNamed(run)
	away := run != home && (s == nil || !s.home)
	return r.Runs == "both" || r.Runs == run || r.Runs == abroad && away
}

// of gives the first reason in the table for a test's failure in a run, or nil.
func (t reasons) of(run, test string) *reason {
	for _, r := range t {
		if !r.holds(run) {
			continue
		}
		for _, re := range r.match {
			if re.MatchString(test) {
				return r
			}
		}
	}
	return nil
}

// idle names the reasons for a run that explain none of its failures.
func (t reasons) idle(run *results) []string {
	used := map[*reason]bool{}
	for _, f := range run.failed() {
		used[t.of(run.name, f.name)] = true
	}
	var ids []string
	for _, r := range t {
		if !used[r] && (r.Runs == run.name || r.Runs == "both" && setNamed(run.name) == nil) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

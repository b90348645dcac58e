package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// group is a row of a table.
type group struct {
	title string
	has   func(name string) bool
}

// groups are the conformance tests' rows. A test may be in more than one.
var groups = []group{
	{"NodeConformance", func(n string) bool { return strings.Contains(n, "[NodeConformance]") }},
	{"Conformance, sig-apps", conformance("sig-apps")},
	{"Conformance, sig-network", conformance("sig-network")},
	{"Conformance, sig-storage", conformance("sig-storage")},
	{"Conformance, sig-cli", conformance("sig-cli")},
	{"together, each test once", func(string) bool { return true }},
}

func conformance(sig string) func(string) bool {
	return func(n string) bool { return strings.HasPrefix(n, "["+sig+"]") && strings.Contains(n, "[Conformance]") }
}

// count of a run's tests in a group.
type count struct{ passed, again, failed, skipped int }

func (r *results) count(has func(string) bool) (c count) {
	for _, t := range r.tests {
		switch {
		case !has(t.name):
		case t.outcome == passed:
			c.passed++
			if t.again {
				c.again++
			}
		case t.outcome == failed:
			c.failed++
		default:
			c.skipped++
		}
	}
	return c
}

func counts(w io.Writer, runs []*results) {
	for _, r := range runs {
		rows := groups
		if s := setNamed(r.name); s != nil && s.groups != nil {
			rows = s.groups
		}
		for _, g := range rows {
			c := r.count(g.has)
			fmt.Fprintf(w, "%-7s %-26s %3d passed (%d when run again), %d failed, %d skipped\n", r.name, g.title, c.passed, c.again, c.failed, c.skipped)
		}
	}
}

const head = `# Upstream's conformance tests

<!-- Written by make conformance (test/conformance/report) from what the runs left; the reasons are in test/conformance/reasons.yaml. -->

` + "`make conformance`" + ` builds ` + "`e2e.test`" + ` of Kubernetes %s, the version of the built-in engine, and runs its NodeConformance tests and the
Conformance tests of applications, network, storage and the command line in the lab: once at a laptop alone (home), and once
at alice with every pod of theirs at bob (abroad). There, an admission policy of alice's cluster offloads each namespace of the tests with the strategy
` + "`Remote`" + `, alice's own node is cordoned, bob's has no taint, since the framework passes over nodes that have one, and bob shares as he would with anybody: level ` + "`baseline`" + `, fenced, with a user namespace for each pod.

` + "`make conformance SAMPLE=1`" + ` runs twenty of them abroad (test/conformance/sample.txt), within four minutes, which CI does for each change; the first time
some minutes more go by while the tests are compiled. Further sets of upstream's tests were run abroad, too: they are at the end of this page.
` + "`make conformance MCS=1`" + ` runs the conformance suite of Multi-Cluster Services between two laptops, and puts what comes of it there as well.

`

func page(w io.Writer, runs []*results, table reasons) {
	fmt.Fprintf(w, head, runs[0].facts["kubernetes"])
	fmt.Fprintln(w, "| tests | | passed | when run again | failed | skip themselves |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, g := range groups {
		for _, r := range runs {
			c := r.count(g.has)
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d |\n", g.title, r.name, c.passed, c.again, c.failed, c.skipped)
		}
	}
	fmt.Fprintln(w, "\nA test may be in two groups. The fourth column is part of the third: what fails for no known reason is run again, alone.")
	figures(w, runs)
	for _, r := range runs {
		failures(w, r, table)
	}
	for _, r := range runs {
		skips(w, r, "## What skips itself "+where(r.name))
	}
}

var figureNames = []struct{ key, title string }{
	{"version", "Kith"}, {"asked", "tests asked for"}, {"ran", "tests that ran"}, {"processes", "at a time"}, {"minutes", "minutes"},
	{"linklost", "times the peer was lost"}, {"twins", "twin namespaces left at bob"}, {"twinnotes", "twins left in the node's annotations"},
}

func figures(w io.Writer, runs []*results) {
	fmt.Fprint(w, "\n| the run |")
	for _, r := range runs {
		fmt.Fprintf(w, " %s |", r.name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(runs)))
	for _, f := range figureNames {
		fmt.Fprintf(w, "| %s |", f.title)
		for _, r := range runs {
			fmt.Fprintf(w, " %s |", r.facts[f.key])
		}
		fmt.Fprintln(w)
	}
	for _, r := range runs {
		if r.facts["asked"] != "" && r.facts["asked"] != r.facts["ran"] {
			fmt.Fprintf(w, "\nThe run %s was stopped before all its tests had run.\n", where(r.name))
		}
		if note := r.facts["note"]; note != "" {
			fmt.Fprintf(w, "\nOf the run %s: %s.\n", where(r.name), note)
		}
		for _, key := range slices.Sorted(maps.Keys(r.facts)) {
			if strings.HasPrefix(key, "later") {
				fmt.Fprintf(w, "\nAfter the run %s some of its tests were run once more, and count as they were then: %s.\n", where(r.name), r.facts[key])
			}
		}
	}
}

// failures lists what failed in a run, under its reasons; every one has a reason here.
func failures(w io.Writer, r *results, table reasons) {
	if len(r.failed()) == 0 {
		fmt.Fprintf(w, "\n## What fails %s\n\nNothing.\n", where(r.name))
		return
	}
	by := byReason(r, table)
	fmt.Fprintf(w, "\n## What fails %s\n", where(r.name))
	for _, k := range kinds {
		n := 0
		for _, why := range table {
			if why.Kind == k.key {
				n += len(by[why])
			}
		}
		if n == 0 {
			continue
		}
		fmt.Fprintf(w, "\n### %s: %d\n", k.title, n)
		for _, why := range table {
			if why.Kind == k.key {
				because(w, why, by[why])
			}
		}
	}
}

// skips lists the tests that find that they do not apply, under their own words.
func skips(w io.Writer, r *results, title string) {
	by := map[string][]string{}
	var order []string
	for _, t := range r.sorted() {
		if t.outcome != skipped {
			continue
		}
		why := firstLine(t.message)
		if by[why] == nil {
			order = append(order, why)
		}
		by[why] = append(by[why], t.name)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, why := range order {
		fmt.Fprintf(w, "\n%s:\n\n", plain(why))
		for _, name := range by[why] {
			fmt.Fprintf(w, "- %s\n", plain(name))
		}
	}
}

func where(run string) string {
	if run == home {
		return "at home"
	}
	return run
}

// plain keeps upstream's words from being read as Markdown.
func plain(s string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(s)
}

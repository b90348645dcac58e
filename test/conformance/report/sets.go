package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// set is a run of tests beyond those of conformance, with all pods at a peer unless it says otherwise.
type set struct {
	name, title, about string
	// home says that the pods of its tests are where they were made: why tests fail with their pods at a peer is no reason in it.
	home bool
	// groups are the rows of its table; without any it has one, of all its tests.
	groups []group
	// must reports whether a test has to pass, for which no reason not to is taken. A set that has such tests has to be whole, too.
	must func(test string) bool
}

// sets in the page's order. The names are those of scripts/conformance.sh, which says by which labels the tests are found.
var sets = []set{
	{name: "kubelet", title: "virtual-kubelet's own tests", about: "The package test/e2e of virtual-kubelet, which tests a node by pods that name it " +
		"(`spec.nodeName`). Nothing is pinned and the node keeps its taint: the scheduler has no part in it."},
	{name: "foreign", title: "sig-network in somebody else's cluster", about: "The Conformance tests of the network, with every pod on the two nodes of a cluster that kubeadm made, " +
		"with flannel as its network plugin and CoreDNS in pods; Kith is there by its chart (docs/pods.md says what is different there)."},
	{name: "networkpolicy", title: "NetworkPolicy", about: "All tests of NetworkPolicy but those of features that few plugins have (SCTP, ending ports)."},
	{name: "node", title: "sig-node", about: "The tests of sig-node that are neither Conformance nor NodeConformance, of features that are stable."},
	{name: "apps", title: "sig-apps", about: "StatefulSets, Jobs and the other controllers: the tests of sig-apps that are not Conformance, of features that are stable."},
	{name: "scheduling", title: "sig-scheduling", about: "Preemption, and what else the scheduler decides: all tests of sig-scheduling, of features that are stable."},
	{
		name: "mcs", title: "Multi-Cluster Services",
		about: "The conformance suite of mcs-api, the project of ServiceExport and ServiceImport, between two laptops that provide for each other and " +
			"have the services of its namespaces in common (docs/services.md). It asks both clusters, and its pods stay where they are made. " +
			"`make conformance MCS=1` fails when a required test does.",
		home: true, groups: []group{{"required", required}, {"optional", optional}}, must: required,
	},
}

// optional looks for the label, which ginkgo writes after a test's name with its others. What has neither label counts as required.
func optional(test string) bool {
	labels := test[strings.LastIndex(test, "[")+1:]
	return slices.Contains(strings.Split(strings.TrimSuffix(labels, "]"), ", "), "Optional")
}

func required(test string) bool { return !optional(test) }

func setNamed(name string) *set {
	for i := range sets {
		if sets[i].name == name {
			return &sets[i]
		}
	}
	return nil
}

// section is what the page says of a set.
func (s set) section(r *results, table reasons) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## %s\n\n%s `scripts/conformance.sh %s`; Kith %s", s.title, s.about, s.name, r.facts["version"])
	if suite := r.facts["suite"]; suite != "" {
		fmt.Fprintf(&b, ", the suite %s", suite)
	}
	b.WriteString(".\n\n")
	s.counts(&b, r)
	if note := r.facts["note"]; note != "" {
		fmt.Fprintf(&b, "\n%s.\n", note)
	}
	by := byReason(r, table)
	for _, why := range table {
		because(&b, why, by[why])
	}
	skips(&b, r, "### Skip themselves")
	return b.String()
}

func (s set) counts(w io.Writer, r *results) {
	row := func(has func(string) bool) string {
		c := r.count(has)
		return fmt.Sprintf("%d | %d | %d | %d |", c.passed+c.failed+c.skipped, c.passed, c.failed, c.skipped)
	}
	if s.groups == nil {
		fmt.Fprintf(w, "| tests | passed | failed | skip themselves |\n|---|---|---|---|\n| %s\n", row(func(string) bool { return true }))
		return
	}
	fmt.Fprintf(w, "| | tests | passed | failed | skip themselves |\n|---|---|---|---|---|\n")
	for _, g := range s.groups {
		fmt.Fprintf(w, "| %s | %s\n", g.title, row(g.has))
	}
}

// short says of a set with tests that must pass which did not, and whether some did not run at all.
func (s set) short(r *results) (bad []string) {
	if s.must == nil {
		return nil
	}
	if r.facts["asked"] != r.facts["ran"] {
		bad = append(bad, fmt.Sprintf("%s: %q tests were asked for, %s ran", r.name, r.facts["asked"], r.facts["ran"]))
	}
	for _, t := range r.sorted() {
		if s.must(t.name) && t.outcome != passed {
			bad = append(bad, fmt.Sprintf("%s: %s is required\n    %s", r.name, t.name, firstLine(t.message)))
		}
	}
	return bad
}

func byReason(r *results, table reasons) map[*reason][]*test {
	by := map[*reason][]*test{}
	for _, t := range r.failed() {
		why := table.of(r.name, t.name)
		by[why] = append(by[why], t)
	}
	return by
}

func because(w io.Writer, why *reason, tests []*test) {
	if len(tests) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", strings.TrimSpace(why.Why))
	for _, t := range tests {
		fmt.Fprintf(w, "- %s\n", plain(t.name))
	}
}

// marker begins a set's section. What stands before the first is of the conformance tests.
func marker(name string) string { return "\n<!-- set " + name + " -->\n" }

// together gives the page: what is new, and of the old one the parts of runs that left no results here.
func together(old string, fresh map[string]string) string {
	var b strings.Builder
	for _, name := range append([]string{""}, names()...) {
		if part, ok := fresh[name]; ok {
			if name != "" {
				b.WriteString(marker(name))
			}
			b.WriteString(part)
			continue
		}
		part := old
		if name != "" {
			_, after, found := strings.Cut(old, marker(name))
			if !found {
				continue
			}
			b.WriteString(marker(name))
			part = after
		}
		part, _, _ = strings.Cut(part, "\n<!-- set ")
		b.WriteString(part)
	}
	return b.String()
}

func names() (all []string) {
	for _, s := range sets {
		all = append(all, s.name)
	}
	return all
}

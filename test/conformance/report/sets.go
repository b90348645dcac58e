package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// set is a run of tests beyond those of conformance, with all pods at a peer.
type set struct{ name, title, about string }

// sets in the page's order. The names are those of scripts/conformance.sh, which says by which labels the tests are found.
var sets = []set{
	{"kubelet", "virtual-kubelet's own tests", "The package test/e2e of virtual-kubelet, which tests a node by pods that name it " +
		"(`spec.nodeName`). Nothing is pinned and the node keeps its taint: the scheduler has no part in it."},
	{"foreign", "sig-network in somebody else's cluster", "The Conformance tests of the network, with every pod on the two nodes of a cluster that kubeadm made, " +
		"with flannel as its network plugin and CoreDNS in pods; Kith is there by its chart (docs/pods.md says what is different there)."},
	{"networkpolicy", "NetworkPolicy", "All tests of NetworkPolicy but those of features that few plugins have (SCTP, ending ports)."},
	{"node", "sig-node", "The tests of sig-node that are neither Conformance nor NodeConformance, of features that are stable."},
	{"apps", "sig-apps", "StatefulSets, Jobs and the other controllers: the tests of sig-apps that are not Conformance, of features that are stable."},
	{"scheduling", "sig-scheduling", "Preemption, and what else the scheduler decides: all tests of sig-scheduling, of features that are stable."},
}

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
	c := r.count(func(string) bool { return true })
	fmt.Fprintf(&b, "## %s\n\n%s `scripts/conformance.sh %s`; Kith %s.\n\n", s.title, s.about, s.name, r.facts["version"])
	fmt.Fprintf(&b, "| tests | passed | failed | skip themselves |\n|---|---|---|---|\n| %d | %d | %d | %d |\n", len(r.tests), c.passed, c.failed, c.skipped)
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

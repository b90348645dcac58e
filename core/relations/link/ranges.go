package link

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kith.dev/core/gateway"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
)

// names wants the ranges that contracts here are about, each once and no other, of a length a cluster has; and aliases for
// those of this cluster, or none yet.
func (l *Linker) names(theirs peering.Link) error {
	if err := l.exactly("ranges", theirs.Ranges); err != nil {
		return err
	}
	for _, r := range theirs.Ranges {
		if err := netplan.CheckRange(r.Prefix); err != nil {
			return fmt.Errorf("ranges: %s: %w", r.Name, err)
		}
	}
	if len(theirs.Aliases) == 0 {
		return nil
	}
	return l.exactly("aliases", theirs.Aliases)
}

func (l *Linker) exactly(what string, list []peering.Range) error {
	for _, r := range list {
		if _, ok := l.cfg.Ranges[r.Name]; !ok {
			return fmt.Errorf("%s: there is no range %q in a link with this cluster, only %s", what, r.Name, l.rangeNames())
		}
	}
	if len(list) != len(l.cfg.Ranges) { // none is there twice, peering saw to that
		return fmt.Errorf("%s: want all of %s", what, l.rangeNames())
	}
	return nil
}

func (l *Linker) rangeNames() string {
	return strings.Join(slices.Sorted(maps.Keys(l.cfg.Ranges)), ", ")
}

// admit asks of what was kept what names and Validate ask of what is said.
func (l *Linker) admit(g gateway.Peer) error {
	for what, list := range map[string][]netplan.Mapping{"its ranges": g.Theirs, "the aliases it chose": g.Ours} {
		if len(list) != len(l.cfg.Ranges) {
			return fmt.Errorf("%s: want all of %s and no other", what, l.rangeNames())
		}
		for _, m := range list {
			if _, ok := l.cfg.Ranges[m.Name]; !ok {
				return fmt.Errorf("%s: there is no range %q in a link with this cluster", what, m.Name)
			}
		}
	}
	for _, m := range g.Ours {
		if m.Real != l.cfg.Ranges[m.Name] {
			return fmt.Errorf("the range %q of this cluster was %s, is %s", m.Name, m.Real, l.cfg.Ranges[m.Name])
		}
	}
	return g.Validate()
}

package netplan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Pair is how a cluster and its peer see each other's addresses.
type Pair struct {
	Theirs []Mapping // the peer's ranges: Real at home, Alias here
	Ours   []Mapping // our ranges: Real here, Alias at the peer
}

// Here turns an address that the peer gave to something of its own into the one that reaches it from here. False: it is in none
// of the peer's ranges and cannot be reached. It is never one of ours, whatever the peer says.
func (p Pair) Here(a netip.Addr) (netip.Addr, bool) { return first(p.Theirs, Mapping.ToAlias, a) }

// There turns an address as it is used here into the one that the peer uses: its own by their real address, ours by the alias it
// gave them. False: the address means nothing to the peer.
func (p Pair) There(a netip.Addr) (netip.Addr, bool) {
	if own, ok := first(p.Theirs, Mapping.ToReal, a); ok {
		return own, true
	}
	return first(p.Ours, Mapping.ToAlias, a)
}

func first(list []Mapping, move func(Mapping, netip.Addr) (netip.Addr, bool), a netip.Addr) (netip.Addr, bool) {
	for _, m := range list {
		if out, ok := move(m, a); ok {
			return out, true
		}
	}
	return netip.Addr{}, false
}

// Validate says what is wrong with what two clusters agreed on. Most of it was said by the peer.
func (p Pair) Validate() error {
	if len(p.Theirs) > 16 || len(p.Ours) > 16 {
		return errors.New("more than 16 ranges")
	}
	var errs []error
	for _, m := range slices.Concat(p.Theirs, p.Ours) {
		errs = append(errs, m.validate())
		if m.Alias.IsValid() && !isPrivate(m.Alias) {
			errs = append(errs, fmt.Errorf("range %s: alias %s is not of private use", m.Name, m.Alias))
		}
	}
	errs = append(errs, disjoint("its ranges", p.Theirs), disjoint("our ranges", p.Ours))
	for _, t := range p.Theirs {
		for _, o := range p.Ours {
			if t.Alias.Overlaps(o.Real) {
				errs = append(errs, fmt.Errorf("alias %s of its %s overlaps our %s %s", t.Alias, t.Name, o.Name, o.Real))
			}
		}
	}
	return errors.Join(errs...)
}

func disjoint(whose string, ms []Mapping) error {
	for i, a := range ms {
		for _, b := range ms[:i] {
			if a.Real.Overlaps(b.Real) || a.Alias.Overlaps(b.Alias) {
				return fmt.Errorf("%s %q and %q overlap", whose, b.Name, a.Name)
			}
		}
	}
	return nil
}

package link

import (
	"fmt"
	"net/netip"
	"slices"

	"kith.dev/core/netplan"
)

// direction is what this side remembers of how a range for guests was, or is being, agreed on: for the peer's guests here, or its own
// at the peer. Both sides say a range for it in each link; it is agreed on when they say the same.
type direction struct {
	agreed  netip.Prefix   // by both, before
	named   netip.Prefix   // by this side, last
	refused []netip.Prefix // which this side named, and the peer named another
}

// room is where a range may lie.
type room struct {
	taken []netip.Prefix // in use here for something else
	pool  []netip.Prefix // blocks to choose out of; what a peer names lies in one, too
}

// maxRefused bounds what is remembered of a peer that is never content.
const maxRefused = 16

// name says which range this side wants, after the peer said one; the zero value: nothing yet. held: guests have addresses of what was
// agreed on, so nothing else will do. The rules, the first that fits:
//
//	guests have addresses of the range agreed on   that
//	what the peer says is free here                that
//	the peer stands by what was agreed on          that: its guests have addresses of it, and they go on beside a network that has them too
//	the peer says nothing, and ours is still free  that
//	else                                           one that is free here, and that the peer did not refuse
//
// So a range that suits one side is taken or refused by the other, and each side goes through its pool block by block: two whose pools have
// a free range in common find one after as many rounds as there are blocks, unless within a block neither's choice suits the other.
func (d *direction) name(said netip.Prefix, bits int, held bool, r room, seed string) (p netip.Prefix, err error) {
	defer func() { d.named = p }()
	fits := func(p netip.Prefix) bool {
		return p.Bits() == bits && netplan.CheckGuests(p) == nil && netplan.Within(p, r.pool) && netplan.Free(p, r.taken)
	}
	switch {
	case held && d.agreed.IsValid():
		return d.agreed, nil
	case said.IsValid() && (fits(said) || said == d.agreed):
		return said, nil
	}
	for _, before := range []netip.Prefix{d.named, d.agreed} {
		switch {
		case !before.IsValid() || before == said:
		case said.IsValid():
			d.refuse(before)
		case fits(before):
			return before, nil
		}
	}
	refused := slices.Clone(d.refused)
	if netplan.CheckGuests(said) == nil {
		refused = append(refused, said)
	}
	untried := func(block netip.Prefix) bool { return netplan.Free(block, refused) }
	pool := slices.Concat(filter(r.pool, untried), filter(r.pool, func(block netip.Prefix) bool { return !untried(block) }))
	return netplan.ChooseGuests(bits, append(refused, r.taken...), pool, seed)
}

// refuse notes that the peer did not take a range.
func (d *direction) refuse(p netip.Prefix) {
	if slices.Contains(d.refused, p) {
		return
	}
	if len(d.refused) == maxRefused {
		d.refused = d.refused[1:]
	}
	d.refused = append(d.refused, p)
}

// agree notes what both say.
func (d *direction) agree(p netip.Prefix) { *d = direction{agreed: p, named: p} }

func filter(list []netip.Prefix, keep func(netip.Prefix) bool) (out []netip.Prefix) {
	for _, p := range list {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// alias keeps the one that was chosen for a range of the peer's before as long as it is free, and chooses one else.
func alias(real netip.Prefix, before []netplan.Mapping, r room, seed string) (netip.Prefix, error) {
	for _, was := range before {
		if was.Real == real && netplan.Free(was.Alias, r.taken) {
			return was.Alias, nil
		}
	}
	a, err := netplan.ChooseAlias(real, r.taken, r.pool, seed)
	if err != nil {
		return a, fmt.Errorf("find free addresses for %s: %w", real, err)
	}
	return a, nil
}

// handle is the first name inside WireGuard that no other peer has.
func handle(taken []netip.Addr) netip.Addr {
	for n := uint32(0); ; n++ {
		if h := netplan.Handle(n); !slices.Contains(taken, h) {
			return h
		}
	}
}

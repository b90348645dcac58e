package link

import (
	"fmt"
	"net/netip"
	"slices"

	"kith.dev/core/net/netplan"
)

// direction is what this side remembers of how a range for guests was, or is being, agreed on: for the peer's guests here, or its own
// at the peer. Both sides say a range for it in each link; it is agreed on when they say the same.
type direction struct {
	agreed  netip.Prefix   // by both, before
	named   netip.Prefix   // by this side, last
	refused []netip.Prefix // which this side named, and the peer named another
}

// room says where a range may lie.
type room struct {
	taken []netip.Prefix // in use here for something else
	pool  []netip.Prefix // blocks to choose out of
	owner bool           // the owner chose the pool, and knows that nobody else uses it
}

// open are the blocks in which a peer may say where a range lies. Which addresses lie behind the default route, no route tells, and a peer could
// name those of servers there, to have what is sent to them. So of a pool that nobody chose it is the first block with room alone; elsewhere this
// side chooses a place itself, and the peer may take it.
func (r room) open(bits int) []netip.Prefix {
	if r.owner {
		return r.pool
	}
	for i, block := range r.pool {
		if _, err := netplan.Choose(bits, r.taken, r.pool[i:i+1], ""); err == nil {
			return []netip.Prefix{block}
		}
	}
	return nil
}

// maxRefused bounds the refused ranges that are remembered, for a peer that refuses everything.
const maxRefused = 16

// name says which range this side wants, after the peer said one; the zero value: nothing yet. held: guests have addresses of what was
// agreed on, so nothing else will do. The rules, the first that fits:
//
//	guests have addresses of the range agreed on            that
//	the peer says ours, or one in a block open to it; free  that
//	the peer stands by what was agreed on                   that: its guests have addresses of it, and they go on beside a network that has them too
//	the peer says nothing, and ours is still free           that
//	else                                                    one that is free here, and that the peer did not refuse
//
// The last is looked for where the peer refused least, and first in the block in which it said something: its own first block may be this
// side's second. So two agree whose first blocks with room are the same, or where the first of one has room at the other; else one of the two
// owners has to choose a pool.
func (d *direction) name(said netip.Prefix, bits int, held bool, r room, seed string) (p netip.Prefix, err error) {
	defer func() { d.named = p }()
	fits := func(p netip.Prefix) bool {
		return p.Bits() == bits && netplan.CheckGuests(p) == nil && netplan.Within(p, r.pool) && netplan.Free(p, r.taken)
	}
	switch {
	case held && d.agreed.IsValid():
		return d.agreed, nil
	case said.IsValid() && (said == d.agreed || fits(said) && (said == d.named || netplan.Within(said, r.open(bits)))):
		return said, nil
	}
	for _, before := range []netip.Prefix{d.named, d.agreed} {
		switch {
		case !before.IsValid() || before == said:
		case said.IsValid():
			if !slices.Contains(d.refused, before) {
				d.refused = append(d.refused[max(0, len(d.refused)+1-maxRefused):], before)
			}
		case fits(before):
			return before, nil
		}
	}
	rank := func(block netip.Prefix) (n int) {
		for _, p := range d.refused {
			if block.Overlaps(p) {
				n += 2
			}
		}
		if !block.Overlaps(said) {
			n++
		}
		return n
	}
	pool := slices.SortedStableFunc(slices.Values(r.pool), func(a, b netip.Prefix) int { return rank(a) - rank(b) })
	return netplan.Choose(bits, slices.Concat(d.refused, r.taken), pool, seed)
}

// agree notes what both say.
func (d *direction) agree(p netip.Prefix) { *d = direction{agreed: p, named: p} }

// alias keeps the alias chosen before for a range of the peer's while it is free, or in use by guests here (held); else it chooses a new one.
func alias(real netip.Prefix, before []netplan.Mapping, held bool, r room, seed string) (netip.Prefix, error) {
	for _, was := range before {
		if was.Real == real && (held || netplan.Free(was.Alias, r.taken)) {
			return was.Alias, nil
		}
	}
	a, err := netplan.Choose(real.Bits(), slices.Concat(r.taken, aliasesOf(before)), r.pool, seed)
	if err != nil {
		return a, fmt.Errorf("find free addresses for %s: %w", real, err)
	}
	return a, nil
}

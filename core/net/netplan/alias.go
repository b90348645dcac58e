package netplan

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
)

// DefaultPool is where aliases come from, in this order. The first block is rarely a LAN's and has room for 64
// ranges of the usual /16.
func DefaultPool() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.64.0.0/10"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("100.64.0.0/10"),
	}
}

// GuestPool is where ranges for guests come from, in this order. The first is the block of benchmarks (RFC 2544), which no network has: what is
// sent to an address of a range goes to a peer, and of a block that offices have, a peer that names ranges could name the servers behind this
// laptop's default route, of which no route tells.
func GuestPool() []netip.Prefix {
	return append([]netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}, DefaultPool()...)
}

// Choose picks a free range of that length: in the first block of pool that has one, from a place that seed (the peer's ID) decides, so that
// the same peer gets the same range again and different peers start apart. taken is everything in use here; see hostnet.InUse.
//
// What a peer names itself decides nothing: it could name the servers behind this laptop's default route, of which no route tells, and
// have what is sent to them.
func Choose(bits int, taken, pool []netip.Prefix, seed string) (netip.Prefix, error) {
	h := fnv.New64a()
	h.Write([]byte(seed))
	for _, block := range pool {
		if !block.Addr().Is4() || block.Bits() > bits {
			continue
		}
		if p, ok := search(block.Masked(), bits, taken, h.Sum64()); ok {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free range of length /%d in %v: free one, or widen the pool", bits, pool)
}

// search goes once around the block. It jumps over whatever is taken, so even a /8 of /28s is soon searched.
func search(block netip.Prefix, bits int, taken []netip.Prefix, start uint64) (netip.Prefix, bool) {
	n := uint64(1) << (bits - block.Bits())
	size := uint64(1) << (32 - bits)
	base := uint64(Number(block.Addr()))
	for step, i := uint64(0), start%n; step < n; {
		p := netip.PrefixFrom(addrOf(uint32(base+i*size)), bits)
		hit := slices.IndexFunc(taken, p.Overlaps)
		if hit < 0 {
			if CheckRange(p) == nil {
				return p, true
			}
			step, i = step+1, (i+1)%n
			continue
		}
		jump := uint64(1)
		if wide := taken[hit]; wide.Bits() < bits { // go to its end
			end := (uint64(Number(wide.Masked().Addr())) + uint64(1)<<(32-wide.Bits()) - base) / size
			jump = end - i
		}
		if i+jump >= n {
			step, i = step+n-i, 0
		} else {
			step, i = step+jump, i+jump
		}
	}
	return netip.Prefix{}, false
}

// Within reports whether a range lies in one of the blocks of a pool.
func Within(p netip.Prefix, pool []netip.Prefix) bool {
	return slices.ContainsFunc(pool, func(block netip.Prefix) bool { return block.Bits() <= p.Bits() && block.Contains(p.Addr()) })
}

// Free reports whether a range overlaps nothing that is taken.
func Free(p netip.Prefix, taken []netip.Prefix) bool { return !slices.ContainsFunc(taken, p.Overlaps) }

package netplan

import (
	"fmt"
	"net/netip"
)

// Shared is a pod under the two addresses that it has: Pod in its own cluster, As at a peer.
type Shared struct{ As, Pod netip.Addr }

// firstShared is the first address in a range for guests that may be a shared pod's: guests have those below (LastGuest), and a node has 110 pods
// at most.
const firstShared = 128

// MaxShared is how many pods may be shared with one peer.
const MaxShared = 127

// LastGuest is the last address in a range of 256 that a guest may have.
func LastGuest(guests netip.Prefix) netip.Addr { return nth(guests, firstShared-1) }

// SharedAt gives the addresses that shared pods may have in a range of 256, in turns from one of them on.
func SharedAt(guests netip.Prefix, from int) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for i := range MaxShared {
			if !yield(nth(guests, uint32(firstShared+(from+i)%MaxShared))) {
				return
			}
		}
	}
}

// validateShared reports what is wrong with shared pods: all of it was said by this cluster.
func (p Pair) validateShared() (errs []error) {
	if len(p.Shared) > MaxShared && !p.Guests.Real.IsValid() {
		return []error{fmt.Errorf("%d pods are shared, at most %d can be", len(p.Shared), MaxShared)}
	}
	pods, as := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, s := range p.Shared {
		switch {
		case !s.Pod.Is4() || !p.Here.Contains(s.As):
			errs = append(errs, fmt.Errorf("shared pod %s: its address there, %s, is not in %s", s.Pod, s.As, p.Here))
		case pods[s.Pod] || as[s.As]:
			errs = append(errs, fmt.Errorf("shared pod %s, there %s: one of these is another's", s.Pod, s.As))
		}
		pods[s.Pod], as[s.As] = true, true
	}
	return errs
}

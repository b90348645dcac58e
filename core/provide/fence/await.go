//go:build linux

package fence

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"kith.dev/core/net/nft"
)

// sight is what the fence knows of the links that a network plugin made.
type sight struct {
	found    map[netip.Addr]guestLink // guests' links; a bridge forgets who is behind which port
	since    map[netip.Addr]time.Time // guests whose links were not found yet, since when
	standing map[string]bool          // links that existed before a guest was awaited, or are the owner's
	beat     time.Time                // when the node's kubelet last renewed its lease, or was heard of otherwise
	renew    bool                     // the timeouts in the kernel were not renewed for that yet
	again    time.Duration            // when to look again; 0: when something changes
}

const (
	// A guest whose link is looked for holds up the IPv6 of pods whose links came since, for no longer than this: there may be plugins whose links are
	// never found.
	seekFor = 10 * time.Second
	seekGap = 250 * time.Millisecond
)

// look finds guests' links among those that the network plugin made, and says whether one is awaited. A link that was there before is none of a new
// guest's, whatever it says: it would take the network from the owner's pod.
func (f *Fence) look(host *hostState) {
	plugin, s := f.rel.Plugin, &f.seen
	here := append(slices.Clone(plugin.Ranges), f.cfg.Pods)
	here = append(append(here, single(plugin.Own)...), single(plugin.Here)...)
	names, bridges, pairs := host.wires.outer(here)
	host.outer, host.bridges = names, bridges
	owners := map[string]bool{}
	for _, a := range plugin.Own {
		if l, ok := host.wires.to(a); ok {
			owners[l.name] = true
		}
	}
	maps.DeleteFunc(s.found, func(a netip.Addr, l guestLink) bool {
		return !slices.Contains(plugin.Here, a) || !host.wires.has(l.name)
	})
	maps.DeleteFunc(s.since, func(a netip.Addr, _ time.Time) bool { return !slices.Contains(plugin.Here, a) })
	seeking := false
	for _, a := range plugin.Here {
		if l, ok := host.wires.to(a); ok && !owners[l.name] && !s.standing[l.name] {
			s.found[a] = l
		}
		if _, ok := s.found[a]; ok {
			delete(s.since, a)
			continue
		}
		if s.since[a].IsZero() {
			s.since[a] = time.Now()
		}
		f.seek(host.wires, a)
		seeking = seeking || time.Since(s.since[a]) < seekFor
	}
	guests := map[string]bool{}
	for _, l := range s.found {
		guests[l.name] = true
		host.guests = append(host.guests, l)
	}
	host.guests = sortedLinks(host.guests)
	switch {
	case f.wasSet && !plugin.guestsHere() || !f.wasSet && !f.before:
		host.calm, host.calm6 = forGood, forGood
	case !f.wasSet || plugin.Awaited || time.Since(s.beat) > calmFor:
		host.calm, host.calm6 = never, never
	case seeking:
		host.calm, host.calm6 = lately, never
	default:
		host.calm, host.calm6 = lately, lately
	}
	switch {
	case !f.wasSet:
	case host.calm6 != never:
		s.standing = map[string]bool{}
		for _, name := range pairs {
			s.standing[name] = true
		}
	default:
		maps.Copy(s.standing, owners)
		maps.DeleteFunc(s.standing, func(name string, _ bool) bool { return !slices.Contains(pairs, name) })
	}
	maps.DeleteFunc(s.standing, func(name string, _ bool) bool { return guests[name] })
	host.standing = slices.Sorted(maps.Keys(s.standing))
	if s.again = 0; seeking {
		s.again = seekGap
	}
}

// Heard extends the time for which unknown addresses pass: the node's kubelet was heard of, so all that it has reported of guests is known here.
func (f *Fence) Heard(beat time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen.renew = f.seen.renew || beat.After(f.seen.beat)
	f.seen.beat = beat
}

// renew renews the timeouts in the kernel after that.
func (f *Fence) renew(is plan) error {
	if !f.seen.renew || !f.wasSet {
		return nil
	}
	f.seen.renew = false
	return f.calms(is, func(s nft.Set) []nftables.SetElement { return s.Elements })
}

// close stops unknown addresses from opening connections, where guests run: from now on this process does not see new guests.
func (f *Fence) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cfg.Group != 0 || !f.wasSet || !f.rel.Plugin.guestsHere() {
		return nil
	}
	f.seen.renew = true // whoever runs it again
	return f.calms(f.is, func(nft.Set) []nftables.SetElement { return nil })
}

// calms puts elements into the sets that say so, where they pass.
func (f *Fence) calms(is plan, elements func(nft.Set) []nftables.SetElement) error {
	for _, of := range []struct {
		keeper *nft.Keeper
		tables []nft.Table
	}{{&f.fence, is.fence}, {&f.links, is.links}} {
		for _, t := range of.tables {
			for _, set := range t.Sets {
				if set.Name != calmSet || len(set.Elements) == 0 || set.Elements[0].Timeout == 0 || of.keeper == &f.links && f.bound != nil {
					continue
				}
				set.Elements = elements(set)
				if err := of.keeper.Renew(t.Family, set); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// again is when to look again where guests' links are; 0 when only what changes matters.
func (f *Fence) again() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.again
}

// asks reports whether it matters whose an address is.
func (f *Fence) asks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rel.Plugin.guestsHere()
}

// Unbound gives the addresses of guests whose links were not found, and an error if guests could not be bound to their links. The fence then does
// not see what such a guest sends below IPv4.
func (f *Fence) Unbound() ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []netip.Addr
	for a, since := range f.seen.since {
		if time.Since(since) >= seekFor {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list, f.bound
}

package directory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/discovery"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
)

// Known is a cluster that this one knows of: seen nearby, kept as a Peer, or both.
type Known struct {
	ID        identity.ID
	Name      string // unique here
	Source    api.Source
	Addresses []string // host:port of the peer API, best first
	LastSeen  time.Time
	Contact   peering.Contact
	Peer      *v1alpha1.Peer // nil when it is only nearby

	announced []string // host:port as discovery says, nil when it does not see it
}

// Directory knows which clusters there are, what they are called here and how they are reached. It puts together
// what discovery sees, what the cluster's Peers remember and what contacts prove. All methods may be called by many at once.
type Directory struct {
	me       *identity.Identity
	contacts *peering.Contacts
	nearby   *discovery.Table
	log      *slog.Logger
	changed  func(peer string) // the contact of a Peer changed
	follow   func([]dns.Followed)

	mu       sync.Mutex
	peers    map[identity.ID]*v1alpha1.Peer
	names    map[identity.ID]string            // of clusters that are no Peers; first come, first named
	reported map[identity.ID]presence.Presence // for which changed was called last
	// announced are the addresses that aim saw last.
	announced map[identity.ID][]string
	called    map[identity.ID]netip.Addr // see Called
	older     map[identity.ID]time.Time  // see FoundOlder: Contact.Since of the connection
}

// New makes a Directory; Run keeps it.
func New(me *identity.Identity, contacts *peering.Contacts, nearby *discovery.Table, log *slog.Logger) *Directory {
	return &Directory{
		me: me, contacts: contacts, nearby: nearby, log: log, changed: func(string) {}, follow: func([]dns.Followed) {},
		peers: map[identity.ID]*v1alpha1.Peer{}, names: map[identity.ID]string{}, reported: map[identity.ID]presence.Presence{},
		announced: map[identity.ID][]string{}, called: map[identity.ID]netip.Addr{}, older: map[identity.ID]time.Time{},
	}
}

// SetPeers tells the directory what the cluster remembers.
func (d *Directory) SetPeers(peers []*v1alpha1.Peer) {
	byID := make(map[identity.ID]*v1alpha1.Peer, len(peers))
	for _, peer := range peers {
		if id, err := identity.ParseID(peer.Spec.ID); err == nil {
			byID[id] = peer
		}
	}
	d.mu.Lock()
	d.peers = byID
	maps.DeleteFunc(d.called, func(id identity.ID, _ netip.Addr) bool { return byID[id] == nil })
	d.mu.Unlock()
	d.follow(d.byName())
	d.aim()
}

// FollowNames has f called with the names of Peers that were added by one, whenever they may have changed. Call it before anything else.
func (d *Directory) FollowNames(f func([]dns.Followed)) { d.follow = f }

// byName gives the names that Peers were added by, in one order. One that is none was written by somebody else than Kith.
func (d *Directory) byName() (all []dns.Followed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, peer := range d.peers {
		if peer.Spec.DNSName == "" {
			continue
		}
		if name, err := dns.ParseName(peer.Spec.DNSName); err == nil {
			all = append(all, dns.Followed{Name: name, ID: id})
		} else {
			d.log.Debug("the name of a peer is not followed", "peer", peer.Name, "err", err)
		}
	}
	slices.SortFunc(all, func(a, b dns.Followed) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return all
}

// Remember adds a Peer that was just written, before the cluster's watch tells of it.
func (d *Directory) Remember(peer *v1alpha1.Peer) {
	if id, err := identity.ParseID(peer.Spec.ID); err == nil {
		d.mu.Lock()
		d.peers[id] = peer.DeepCopy()
		d.mu.Unlock()
		d.follow(d.byName())
		d.aim()
	}
}

// Called records the address from which a known cluster called. A peer that was added by an address may have moved, or another node of its
// cluster has taken over: it is dialled there as well, and its key is checked as always. Link-local addresses are not recorded: mDNS has them.
func (d *Directory) Called(id identity.ID, from netip.Addr) {
	from = from.Unmap()
	d.mu.Lock()
	same := d.called[id] == from || from.IsLinkLocalUnicast() || !from.IsValid() // of who comes by way of another there is none
	if !same {
		d.called[id] = from
	}
	d.mu.Unlock()
	if !same {
		d.aim()
		d.contacts.Poke(id) // its connection may be to where it was before
	}
}

// IsPeer tells whether a cluster is remembered as a Peer.
func (d *Directory) IsPeer(id identity.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers[id] != nil
}

// PeerName is the name of the Peer with that ID; "" when there is none.
func (d *Directory) PeerName(id string) string {
	parsed, err := identity.ParseID(id)
	if err != nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.peers[parsed]; p != nil {
		return p.Name
	}
	return ""
}

// OnChange has f called with the name of a Peer whose contact changed.
func (d *Directory) OnChange(f func(peer string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = f
	d.reported = map[identity.ID]presence.Presence{}
}

// Run keeps the contacts aimed at what is known, and tells who is interested when one changes.
func (d *Directory) Run(ctx context.Context) error {
	seen, moved := d.nearby.Changed(), d.contacts.Changed()
	d.aim()
	for {
		select {
		case <-seen:
			seen = d.nearby.Changed()
			d.aim()
		case <-moved:
			moved = d.contacts.Changed()
			d.tell()
		case <-ctx.Done():
			return nil
		}
	}
}

// maxNeighbours is with how many who are no peers a connection is kept: each is one at the other, too, so that they are quadratic in a crowd. Of
// those beyond it is known what discovery says, and they are contacted when they are asked for something.
const maxNeighbours = 64

// aim sets the targets of contacts, with their addresses. Peers come first if there are too many.
func (d *Directory) aim() {
	var peers, contacted, fresh, silent []peering.Target
	var moved []identity.ID
	for _, k := range d.All() {
		if d.movedSince(k) && k.Contact.Reachable() {
			moved = append(moved, k.ID)
		}
		target := peering.Target{ID: k.ID, Name: k.Name, Addresses: k.Addresses}
		switch {
		case k.Peer != nil:
			peers = append(peers, target)
		case k.Contact.ID.IsZero():
			fresh = append(fresh, target)
		case k.Contact.State == presence.Unreachable:
			silent = append(silent, target)
		default:
			contacted = append(contacted, target)
		}
	}
	others := slices.Concat(contacted, fresh, silent) // who answers stays; who does not makes room, for somebody may announce a hundred who are none
	d.contacts.Set(append(peers, others[:min(len(others), maxNeighbours)]...))
	if len(moved) > 0 { // its connection may be to an address it has left
		d.contacts.Poke(moved...)
	}
}

// movedSince tells whether discovery says another address of a cluster than the last time.
func (d *Directory) movedSince(k Known) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, known := d.announced[k.ID]
	if k.announced == nil {
		delete(d.announced, k.ID)
	} else {
		d.announced[k.ID] = k.announced
	}
	return known && k.announced != nil && !slices.Equal(was, k.announced)
}

// tell calls changed for every Peer whose contact has changed since the last call.
func (d *Directory) tell() {
	var names []string
	d.mu.Lock()
	for _, c := range d.contacts.Snapshot() {
		peer := d.peers[c.ID]
		now := c.Presence
		if !now.Reachable() { // why the next dial failed, too, is no news
			now.Why = ""
		}
		if peer == nil || d.reported[c.ID] == now {
			continue
		}
		d.reported[c.ID] = now
		names = append(names, peer.Name)
	}
	d.mu.Unlock()
	d.call(names...)
}

// call tells of these Peers to whoever asked by OnChange.
func (d *Directory) call(names ...string) {
	d.mu.Lock()
	changed := d.changed
	d.mu.Unlock()
	for _, name := range names {
		changed(name)
	}
}

// FoundOlder records that the Kith of a Peer lacks a call that this one needs; since is when the connection to it began. The call is not
// repeated on that connection: an upgraded peer has a new one.
func (d *Directory) FoundOlder(peer *v1alpha1.Peer, since time.Time) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.older[id] = since
	d.mu.Unlock()
	d.call(peer.Name)
}

// TellAll calls changed for every Peer, because something about them changed that is no contact.
func (d *Directory) TellAll() {
	d.mu.Lock()
	var names []string
	for _, peer := range d.peers {
		names = append(names, peer.Name)
	}
	d.mu.Unlock()
	d.call(names...)
}

// All lists the known clusters by name.
func (d *Directory) All() []Known {
	sightings := map[identity.ID]discovery.Found{}
	for _, f := range d.nearby.Snapshot() {
		if f.ID != d.me.ID() {
			sightings[f.ID] = f
		}
	}
	contacts := map[identity.ID]peering.Contact{}
	for _, c := range d.contacts.Snapshot() {
		contacts[c.ID] = c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Known
	for id, peer := range d.peers {
		k := Known{ID: id, Name: peer.Name, Peer: peer, Source: api.Source(peer.Spec.Source)}
		k.Addresses = merge(addressesOf(sightings[id]), peer.Spec.Endpoints)
		k.Addresses = merge(k.Addresses, atPorts(d.called[id], k.Addresses))
		if near, ok := sightings[id]; ok {
			k.LastSeen, k.Source = near.Seen, api.Source(near.Sources[0])
			k.announced = addressesOf(near)
		}
		k.take(contacts[id])
		k.Contact = d.judged(id, k.Name, k.Contact)
		list = append(list, k)
	}
	for id, s := range sightings {
		if d.peers[id] != nil {
			continue
		}
		k := Known{ID: id, Name: d.nameFor(id, s.Name), Source: api.Source(s.Sources[0]), Addresses: addressesOf(s), LastSeen: s.Seen, announced: addressesOf(s)}
		k.take(contacts[id])
		list = append(list, k)
	}
	for id := range d.names {
		if _, near := sightings[id]; !near {
			delete(d.names, id)
		}
	}
	slices.SortFunc(list, func(a, b Known) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// runsOlder is why a contract with a peer of an older Kith is of no use.
func runsOlder(peer string) string {
	return peer + " runs an older Kith, which does not tell what it keeps for this laptop (bring both to the same version of Kith)"
}

// judged adds to a contact what was found out over it. The caller holds mu.
func (d *Directory) judged(id identity.ID, name string, c peering.Contact) peering.Contact {
	if since, found := d.older[id]; found && c.Reachable() && since.Equal(c.Since) {
		c.Cause, c.Why = presence.Older, runsOlder(name)
	}
	return c
}

// take adds what the contact proved.
func (k *Known) take(c peering.Contact) {
	k.Contact = c
	switch {
	case c.ID.IsZero() && len(k.Addresses) == 0:
		k.Contact.State, k.Contact.Why = presence.NeverSeen, "it is not on this network, and no address of it is known"
	case c.ID.IsZero():
		k.Contact.State, k.Contact.Why = presence.Seen, "not contacted yet"
	case c.Reachable():
		k.LastSeen = time.Now()
		k.Addresses = merge([]string{c.Address}, k.Addresses)
	case k.LastSeen.IsZero() && c.State != presence.Seen:
		k.LastSeen = c.Since
	}
}

// addressesOf writes them as the peer API's are kept.
func addressesOf(s discovery.Found) (list []string) {
	for _, a := range s.Addresses {
		list = append(list, a.String())
	}
	return list
}

// atPorts is an address with the ports of others.
func atPorts(a netip.Addr, others []string) (list []string) {
	if !a.IsValid() {
		return nil
	}
	for _, e := range others {
		if _, port, err := net.SplitHostPort(e); err == nil {
			list = append(list, net.JoinHostPort(a.String(), port))
		}
	}
	return list
}

// merge joins two lists of addresses, each kept once.
func merge(first, second []string) []string {
	var list []string
	for _, a := range slices.Concat(first, second) {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// nameFor is called with mu held.
func (d *Directory) nameFor(id identity.ID, name string) string {
	if have := d.names[id]; have != "" && !d.peerHas(have) {
		return have
	}
	d.names[id] = record.NameFor(id, name, func(n string) bool {
		for other, taken := range d.names {
			if taken == n && other != id {
				return true
			}
		}
		return d.peerHas(n)
	})
	return d.names[id]
}

func (d *Directory) peerHas(name string) bool {
	for _, peer := range d.peers {
		if peer.Name == name {
			return true
		}
	}
	return false
}

// Find looks a cluster up by its name, its ID, or a prefix of that; what starts several is not guessed.
func (d *Directory) Find(ref string) (Known, error) {
	return pick(d.All(), ref)
}

// NamesOf gives the names here of the peers that refs, names or IDs, mean. The error is that of pick.
func NamesOf(all []Known, refs []string) (names []string, err error) {
	for _, ref := range refs {
		k, err := pick(all, ref)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, k.Name) {
			names = append(names, k.Name)
		}
	}
	return names, nil
}

// pick finds one of all. Names of Peers are reliable. Clusters that are only nearby choose their own names, so one may be the start of another's
// ID: such a reference is ambiguous, and matches neither.
func pick(all []Known, ref string) (Known, error) {
	var found []Known
	compact := strings.ToLower(strings.ReplaceAll(ref, "-", ""))
	for _, k := range all {
		if k.ID.Compact() == compact || k.Name == ref && k.Peer != nil {
			return k, nil
		}
		if k.Name == ref || len(compact) >= 4 && strings.HasPrefix(k.ID.Compact(), compact) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		return Known{}, api.NotFound("peer", ref, "kith peers")
	case 1:
		return found[0], nil
	}
	return Known{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q is the name, or starts the ID, of %d peers", ref, len(found)), Do: "give more of the ID"}
}

// Client speaks to a Peer; it is the one its contact uses.
func (d *Directory) Client(peer *v1alpha1.Peer) (*peering.Client, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", peer.Name, err)
	}
	if client, ok := d.contacts.Client(id); ok {
		return client, nil
	}
	d.Remember(peer)
	if client, ok := d.contacts.Client(id); ok {
		return client, nil
	}
	return nil, fmt.Errorf("peer %s: no address of it is known, or too many peers are", peer.Name)
}

// Contact tells whether a Peer answers now.
func (d *Directory) Contact(peer *v1alpha1.Peer) peering.Contact {
	if id, err := identity.ParseID(peer.Spec.ID); err == nil {
		if c, ok := d.contacts.Contact(id); ok { // each reconciler of a peer asks this, and a hub has a hundred
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.judged(id, peer.Name, c)
		}
	}
	for _, k := range d.All() {
		if k.ID.String() == peer.Spec.ID {
			return k.Contact
		}
	}
	return peering.Contact{Presence: presence.Presence{State: presence.Gone, Why: "it is not known where it is"}}
}

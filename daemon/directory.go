package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/discovery"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// known is a cluster that this one knows of: seen nearby, kept as a Peer, or both.
type known struct {
	id        identity.ID
	name      string // unique here
	source    api.Source
	announced []string // host:port as discovery says, nil when it does not see it
	addresses []string // host:port of the peer API, best first
	lastSeen  time.Time
	contact   link.Contact
	rtt       time.Duration
	clock     time.Duration  // how far its clock is ahead, when it is reachable
	mismatch  bool           // another key answers at its address
	version   bool           // it answers, and speaks another version of the protocol
	older     bool           // it answers, and does not know a question that this Kith cannot do without
	peer      *v1alpha1.Peer // nil when it is only nearby
}

// directory knows which clusters there are, what they are called here and how they are reached. It puts together
// what discovery sees, what the cluster's Peers remember and what contacts prove.
type directory struct {
	me       *identity.Identity
	contacts *peering.Contacts
	nearby   *discovery.Table
	log      *slog.Logger
	changed  func(peer string) // the contact of a Peer changed

	mu    sync.Mutex
	peers map[identity.ID]*v1alpha1.Peer
	names map[identity.ID]string // of clusters that are no Peers; first come, first named
	told  map[identity.ID]told   // what changed was called for last
	// announced are the addresses that aim saw last.
	announced map[identity.ID][]string
	older     map[identity.ID]time.Time // see foundOlder: Contact.Since of the connection
}

// told is what of a contact others act upon.
type told struct {
	since  time.Time // of its state
	ailing string
}

func newDirectory(me *identity.Identity, contacts *peering.Contacts, nearby *discovery.Table, log *slog.Logger) *directory {
	return &directory{
		me: me, contacts: contacts, nearby: nearby, log: log, changed: func(string) {},
		peers: map[identity.ID]*v1alpha1.Peer{}, names: map[identity.ID]string{}, told: map[identity.ID]told{},
		announced: map[identity.ID][]string{}, older: map[identity.ID]time.Time{},
	}
}

// setPeers tells the directory what the cluster remembers.
func (d *directory) setPeers(peers []v1alpha1.Peer) {
	byID := make(map[identity.ID]*v1alpha1.Peer, len(peers))
	for i := range peers {
		if id, err := identity.ParseID(peers[i].Spec.ID); err == nil {
			byID[id] = &peers[i]
		}
	}
	d.mu.Lock()
	d.peers = byID
	d.mu.Unlock()
	d.aim()
}

// remember adds a Peer that was just written, before the cluster's watch tells of it.
func (d *directory) remember(peer *v1alpha1.Peer) {
	if id, err := identity.ParseID(peer.Spec.ID); err == nil {
		d.mu.Lock()
		d.peers[id] = peer.DeepCopy()
		d.mu.Unlock()
		d.aim()
	}
}

// isPeer tells whether a cluster is remembered as a Peer.
func (d *directory) isPeer(id identity.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers[id] != nil
}

// peerName is the name of the Peer with that ID; "" when there is none.
func (d *directory) peerName(id string) string {
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

// onChange has f called with the name of a Peer whose contact changed.
func (d *directory) onChange(f func(peer string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = f
	d.told = map[identity.ID]told{}
}

// run keeps the contacts aimed at what is known, and tells who is interested when one changes.
func (d *directory) run(ctx context.Context) error {
	seen, stopSeen := d.nearby.Watch()
	defer stopSeen()
	moved, stopMoved := d.contacts.Subscribe()
	defer stopMoved()
	d.aim()
	for {
		select {
		case <-seen:
			d.aim()
		case <-moved:
			d.tell()
		case <-ctx.Done():
			return nil
		}
	}
}

// aim sets who is to be contacted, and where. Peers come first, should there be too many.
func (d *directory) aim() {
	var peers, others []peering.Target
	var moved []string
	for _, k := range d.all() {
		if d.movedSince(k) && k.contact.Reachable {
			moved = append(moved, k.id.Compact())
		}
		target := peering.Target{Key: k.id.Compact(), ID: k.id, Name: k.name, Addresses: k.addresses}
		if k.peer != nil {
			peers = append(peers, target)
		} else {
			others = append(others, target)
		}
	}
	d.contacts.Set(append(peers, others...))
	if len(moved) > 0 { // its connection may be to an address it has left
		d.contacts.Poke(moved...)
	}
}

// movedSince tells whether discovery says another address of a cluster than the last time.
func (d *directory) movedSince(k known) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, known := d.announced[k.id]
	if k.announced == nil {
		delete(d.announced, k.id)
	} else {
		d.announced[k.id] = k.announced
	}
	return known && k.announced != nil && !slices.Equal(was, k.announced)
}

// tell calls changed for every Peer whose contact is in another state than it was told of.
func (d *directory) tell() {
	var names []string
	d.mu.Lock()
	for _, c := range d.contacts.Snapshot() {
		peer := d.peers[c.ID]
		now := told{c.Since, c.Ailing}
		if peer == nil || d.told[c.ID] == now {
			continue
		}
		d.told[c.ID] = now
		names = append(names, peer.Name)
	}
	changed := d.changed
	d.mu.Unlock()
	for _, name := range names {
		changed(name)
	}
}

// foundOlder notes that a Peer does not know a question that this Kith cannot do without, over the connection that is there since
// then. It is not asked again over that: whoever brings it up to date makes a new one.
func (d *directory) foundOlder(peer *v1alpha1.Peer, since time.Time) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.older[id] = since
	changed := d.changed
	d.mu.Unlock()
	changed(peer.Name)
}

// tellAll calls changed for every Peer, because something about them changed that is no contact.
func (d *directory) tellAll() {
	d.mu.Lock()
	var names []string
	for _, peer := range d.peers {
		names = append(names, peer.Name)
	}
	changed := d.changed
	d.mu.Unlock()
	for _, name := range names {
		changed(name)
	}
}

// all lists the known clusters by name.
func (d *directory) all() []known {
	sightings := map[identity.ID]discovery.Found{}
	for _, f := range d.nearby.Snapshot() {
		if !f.ID.IsZero() && f.ID != d.me.ID() {
			sightings[f.ID] = f
		}
	}
	contacts := map[identity.ID]peering.Contact{}
	for _, c := range d.contacts.Snapshot() {
		contacts[c.ID] = c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []known
	for id, peer := range d.peers {
		k := known{id: id, name: peer.Name, peer: peer, source: api.Source(peer.Spec.Source)}
		k.addresses = merge(addressesOf(sightings[id]), peer.Spec.Endpoints)
		if near, ok := sightings[id]; ok {
			k.lastSeen, k.source = near.Seen, api.Source(near.Sources[0])
			k.announced = addressesOf(near)
		}
		k.take(contacts[id])
		if since, found := d.older[id]; found && k.contact.Reachable && since.Equal(k.contact.Since) {
			k.older, k.contact.Ailing = true, runsOlder(k.name)
		}
		list = append(list, k)
	}
	for id, s := range sightings {
		if d.peers[id] != nil {
			continue
		}
		k := known{id: id, name: d.nameFor(id, s.Name), source: api.Source(s.Sources[0]), addresses: addressesOf(s), lastSeen: s.Seen, announced: addressesOf(s)}
		k.take(contacts[id])
		list = append(list, k)
	}
	for id := range d.names {
		if _, near := sightings[id]; !near {
			delete(d.names, id)
		}
	}
	slices.SortFunc(list, func(a, b known) int { return strings.Compare(a.name, b.name) })
	return list
}

// runsOlder is why a contract with a peer of an older Kith is of no use.
func runsOlder(peer string) string {
	return peer + " runs an older Kith, which does not tell what it keeps for this laptop (bring both to the same version of Kith)"
}

// take adds what the contact proved.
func (k *known) take(c peering.Contact) {
	k.contact = link.Contact{Reachable: c.State == peering.ContactReachable, Since: c.Since, Why: c.Why, Heard: c.Heard, Ailing: c.Ailing}
	k.mismatch = c.State == peering.ContactMismatch
	k.version = c.State == peering.ContactVersion
	switch {
	case c.Key == "" && len(k.addresses) == 0:
		k.contact.Why = "it is not on this network, and no address of it is known"
	case c.Key == "" || c.State == peering.ContactDialling:
		k.contact.Why = "not contacted yet"
	case k.contact.Reachable:
		k.lastSeen = time.Now()
		k.addresses = merge([]string{c.Address}, k.addresses)
		k.rtt, k.clock = c.RTT, c.Clock
		if at, err := netip.ParseAddrPort(c.Address); err == nil {
			k.contact.Address = at
		}
	case k.lastSeen.IsZero():
		k.lastSeen = c.Since
	}
}

// addressesOf leaves link-local addresses out when there are others: WireGuard's packets could not follow there.
func addressesOf(s discovery.Found) []string {
	var list, linkLocal []string
	for _, a := range s.Addresses {
		if a.Addr().IsLinkLocalUnicast() {
			linkLocal = append(linkLocal, a.String())
		} else {
			list = append(list, a.String())
		}
	}
	if len(list) == 0 {
		return linkLocal
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
func (d *directory) nameFor(id identity.ID, name string) string {
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

func (d *directory) peerHas(name string) bool {
	for _, peer := range d.peers {
		if peer.Name == name {
			return true
		}
	}
	return false
}

// find looks a cluster up by its name, its ID, or a prefix of that; what starts several is not guessed.
func (d *directory) find(ref string) (known, error) {
	return pick(d.all(), ref)
}

// namesOf gives the names here of the peers that refs, names or IDs, mean. The error is that of pick.
func namesOf(all []known, refs []string) (names []string, err error) {
	for _, ref := range refs {
		k, err := pick(all, ref)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	return names, nil
}

// pick finds one of all. A Peer has its name for good; of those that are only nearby somebody may call himself by the start
// of another's ID, or have an ID that starts with another's name: then neither is meant.
func pick(all []known, ref string) (known, error) {
	var found []known
	compact := strings.ToLower(strings.ReplaceAll(ref, "-", ""))
	for _, k := range all {
		if k.id.Compact() == compact || k.name == ref && k.peer != nil {
			return k, nil
		}
		if k.name == ref || len(compact) >= 4 && strings.HasPrefix(k.id.Compact(), compact) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		return known{}, api.NotFound("peer", ref, "kith peers")
	case 1:
		return found[0], nil
	}
	return known{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q is the name, or starts the ID, of %d peers", ref, len(found)), Do: "give more of the ID"}
}

// Client speaks to a Peer; it is the one its contact uses.
func (d *directory) Client(peer *v1alpha1.Peer) (*peering.Client, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", peer.Name, err)
	}
	if client, ok := d.contacts.Client(id.Compact()); ok {
		return client, nil
	}
	d.remember(peer)
	if client, ok := d.contacts.Client(id.Compact()); ok {
		return client, nil
	}
	return nil, fmt.Errorf("peer %s: no address of it is known, or too many peers are", peer.Name)
}

// Contact tells whether a Peer answers now.
func (d *directory) Contact(peer *v1alpha1.Peer) link.Contact {
	for _, k := range d.all() {
		if k.id.String() == peer.Spec.ID {
			return k.contact
		}
	}
	return link.Contact{Why: "it is not known where it is"}
}

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/discovery"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
)

func TestANameThatStartsAnothersIDMeansNeither(t *testing.T) {
	bob, mallory := identity.ID{1, 2, 3}, identity.ID{9}
	dave := identity.ID{7}
	all := []Known{{ID: bob, Name: "bob"}, {ID: mallory, Name: bob.Short()}, {ID: dave, Name: mallory.Short(), Peer: &v1alpha1.Peer{}}}
	for ref, want := range map[string]identity.ID{
		"bob": bob, bob.String(): bob, bob.Compact(): bob, bob.Compact()[:20]: bob, mallory.Compact(): mallory, mallory.Short(): dave,
		bob.Short(): {}, "carol": {}, "": {}, bob.Compact()[:3]: {},
	} {
		k, err := pick(all, ref)
		if k.ID != want || (err == nil) == want.IsZero() {
			t.Errorf("%q means %s (%s), %v", ref, k.Name, k.ID.Short(), err)
		}
	}
}

// The names that Peers were added by are handed on, with whom they shall lead to.
func TestNamesOfPeersAreFollowed(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := New(me, peering.NewContacts(peering.ContactsConfig{Identity: me, Log: log}), discovery.NewTable(log), log)
	var got []string
	d.FollowNames(func(all []dns.Followed) {
		got = nil
		for _, f := range all {
			got = append(got, f.String()+" "+f.ID.Short())
		}
	})
	bob, carol, dave := identity.ID{1}, identity.ID{2}, identity.ID{3}
	peer := func(id identity.ID, name string) *v1alpha1.Peer {
		return &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: id.String(), DNSName: name}}
	}
	d.SetPeers([]*v1alpha1.Peer{peer(carol, "Corp.example."), peer(bob, "bob.example:7000"), peer(dave, ""), peer(identity.ID{4}, "no name")})
	if want := []string{"bob.example:7000 " + bob.Short(), "corp.example " + carol.Short()}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	added := peer(dave, "dave.example")
	d.Remember(added)
	d.SetPeers([]*v1alpha1.Peer{added})
	if want := []string{"dave.example " + dave.Short()}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// A namespace goes to peers by the names they have here; one that stands for nobody is refused, or said to give nothing.
func TestANamespaceGoesToPeersThatThereAre(t *testing.T) {
	bob, carol := identity.ID{1, 2, 3}, identity.ID{9}
	all := []Known{{ID: bob, Name: "bob", Peer: &v1alpha1.Peer{}}, {ID: carol, Name: "carol"}}
	if names, err := NamesOf(all, []string{"bob", carol.String(), bob.Compact()}); err != nil || !slices.Equal(names, []string{"bob", "carol"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := NamesOf(all, []string{"bob", "nobody"}); !errors.Is(err, &api.Error{Code: api.CodeNotFound}) || !strings.Contains(err.Error(), `no peer "nobody" here`) {
		t.Errorf("%v, %v", names, err)
	}
}

// Who was added by an address, and calls from another, is looked for there too, at the ports it has.
func TestWhoCallsFromElsewhereIsLookedForThere(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := New(me, peering.NewContacts(peering.ContactsConfig{Identity: me, Log: log}), discovery.NewTable(log), log)
	const before = "192.0.2.3:30450 corp.example:7000"
	corp := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: identity.ID{1}.String(), Endpoints: strings.Fields(before)}}
	d.SetPeers([]*v1alpha1.Peer{corp})
	for _, step := range []struct{ from, want string }{
		{"", before},
		{"192.0.2.3", before + " 192.0.2.3:7000"},
		{"192.0.2.4", before + " 192.0.2.4:30450 192.0.2.4:7000"}, // where it is now is all that counts
		{"fe80::4%eth0", before + " 192.0.2.4:30450 192.0.2.4:7000"},
		{"::ffff:192.0.2.5", before + " 192.0.2.5:30450 192.0.2.5:7000"},
		{"2001:db8::4", before + " [2001:db8::4]:30450 [2001:db8::4]:7000"},
	} {
		if step.from != "" {
			d.Called(identity.ID{1}, netip.MustParseAddr(step.from))
			d.Called(identity.ID{2}, netip.MustParseAddr(step.from)) // which is no Peer yet, for the watch is late
		}
		if all := d.All(); len(all) != 1 || strings.Join(all[0].Addresses, " ") != step.want {
			t.Errorf("from %q: %v, want %s", step.from, all, step.want)
		}
	}
	late := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: identity.ID{2}.String(), Endpoints: []string{"192.0.2.9:6450"}}}
	d.SetPeers([]*v1alpha1.Peer{late})
	if got := strings.Join(d.All()[0].Addresses, " "); got != "192.0.2.9:6450 [2001:db8::4]:6450" {
		t.Error(got)
	}
	if len(d.called) != 1 {
		t.Errorf("who is no Peer any more is kept: %v", d.called)
	}
}

// crowd is a finder that has seen many, and then those that it is told of.
type crowd struct {
	many int
	more chan string
}

func (crowd) String() string { return "crowd" }

func (c crowd) Run(ctx context.Context, events chan<- discovery.Event) error {
	say := func(name string) {
		var id identity.ID
		copy(id[:], "crowd"+name)
		events <- discovery.Event{Sighting: discovery.Sighting{Name: name, ID: id, Source: discovery.LANSource, Seen: time.Now()}}
	}
	for i := range c.many {
		say(fmt.Sprintf("laptop%03d", i))
	}
	for {
		select {
		case name := <-c.more:
			say(name)
		case <-ctx.Done():
			return nil
		}
	}
}

// In a crowd each laptop keeps in contact with its peers and some others, the same as long as these may answer: with all, they would be as many as
// the crowd's square.
func TestNotAllOfACrowdAreContacted(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	seen := crowd{maxNeighbours + 20, make(chan string)}
	table := discovery.NewTable(log, seen)
	contacts := peering.NewContacts(peering.ContactsConfig{Identity: me, Log: log})
	d := New(me, contacts, table, log)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { _ = table.Run(ctx) })
	until := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(table.Snapshot()) != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d were seen", len(table.Snapshot()))
			}
		}
	}
	until(seen.many)
	d.aim()
	before := contacts.Snapshot()
	if len(before) != maxNeighbours || len(d.All()) != seen.many {
		t.Errorf("%d of %d are contacted", len(before), len(d.All()))
	}
	seen.more <- "aaron" // who would be the first
	until(seen.many + 1)
	d.aim()
	if now := contacts.Snapshot(); !slices.EqualFunc(before, now, func(a, b peering.Contact) bool { return a.ID == b.ID }) {
		t.Error("others are contacted because somebody came")
	}
	var last identity.ID
	copy(last[:], fmt.Sprintf("crowdlaptop%03d", seen.many-1))
	d.SetPeers([]*v1alpha1.Peer{{Spec: v1alpha1.PeerSpec{ID: last.String(), Endpoints: []string{"192.0.2.1:6450"}}}})
	d.aim()
	if now := contacts.Snapshot(); len(now) != maxNeighbours+1 || now[0].ID != last {
		t.Errorf("%d are contacted, and the peer is not the first", len(now))
	}

	// The first of them do not answer: somebody announced what is not there. They make room for those who were not tried.
	talk, hangUp := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	talking.Go(func() { _ = contacts.Run(talk) })
	silent := func() (n int) {
		for _, c := range contacts.Snapshot() {
			if c.State == presence.Unreachable {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); silent() < maxNeighbours+1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of those that have no address are unreachable", silent())
		}
	}
	d.aim()
	if now := contacts.Snapshot(); now[1].Name != "aaron" || len(now) != maxNeighbours+1 {
		t.Errorf("%d are contacted, %s first", len(now), now[1].Name)
	}
	hangUp()
	talking.Wait()
	cancel()
	running.Wait()
}

package discovery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestMerge(t *testing.T) {
	bob, carol := testID("bob"), testID("carol")
	lan := func(name string, s Sighting) Sighting { s.Name, s.Source = name, LANSource; return s }
	for _, c := range []struct {
		name string
		in   []Sighting
		want []Found
	}{
		{"nothing", nil, nil},
		{"one ID of two sources is one cluster, named by itself",
			[]Sighting{
				{Name: "bob.example", ID: bob, Source: DNSSource, Addresses: ports("192.0.2.7:6450"), Seen: at(3)},
				lan("bob", Sighting{ID: bob, Addresses: ports("192.168.77.2:6450"), Seen: at(2)}),
			},
			[]Found{{ID: bob, Name: "bob", Sources: []Source{DNSSource, LANSource}, Seen: at(3),
				Addresses: ports("192.168.77.2:6450", "192.0.2.7:6450")}}},
		{"a link-local address is of use where its LAN has no other, whatever a domain says",
			[]Sighting{
				lan("bob", Sighting{ID: bob, Addresses: ports("[fe80::2%eth0]:6450")}),
				{Name: "bob.example", ID: bob, Source: DNSSource, Addresses: ports("192.0.2.7:6450")},
				lan("carol", Sighting{ID: carol, Addresses: ports("[fd00::3]:6450", "[fe80::3%eth0]:6450")}),
			},
			[]Found{
				{ID: bob, Name: "bob", Sources: []Source{DNSSource, LANSource}, Addresses: ports("[fe80::2%eth0]:6450", "192.0.2.7:6450")},
				{ID: carol, Name: "carol", Sources: []Source{LANSource}, Addresses: ports("[fd00::3]:6450")},
			}},
		{"what two domains say of one ID is joined",
			[]Sighting{
				{Name: "bob", ID: bob, Source: DNSSource, Addresses: ports("192.0.2.7:6450"), Seen: at(3)},
				{Name: "bob", ID: bob, Source: DNSSource, Addresses: ports("192.0.2.9:6450", "192.0.2.7:6450"), Seen: at(2)},
			},
			[]Found{{ID: bob, Name: "bob", Sources: []Source{DNSSource}, Seen: at(3), Addresses: ports("192.0.2.7:6450", "192.0.2.9:6450")}}},
		{"two IDs of one name are two",
			[]Sighting{lan("bob", Sighting{ID: bob}), lan("bob", Sighting{ID: carol})},
			sortedByID(Found{ID: bob, Name: "bob", Sources: []Source{LANSource}}, Found{ID: carol, Name: "bob", Sources: []Source{LANSource}})},
		{"an address announced with one ID says nothing of the other that has it",
			[]Sighting{
				lan("mallory", Sighting{ID: carol, Addresses: ports("192.0.2.7:6450")}),
				{Name: "lab.example", ID: bob, Source: DNSSource, Addresses: ports("192.0.2.7:6450")},
			},
			[]Found{
				{ID: bob, Name: "lab.example", Sources: []Source{DNSSource}, Addresses: ports("192.0.2.7:6450")},
				{ID: carol, Name: "mallory", Sources: []Source{LANSource}, Addresses: ports("192.0.2.7:6450")},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 10 { // in whatever order the finders came
				rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
				if got := merge(c.in); !reflect.DeepEqual(got, c.want) {
					t.Fatalf("got  %+v\nwant %+v", got, c.want)
				}
			}
		})
	}
}

func sortedByID(a, b Found) []Found {
	if string(a.ID[:]) > string(b.ID[:]) {
		a, b = b, a
	}
	return []Found{a, b}
}

// script is a finder that plays its part: each Run is one of its scenes.
type script struct {
	scenes []func(ctx context.Context, events chan<- Event) error
	starts []time.Time
}

func (s *script) String() string { return "script" }
func (s *script) Run(ctx context.Context, events chan<- Event) error {
	scene := s.scenes[min(len(s.starts), len(s.scenes)-1)]
	s.starts = append(s.starts, time.Now())
	return scene(ctx, events)
}

func sees(names ...string) func(context.Context, chan<- Event) error {
	return func(ctx context.Context, events chan<- Event) error {
		for _, n := range names {
			events <- Event{Sighting: Sighting{Name: n, ID: testID(n), Source: LANSource}}
		}
		<-ctx.Done()
		return nil
	}
}

func names(found []Found) (out []string) {
	for _, f := range found {
		out = append(out, f.Name)
	}
	return out
}

func TestTableFollowsItsFinders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		next := make(chan Event)
		table := NewTable(slog.New(slog.DiscardHandler), &script{scenes: []func(context.Context, chan<- Event) error{sees("carol")}},
			&script{scenes: []func(context.Context, chan<- Event) error{func(ctx context.Context, events chan<- Event) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case e := <-next:
						events <- e
					}
				}
			}}})
		done := make(chan error)
		go func() { done <- table.Run(ctx) }()
		synctest.Wait()
		changed := table.Changed()
		if got := names(table.Snapshot()); !reflect.DeepEqual(got, []string{"carol"}) {
			t.Errorf("%v", got)
		}

		bob := Event{Sighting: Sighting{Name: "bob", ID: testID("bob"), Source: DNSSource}}
		for i := range 100 {
			bob.Seen = at(time.Duration(i))
			next <- bob
		}
		synctest.Wait()
		<-changed
		changed = table.Changed()
		if got := table.Snapshot(); len(got) != 2 || !got[0].Seen.Equal(at(99)) {
			t.Errorf("%+v", got)
		}
		select {
		case <-changed:
			t.Error("a look is told as a change")
		default:
		}
		bob.Gone = true
		next <- bob
		synctest.Wait()
		<-changed
		if got := names(table.Snapshot()); !reflect.DeepEqual(got, []string{"carol"}) {
			t.Errorf("%v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAFailingFinderStartsAgainEverLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		fails := func(_ context.Context, events chan<- Event) error {
			events <- Event{Sighting: Sighting{Name: "bob", ID: testID("bob")}}
			time.Sleep(time.Second)
			return errors.New("port taken")
		}
		scenes := []func(context.Context, chan<- Event) error{fails, fails, fails, fails, sees("dave")}
		failing := &script{scenes: scenes}
		table := NewTable(slog.New(slog.DiscardHandler), failing, &script{scenes: []func(context.Context, chan<- Event) error{sees("carol")}})
		done := make(chan error)
		go func() { done <- table.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		if got := names(table.Snapshot()); !reflect.DeepEqual(got, []string{"carol"}) {
			t.Errorf("after its failure: %v", got)
		}
		time.Sleep(10 * time.Minute)
		if got := names(table.Snapshot()); !reflect.DeepEqual(got, []string{"carol", "dave"}) {
			t.Errorf("after its recovery: %v", got)
		}
		for i := 1; i < len(failing.starts); i++ {
			least := time.Second + time.Second<<(i-1)
			if gap := failing.starts[i].Sub(failing.starts[i-1]); gap < least || gap > 2*least {
				t.Errorf("start %d after %v", i, gap)
			}
		}
		cancel()
		<-done
	})
}

package catalogue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/listing"
)

// provider lists itself, and counts how often it is asked.
type provider struct {
	who   *identity.Identity
	lists func() (listing.Signed, error)
	asked int
}

type market struct {
	t         *testing.T
	now       time.Time
	providers []*provider
	log       bytes.Buffer
	*Catalogue
}

// newMarket has so many providers, which all list themselves.
func newMarket(t *testing.T, n int) *market {
	m := &market{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	for i := range n {
		who, err := identity.Load(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		p := &provider{who: who}
		p.lists = func() (listing.Signed, error) { return m.listing(who, who, fmt.Sprint(i+1)), nil }
		m.providers = append(m.providers, p)
	}
	slices.SortFunc(m.providers, func(a, b *provider) int {
		x, y := a.who.ID(), b.who.ID()
		return bytes.Compare(x[:], y[:])
	})
	m.Catalogue = New(func() (all []Provider) {
		for _, p := range m.providers {
			all = append(all, Provider{ID: p.who.ID(), Addresses: []string{"192.0.2.7:6450"}, Ask: func(context.Context) (listing.Signed, error) {
				p.asked++
				return p.lists()
			}})
		}
		return all
	}, func() time.Time { return m.now }, slog.New(slog.NewTextHandler(&m.log, nil)))
	return m
}

// listing is what one says of another, or of himself.
func (m *market) listing(of, by *identity.Identity, cpu string) listing.Signed {
	return m.listingOf(of, by, cpu, m.now)
}

func (m *market) listingOf(of, by *identity.Identity, cpu string, at time.Time) listing.Signed {
	m.t.Helper()
	s, err := listing.Sign(listing.Document{
		Version: listing.Version, Provider: contract.Party{ID: of.ID(), Name: "p", Key: of.Public()}, Resources: map[string]string{"cpu": cpu},
		Created: at, NotAfter: at.Add(15 * time.Minute),
	}, by)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// Call is what a peer would get by the wire.
func (m *market) Call(ctx context.Context, _, path string, _, out any) error {
	at, err := url.Parse(path)
	if err != nil {
		return err
	}
	after, err := After(at.Query())
	if err != nil {
		return err
	}
	text, err := json.Marshal(m.Page(ctx, identity.ID{1}, after))
	if err != nil {
		return err
	}
	if len(text) > 64<<10 {
		m.t.Errorf("a page of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, out); err != nil {
		return err
	}
	return out.(*Page).Validate()
}

func (m *market) read() []Found {
	m.t.Helper()
	all, err := Read(m.t.Context(), m, m.now)
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// Whoever looks sees all, over as many pages as that takes; and nobody is asked more than once a minute, however many look.
func TestAllThatListThemselvesAreShown(t *testing.T) {
	m := newMarket(t, 100)
	for range 3 {
		if all := m.read(); len(all) != 100 || all[7].Provider.ID != m.providers[7].who.ID() || all[7].Addresses[0] != "192.0.2.7:6450" {
			t.Fatalf("%d are shown", len(all))
		}
	}
	if n := m.providers[0].asked; n != 1 {
		t.Errorf("asked %d times", n)
	}
	m.now = m.now.Add(askAgain)
	m.read()
	if n := m.providers[0].asked; n != 2 {
		t.Errorf("asked %d times a minute later", n)
	}
	if all := m.Page(t.Context(), m.providers[0].who.ID(), identity.ID{}).Entries; len(all) > 0 {
		if d, _ := all[0].Listing.Verify(); d.Provider.ID == m.providers[0].who.ID() {
			t.Error("who looks is shown itself")
		}
	}
}

// Who hangs up has nobody asked once more.
func TestWhoHangsUpHasNobodyAskedAgain(t *testing.T) {
	m := newMarket(t, 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		m.Page(gone, identity.ID{1}, identity.ID{})
	}
	if n := m.providers[0].asked; n != 1 {
		t.Errorf("asked %d times", n)
	}
	if all := m.read(); len(all) != 2 {
		t.Errorf("%d are shown", len(all))
	}
}

// Who does not answer stays listed until its word runs out; who lists itself no more is gone a minute later, and who is no peer any more at once.
func TestWhoListsItselfNoMoreIsNotShown(t *testing.T) {
	m := newMarket(t, 3)
	m.read()
	asleep, gone := m.providers[0], m.providers[1]
	asleep.lists = func() (listing.Signed, error) { return listing.Signed{}, errors.New("no answer") }
	gone.lists = func() (listing.Signed, error) {
		return listing.Signed{}, peering.Refuse(peering.CodeNotFound, "nothing", "")
	}
	m.now = m.now.Add(askAgain)
	if all := m.read(); len(all) != 2 || all[0].Provider.ID != asleep.who.ID() {
		t.Errorf("%d are shown", len(all))
	}
	m.now = m.now.Add(15 * time.Minute)
	if all := m.read(); len(all) != 1 || all[0].Provider.ID != m.providers[2].who.ID() {
		t.Errorf("%d are shown when its word ran out", len(all))
	}
	m.providers = m.providers[:2]
	if all := m.read(); len(all) != 0 {
		t.Errorf("%d are shown, none of them is a peer", len(all))
	}
}

// A provider lists itself, for now, and nobody else.
func TestNobodyListsAnother(t *testing.T) {
	for name, lists := range map[string]func(m *market) listing.Signed{
		"another": func(m *market) listing.Signed { return m.listing(m.providers[1].who, m.providers[1].who, "64") },
		"forged": func(m *market) listing.Signed {
			s := m.listing(m.providers[0].who, m.providers[0].who, "2")
			s.Document = bytes.Replace(s.Document, []byte(`"2"`), []byte(`"9"`), 1)
			return s
		},
		"old": func(m *market) listing.Signed {
			return m.listingOf(m.providers[0].who, m.providers[0].who, "2", m.now.Add(-time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, 2)
			m.providers[0].lists = func() (listing.Signed, error) { return lists(m), nil }
			if all := m.read(); len(all) != 1 || all[0].Provider.ID != m.providers[1].who.ID() || all[0].Resources["cpu"] == "64" {
				t.Errorf("%+v", all)
			}
			if !bytes.Contains(m.log.Bytes(), []byte("cannot be shown")) {
				t.Error("nothing is said of it")
			}
		})
	}
}

// liar is a catalogue that answers what it likes.
type liar func(n int) Page

func (l liar) Call(_ context.Context, _, path string, _, out any) error {
	n := 0
	if _, query, some := bytes.Cut([]byte(path), []byte("?")); some {
		n = len(query)
	}
	*out.(*Page) = l(n)
	return out.(*Page).Validate()
}

// A catalogue that makes things up is not believed, and one without end ends.
func TestACatalogueThatLies(t *testing.T) {
	m := newMarket(t, 2)
	first, second := m.listing(m.providers[0].who, m.providers[0].who, "1"), m.listing(m.providers[1].who, m.providers[1].who, "2")
	at := []string{"192.0.2.7:6450"}
	forged := first
	forged.Document = bytes.Replace(first.Document, []byte(`"1"`), []byte(`"9"`), 1)
	for name, page := range map[string]Page{
		"forged":          {Entries: []Entry{{forged, at}}},
		"twice":           {Entries: []Entry{{first, at}, {first, at}}},
		"out of order":    {Entries: []Entry{{second, at}, {first, at}}},
		"without end":     {Entries: []Entry{{first, at}}, More: true},
		"more of nothing": {More: true},
		"nowhere":         {Entries: []Entry{{first, nil}}},
		"at ourselves":    {Entries: []Entry{{first, []string{"127.0.0.1:6443"}}}},
		"on our link":     {Entries: []Entry{{first, []string{"[fe80::1%eth0]:6450"}}}},
		"no address":      {Entries: []Entry{{first, []string{"metadata.internal:80"}}}},
	} {
		if all, err := Read(t.Context(), liar(func(int) Page { return page }), m.now); err == nil {
			t.Errorf("%s: %d are taken", name, len(all))
		}
	}
	if all, err := Read(t.Context(), liar(func(int) Page { return Page{Entries: []Entry{{first, at}, {second, at}}} }), m.now); err != nil || len(all) != 2 {
		t.Errorf("%d, %v", len(all), err)
	}
}

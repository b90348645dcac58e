package location

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
)

// fakeNames answers for every name.
type fakeNames struct {
	places []dns.Place
	err    error
	asked  []dns.Name
}

func (f *fakeNames) Find(_ context.Context, n dns.Name) ([]dns.Place, error) {
	f.asked = append(f.asked, n)
	return f.places, f.err
}

// TestWhereANameLeads: what `kith peer add` dials, and whom it takes there; or what it says.
func TestWhereANameLeads(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bob, carol := identity.ID{1, 2, 3}, identity.ID{9}
	place := func(host string, id identity.ID, addresses ...string) dns.Place {
		p := dns.Place{Host: host, ID: id}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, netip.MustParseAddrPort(a))
		}
		return p
	}
	for name, c := range map[string]struct {
		ref       string
		places    []dns.Place
		err       error
		addresses []string
		follow    string
		id        identity.ID
		says      string
	}{
		"an address":             {ref: "192.0.2.7", addresses: []string{"192.0.2.7:6450"}},
		"an address with a port": {ref: "[2001:db8::1]:7000", addresses: []string{"[2001:db8::1]:7000"}},
		"one cluster, two hosts": {ref: "Corp.example", places: []dns.Place{place("a", bob, "192.0.2.7:1"), place("b", bob, "192.0.2.8:2")}, addresses: []string{"192.0.2.7:1", "192.0.2.8:2"}, follow: "corp.example", id: bob},
		"whose is not said":      {ref: "corp.example:80", places: []dns.Place{place("a", identity.ID{}, "192.0.2.7:80")}, addresses: []string{"192.0.2.7:80"}, follow: "corp.example:80"},
		"two hosts of nobody":    {ref: "corp.example", places: []dns.Place{place("a", identity.ID{}, "192.0.2.7:1"), place("b", identity.ID{}, "192.0.2.8:2")}, addresses: []string{"192.0.2.7:1"}, follow: "corp.example"},
		"one said, one not":      {ref: "corp.example", places: []dns.Place{place("a", identity.ID{}, "192.0.2.7:1"), place("b", bob, "192.0.2.8:2")}, addresses: []string{"192.0.2.8:2"}, follow: "corp.example", id: bob},
		"this one and another":   {ref: "corp.example", places: []dns.Place{place("a", me.ID(), "192.0.2.7:1"), place("b", bob, "192.0.2.8:2")}, addresses: []string{"192.0.2.8:2"}, follow: "corp.example", id: bob},
		"this one":               {ref: "corp.example", places: []dns.Place{place("a", me.ID(), "192.0.2.7:1")}, says: "this one answers there"},
		"several clusters":       {ref: "corp.example", places: []dns.Place{place("a.corp.example", bob, "192.0.2.7:1"), place("b.corp.example", carol, "192.0.2.8:2")}, says: "names several clusters: a.corp.example (" + bob.Short() + "), b.corp.example (" + carol.Short() + ")"},
		"nowhere":                {ref: "nowhere.invalid", err: &dns.NotFoundError{Asked: []string{"SRV x: none"}}, says: "leads to no address: SRV x: none"},
		"nobody answers":         {ref: "nowhere.invalid", err: &dns.NotFoundError{Asked: []string{"SRV x: no answer"}, Silent: true}, says: "could not be looked up: SRV x: no answer"},
		"there is none":          {ref: "localhost", err: &dns.NotFoundError{Refused: true}, says: "no cluster is there"},
		"this machine has it":    {ref: "localhost", err: &dns.NotFoundError{Asked: []string{"A localhost: none"}}, addresses: []string{"localhost:6450"}},
		"no name":                {ref: "a b", says: "SRV records"},
		"a mistyped address":     {ref: "10.0.0.300", says: "SRV records"},
		"a port that is none":    {ref: "corp.example:0", says: "SRV records"},
		"an address of no link":  {ref: "[fe80::1%nosuch]:6450", says: "with the interface of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			names := &fakeNames{places: c.places, err: c.err}
			to, err := Finder{Names: names, Me: me.ID(), Port: 6450}.Find(t.Context(), c.ref)
			if c.says != "" {
				var e *api.Error
				if !errors.As(err, &e) || !strings.Contains(e.Error(), c.says) || e.Do == "" && e.Code != api.CodeInvalid {
					t.Errorf("%v, want %s", err, c.says)
				}
				return
			}
			if err != nil || !slices.Equal(to.Addresses, c.addresses) || to.Name != c.follow || to.ID != c.id {
				t.Errorf("%+v, %v", to, err)
			}
		})
	}
}

// TestAnotherKeyThanTheZoneSays is refused, with words on what to compare.
func TestAnotherKeyThanTheZoneSays(t *testing.T) {
	to := Location{Ref: "corp.example", Name: "corp.example", ID: identity.ID{1}, Addresses: []string{"192.0.2.7:6450"}}
	e := to.Unreachable(&identity.MismatchError{Want: identity.ID{1}, Got: identity.ID{2}})
	if !strings.Contains(e.Message, "corp.example was refused") || !strings.Contains(e.Do, "TXT record") {
		t.Errorf("%+v", e)
	}
}

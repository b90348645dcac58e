package link

import (
	"net/netip"
	"slices"
	"testing"

	"kith.dev/core/net/netplan"
)

func prefix(s string) (p netip.Prefix) {
	if s != "" {
		p = netip.MustParsePrefix(s)
	}
	return p
}

func prefixes(list ...string) (ps []netip.Prefix) {
	for _, s := range list {
		ps = append(ps, prefix(s))
	}
	return ps
}

func TestARangeForGuestsIsNamed(t *testing.T) {
	const first, second, third = "10.64.0.0/10", "172.16.0.0/12", "100.64.0.0/10"
	for _, c := range []struct {
		what                string
		agreed, named, said string
		refused             []string
		held                bool
		taken               []string
		owner               bool
		want                string // the range, or the block that it lies in
	}{
		{what: "at first", want: first},
		{what: "what the peer says is free", said: "10.70.0.0/24", want: "10.70.0.0/24"},
		{what: "it says another than this side did, which is free too", named: "10.64.3.0/24", said: "10.70.0.0/24", want: "10.70.0.0/24"},
		{what: "an office behind the router, of which no route tells", said: "172.20.5.0/24", want: second},
		{what: "it insists", named: "10.64.3.0/24", refused: []string{"10.64.3.0/24", "172.19.1.0/24", "100.64.3.0/24"}, said: "172.20.5.0/24", want: second},
		{what: "it is in a pool that the owner chose", owner: true, said: "172.20.5.0/24", want: "172.20.5.0/24"},
		{what: "it is ours", named: "172.20.5.0/24", said: "172.20.5.0/24", want: "172.20.5.0/24"},
		{what: "the first block is full", said: "172.20.5.0/24", taken: []string{first}, want: "172.20.5.0/24"},
		{what: "what the peer says is in use", said: "10.70.0.0/24", taken: []string{"10.70.0.0/16"}, want: first},
		{what: "it is in use, and the peer refused a second", named: "172.20.5.0/24", said: "10.70.0.0/24", taken: []string{"10.64.0.0/10"}, want: third},
		{what: "it is in use, and the peer refused before", refused: []string{"172.20.5.0/24"}, said: "10.70.0.0/24", taken: []string{"10.64.0.0/10"}, want: third},
		{what: "the peer has no room in our first", named: "10.64.3.0/24", said: "100.64.3.0/24", want: third},
		{what: "all blocks were refused, not all that is in them", refused: []string{"172.20.5.0/24", "100.64.0.0/24", "10.64.3.0/24"}, want: first},
		{what: "the peer says nothing, this side did before", named: "10.99.1.0/24", want: "10.99.1.0/24"},
		{what: "the peer says nothing, both agreed before", agreed: "10.99.1.0/24", want: "10.99.1.0/24"},
		{what: "both agreed, the peer says so again", agreed: "10.99.1.0/24", said: "10.99.1.0/24", want: "10.99.1.0/24"},
		{what: "both agreed, this laptop came to that network", agreed: "10.99.1.0/24", taken: []string{"10.99.0.0/16"}, want: first},
		{what: "so did this one, and guests have the addresses", agreed: "10.99.1.0/24", held: true, taken: []string{"10.99.0.0/16"}, want: "10.99.1.0/24"},
		{what: "the peer did", agreed: "10.99.1.0/24", said: "10.70.0.0/24", want: "10.70.0.0/24"},
		{what: "the peer did, and guests have the addresses", agreed: "10.99.1.0/24", said: "172.20.5.0/24", held: true, want: "10.99.1.0/24"},
		{what: "this laptop did, and the peer stands by it", agreed: "10.99.1.0/24", named: "172.20.5.0/24", said: "10.99.1.0/24", taken: []string{"10.99.0.0/16"}, want: "10.99.1.0/24"},
		{what: "a network behind the router, of which no route tells", said: "192.168.77.0/24", want: first},
		{what: "outside of the pool", said: "10.1.0.0/24", want: first},
		{what: "the internet", said: "8.8.8.0/24", want: first},
		{what: "of another length", said: "10.64.0.0/16", want: first},
		{what: "nonsense", said: "0.0.0.0/0", want: first},
		{what: "guests have addresses of nothing, says somebody", held: true, want: first},
		{what: "nothing is free", taken: []string{first, second, third}, want: ""},
	} {
		d := direction{agreed: prefix(c.agreed), named: prefix(c.named), refused: prefixes(c.refused...)}
		r := room{prefixes(c.taken...), netplan.DefaultPool(), c.owner}
		got, err := d.name(prefix(c.said), netplan.GuestBits, c.held, r, "bob")
		if err != nil || c.want == "" {
			if (c.want == "") != (err != nil) {
				t.Errorf("%s: %s, %v", c.what, got, err)
			}
			continue
		}
		if want := prefix(c.want); !want.Contains(got.Addr()) || got.Bits() != netplan.GuestBits || d.named != got {
			t.Errorf("%s: %s (remembered as %s), want %s", c.what, got, d.named, want)
		}
		if c.said == "172.20.5.0/24" && c.want == second && got.String() == c.said {
			t.Errorf("%s: is taken", c.what)
		}
		if slices.Contains(d.refused, got) || slices.ContainsFunc(prefixes(c.refused...), got.Overlaps) {
			t.Errorf("%s: %s was refused before", c.what, got)
		}
	}
}

// TestAPeerThatIsNeverContentCostsLittle: it makes this side name others for ever, and remember few.
func TestAPeerThatIsNeverContentCostsLittle(t *testing.T) {
	var d direction
	r := room{taken: prefixes("10.42.0.0/16"), pool: netplan.DefaultPool()}
	for range 10_000 {
		if _, err := d.name(prefix("10.42.0.0/24"), netplan.GuestBits, false, r, "mallory"); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.refused) > maxRefused || cap(d.refused) > 4*maxRefused {
		t.Errorf("%d ranges are remembered, in place for %d", len(d.refused), cap(d.refused))
	}
}

// negotiate has two sides name a range in turns, as a proposal does, and gives how many messages of the first it took.
func negotiate(a, b *direction, atA, atB room, heldA, heldB bool) (p netip.Prefix, messages int) {
	var said netip.Prefix
	for n := range rounds {
		ours, err := a.name(said, netplan.GuestBits, heldA, atA, "b")
		if err != nil {
			return p, n
		}
		if said, err = b.name(ours, netplan.GuestBits, heldB, atB, "a"); err != nil {
			return p, n
		}
		if ours == said {
			a.agree(ours)
			b.agree(ours)
			return ours, n + 1
		}
	}
	return p, rounds
}

func TestTwoSidesAgree(t *testing.T) {
	pool := netplan.DefaultPool()
	for _, c := range []struct {
		what   string
		a, b   []string
		pa, pb []netip.Prefix
		most   int // messages; 0: they cannot
	}{
		{"all is free", nil, nil, pool, pool, 1},
		{"an office with 10/8 at one", []string{"10.0.0.0/8"}, nil, pool, pool, 2},
		{"at the other", nil, []string{"10.0.0.0/8"}, pool, pool, 2},
		{"a VPN that leaves one block, and Docker that takes most of the next", []string{"10.0.0.0/8"}, []string{"172.17.0.0/16", "172.18.0.0/15", "172.20.0.0/14", "172.24.0.0/13"}, pool, pool, 3},
		{"each lacks the other's first, and no owner chose a pool", []string{"10.0.0.0/8"}, []string{"172.16.0.0/12"}, pool, pool, 0},
		{"one owner did", []string{"10.0.0.0/8"}, []string{"172.16.0.0/12"}, prefixes("100.64.0.0/10"), pool, 3},
		{"one has but the last", []string{"10.0.0.0/8", "172.16.0.0/12"}, nil, pool, pool, 2},
		{"both have but the last", []string{"10.0.0.0/8", "172.16.0.0/12"}, []string{"10.0.0.0/8", "172.16.0.0/12"}, pool, pool, 1},
		{"a pool in a pool", nil, nil, prefixes("10.100.0.0/16"), pool, 2},
		{"pools with nothing in common", nil, nil, prefixes("10.128.0.0/16"), pool, 0},
		{"nothing in common that is free", []string{"10.0.0.0/8"}, []string{"172.16.0.0/12", "100.64.0.0/10"}, pool, pool, 0},
	} {
		for _, turn := range []bool{false, true} {
			a, b := room{prefixes(c.a...), c.pa, len(c.pa) == 1}, room{prefixes(c.b...), c.pb, len(c.pb) == 1}
			if turn {
				a, b = b, a
			}
			var first, second direction
			got, n := negotiate(&first, &second, a, b, false, false)
			if got.IsValid() != (c.most > 0) || got.IsValid() && n > c.most+1 {
				t.Errorf("%s: %s after %d messages", c.what, got, n)
			}
			if again, n := negotiate(&second, &first, b, a, false, false); got.IsValid() && (again != got || n != 1) {
				t.Errorf("%s: agreed on %s, then on %s after %d", c.what, got, again, n)
			}
		}
	}
}

// TestGuestsKeepTheirAddresses: as long as one side knows of some, whoever comes to a network of these addresses; without, another is agreed on.
func TestGuestsKeepTheirAddresses(t *testing.T) {
	pool := netplan.DefaultPool()
	lan := prefixes("10.64.0.0/10")
	for _, c := range []struct {
		what         string
		atA, atB     []netip.Prefix
		heldA, heldB bool
		kept         bool
	}{
		{"the proposer moved", lan, nil, false, false, false},
		{"the other did, and has not proposed yet", nil, lan, false, false, true},
		{"both did", lan, lan, false, false, false},
		{"the proposer moved and knows of guests", lan, nil, true, false, true},
		{"the proposer moved, the other knows of guests", lan, nil, false, true, true},
		{"the other moved and knows of guests", nil, lan, false, true, true},
		{"the other moved, the proposer knows of guests", nil, lan, true, false, true},
		{"both moved and know", lan, lan, true, true, true},
	} {
		was := prefix("10.99.1.0/24")
		a, b := direction{agreed: was}, direction{agreed: was}
		got, _ := negotiate(&a, &b, room{taken: c.atA, pool: pool}, room{taken: c.atB, pool: pool}, c.heldA, c.heldB)
		if c.kept != (got == was) || !got.IsValid() {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}

// FuzzTwoSidesAgree: whatever is in use at both, what they agree on is free at both; and when the first block with room of one is free at both, they do.
func FuzzTwoSidesAgree(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0, 8}, []byte{172, 16, 0, 0, 12})
	f.Add([]byte{10, 64, 0, 0, 11, 172, 16, 0, 0, 12}, []byte{10, 96, 0, 0, 11, 172, 16, 0, 0, 12})
	f.Add([]byte{}, []byte{10, 0, 0, 0, 8, 172, 17, 0, 0, 16, 172, 18, 0, 0, 15})
	f.Fuzz(func(t *testing.T, atA, atB []byte) {
		read := func(b []byte) (taken []netip.Prefix) {
			for ; len(b) >= 5 && len(taken) < 32; b = b[5:] {
				taken = append(taken, netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), 8+int(b[4])%25).Masked())
			}
			return taken
		}
		a, b := room{taken: read(atA), pool: netplan.DefaultPool()}, room{taken: read(atB), pool: netplan.DefaultPool()}
		var first, second direction
		got, n := negotiate(&first, &second, a, b, false, false)
		switch {
		case got.IsValid():
			if !netplan.Free(got, a.taken) || !netplan.Free(got, b.taken) || netplan.CheckGuests(got) != nil {
				t.Fatalf("%s beside %v and %v", got, a.taken, b.taken)
			}
		default:
			for _, block := range append(a.open(netplan.GuestBits), b.open(netplan.GuestBits)...) {
				if netplan.Free(block, a.taken) && netplan.Free(block, b.taken) {
					t.Fatalf("%s is free beside %v and %v, and not found in %d messages", block, a.taken, b.taken, n)
				}
			}
		}
	})
}

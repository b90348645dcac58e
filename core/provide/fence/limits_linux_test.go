package fence

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/test/docs"
)

// flood opens n connections of UDP from a place, each with a port of its own, and gives how many were heard, of which so many are to be. They
// stay open.
func (w *world) flood(from, source, place, to string, n, want int) int {
	w.t.Helper()
	var heard net.PacketConn
	w.in(place, func() (err error) {
		heard, err = net.ListenPacket("udp", to+":0")
		return err
	})
	defer heard.Close()
	port := heard.LocalAddr().(*net.UDPAddr).Port
	w.in(from, func() error {
		for range n {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source)}, &net.UDPAddr{IP: net.ParseIP(to), Port: port})
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			c.Close()
			if err != nil {
				return fmt.Errorf("from %s: %w", from, err)
			}
		}
		return nil
	})
	got := 0
	for buf := make([]byte, 16); got < n; got++ {
		_ = heard.SetReadDeadline(time.Now().Add(within(got < want)))
		if _, _, err := heard.ReadFrom(buf); err != nil {
			break
		}
	}
	return got
}

// few are amounts that a test can reach. The bucket fills slowly, so that what a test lets in does not depend on its pace.
var few = allowance{open: 1000, rate: 1, burst: 60, all: 1000, allAt: 1000, each: 1000, eachRate: 1000, eachAt: 1000, unknown: 1, unknownAt: 30}

// about reports whether as many were let in as the burst, and what the seconds of a slow machine bring.
func about(got int, burst uint32) bool { return got >= int(burst) && got <= int(burst)+20 }

func TestConnectionsAreOpenedNoFasterThanAllowed(t *testing.T) {
	w := newWorld(t)
	if got := w.flood("web1", web1, "web2", web2, 200, 200); got != 200 {
		t.Fatalf("without a limit, %d of 200 connections came through", got)
	}
	w.fence.allowed = few
	w.must(w.fence.Set(twoTenants()))
	if got := w.flood("web1", web1, "web2", web2, 200, int(few.burst)); !about(got, few.burst) {
		t.Errorf("%d of 200 connections of a guest came through, want %d", got, few.burst)
	}
	if got := w.flood("web2", web2, "web1", web1, 50, 0); got > 20 {
		t.Errorf("another guest of the same tenant opened %d more", got)
	}
	if got := w.flood("alice", homePod, "web1", web1, 50, 0); got > 20 {
		t.Errorf("its home opened %d more through the tunnel", got)
	}
	if got := w.flood("dora", homePod, "job", job, 200, int(few.burst)); !about(got, few.burst) {
		t.Errorf("%d of 200 connections came through the tunnel from another consumer's home, want %d", got, few.burst)
	}
	if got := w.flood("bea", beas, "own", ownPod, 200, int(few.burst)); !about(got, few.burst) {
		t.Errorf("%d of 200 connections came through the tunnel from own pods at a provider, want %d", got, few.burst)
	}
	if got := w.flood("carol", carols, "bea", beas, 200, int(few.burst)); !about(got, few.burst) {
		t.Errorf("%d of 200 connections came through the tunnel from one provider to another, want %d", got, few.burst)
	}
	if got := w.flood("own", ownPod, "web1", web1, 200, 200); got != 200 {
		t.Errorf("%d of 200 connections of the owner's pod came through", got)
	}
	if got := w.flood("host", hostLAN, "router", internet, 200, 200); got != 200 {
		t.Errorf("%d of 200 connections of this laptop came through", got)
	}
	w.expect("own", internet, open)
	var asked atomic.Int32
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if w.ask("newcomer") {
				asked.Add(1)
			}
		})
	}
	all.Wait()
	if n := int(asked.Load()); !about(n, few.unknownAt) {
		t.Errorf("a guest that nobody knows asked DNS %d times, want %d", n, few.unknownAt)
	}
}

// ask sends a question to DNS from a port of its own.
func (w *world) ask(from string) (answered bool) {
	w.in(from, func() error {
		c, err := net.Dial("udp", "10.43.0.10:53")
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * glance))
		if _, err = c.Write([]byte("hello")); err == nil {
			_, err = c.Read(make([]byte, 16))
		}
		answered = err == nil
		return nil
	})
	return answered
}

func TestOpenConnectionsAreCountedForATenant(t *testing.T) {
	w := newWorld(t)
	w.fence.allowed = allowance{open: 100, rate: 100000, burst: 100000, all: 100000, allAt: 100000, each: 1000, eachRate: 100000, eachAt: 100000, unknown: 1, unknownAt: 1}
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	const inexact = 5 // the kernel counts without a lock around the whole
	if got := w.flood("web1", web1, "web2", web2, 150, 100); got < 100 || got > 100+inexact {
		t.Errorf("%d connections are open, want 100", got)
	}
	if got := w.flood("web2", web2, "router", internet, 50, 0); got > inexact {
		t.Errorf("another guest opened %d more", got)
	}
	w.expect("web1", homePod, silent)
	w.expect("job", homePod, open)
	w.expect("own", internet, open)
	w.expect("own", web1, open)

	rel.Tenants = rel.Tenants[:1] // a peering ended: the fence is another, and nobody begins anew
	w.must(w.fence.Set(rel))
	if got := w.flood("web2", web2, "web1", web1, 50, 0); got > inexact {
		t.Errorf("after a change of peerings a guest opened %d more", got)
	}
}

// TestAGuestTakesAPartOfWhatItsPeerMay: of what may be open, and of what may be opened, the others of its tenant find the rest.
func TestAGuestTakesAPartOfWhatItsPeerMay(t *testing.T) {
	w := newWorld(t)
	many := allowance{open: 1000, rate: 100000, burst: 100000, all: 100000, allAt: 100000, each: 60, eachRate: 100000, eachAt: 100000, unknown: 1, unknownAt: 1}
	w.fence.allowed = many
	w.must(w.fence.Set(twoTenants()))
	w.must(w.fence.limited)
	const inexact = 5
	if got := w.flood("web1", web1, "web2", web2, 150, 60); got < 60 || got > 60+inexact {
		t.Errorf("%d connections of a guest are open, want 60", got)
	}
	if got := w.flood("web2", web2, "router", internet, 50, 50); got != 50 {
		t.Errorf("another guest of its tenant opened %d of 50", got)
	}
	w.expect("web1", homePod, silent)
	w.expectAs("alice", homePod, web1, "web1") // its home opens that

	w = newWorld(t)
	many.each, many.eachRate, many.eachAt = 1000, 1, 60
	w.fence.allowed = many
	w.must(w.fence.Set(twoTenants()))
	if got := w.flood("web1", web1, "web2", web2, 150, 60); !about(got, 60) {
		t.Errorf("a guest opened %d of 150 connections at once, want 60", got)
	}
	if got := w.flood("web2", web2, "router", internet, 50, 50); got != 50 {
		t.Errorf("another guest of its tenant opened %d of 50", got)
	}
}

func TestAStreamThatNobodyAnswersIsOneConnection(t *testing.T) {
	w := newWorld(t)
	w.fence.allowed = few
	w.must(w.fence.Set(twoTenants()))
	heard := w.listen("web2")
	defer heard.Close()
	const packets = 150
	w.in("web1", func() error {
		c, err := net.Dial("udp", web2+":7777")
		if err != nil {
			return err
		}
		defer c.Close()
		for range packets {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	got := 0
	for ; got < packets; got++ {
		_ = heard.SetReadDeadline(time.Now().Add(time.Minute))
		if _, _, err := heard.ReadFrom(make([]byte, 16)); err != nil {
			break
		}
	}
	if got != packets {
		t.Errorf("%d of %d packets were heard", got, packets)
	}
}

func TestLimitsComeBack(t *testing.T) {
	w := newWorld(t)
	w.fence.allowed = few
	w.must(w.fence.Raise())
	w.must(w.fence.limited) // with nobody in them
	w.must(w.fence.Set(twoTenants()))
	w.must(w.fence.limited)
	w.run()
	w.nft("delete table ip " + Limits)
	for began := time.Now(); w.flood("web1", web1, "web2", web2, 200, 0) == 200; {
		if time.Since(began) > patience {
			t.Fatal("the limits are gone")
		}
	}
	w.raise() // another process, with the table of the one before
	w.must(w.fence.Raise())
	w.must(w.fence.Set(twoTenants()))
	w.expect("web1", web2, open)
	if err := w.fence.limited; err != nil {
		t.Error(err)
	}
}

func TestThePageSaysTheseLimits(t *testing.T) {
	const closing = 120 // seconds for which a connection that was closed keeps its place
	worst := allowed.open + allowed.rate*closing + allowed.burst
	docs.Say(t, "security.md",
		fmt.Sprintf("| open at once | %d |", allowed.open),
		fmt.Sprintf("| new ones | %d a second, %d at once after a rest |", allowed.rate, allowed.burst),
		fmt.Sprintf("| all consumers and providers together, new ones | %d a second, %d at once after a rest |", allowed.all, allowed.allAt),
		fmt.Sprintf("| of one guest, open at once | %d |", allowed.each),
		fmt.Sprintf("| of one guest, new ones | %d a second, %d at once after a rest |", allowed.eachRate, allowed.eachAt),
		fmt.Sprintf("| guests that nobody knows yet, all together, new ones | %d a second, %d at once after a rest |", allowed.unknown, allowed.unknownAt),
		fmt.Sprintf("holds some %d 000 of the table", worst/1000),
	)
}

// A change of peerings that comes before the news that the table is gone: there would be none until the next change.
func TestLimitsThatAreGoneAreMadeAnewByAChange(t *testing.T) {
	w := newWorld(t)
	w.fence.allowed = few
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	w.nft("delete table ip " + Limits)
	rel.Tenants = rel.Tenants[:1]
	w.must(w.fence.Set(rel))
	w.must(w.fence.limited)
	if got := w.flood("web1", web1, "web2", web2, 200, int(few.burst)); !about(got, few.burst) {
		t.Errorf("%d of 200 connections of a guest came through, want %d", got, few.burst)
	}
}

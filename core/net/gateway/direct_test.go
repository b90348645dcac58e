package gateway

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// asking is a gateway of which only the direct ways live, and a clock.
type asking struct {
	*testing.T
	g    *Gateway
	p    *directWay
	now  time.Time
	next time.Time
	sent int // questions
}

func newAsking(t *testing.T) *asking {
	p := &directWay{Direct: Direct{ID: "carol", Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6450")}}, pause: askEvery, mtu: DefaultMTU}
	p.way.Wake = func() {}
	a := &asking{T: t, g: &Gateway{peers: map[string]*route{"alice": {direct: []*directWay{p}}}}, p: p, now: time.Unix(1e9, 0)}
	p.used = a.now.Add(-time.Hour)
	return a
}

func (a *asking) look() {
	ask, next, _ := a.g.look(a.now)
	a.sent, a.next = a.sent+len(ask), next
}

// use has packets go by the way for a time, with or without answers to what is asked.
func (a *asking) use(d time.Duration, answered bool) {
	for end := a.now.Add(d); a.now.Before(end); a.now = a.now.Add(100 * time.Millisecond) {
		a.p.used = a.now
		if answered && a.sent > 0 {
			a.p.way.Answered.Store(a.p.asked)
		}
		a.look()
	}
}

func (a *asking) wants(up bool, questions int) {
	a.Helper()
	if got := a.p.way.Up.Load(); got != up || a.sent != questions {
		a.Errorf("up %v after %d questions, want %v after %d", got, a.sent, up, questions)
	}
	a.sent = 0
}

func TestAWayIsAskedWhileItIsUsed(t *testing.T) {
	a := newAsking(t)
	a.look()
	a.wants(false, 0)
	if !a.next.IsZero() {
		t.Error("a way that nobody wants has a timer")
	}
	a.use(100*time.Millisecond, true)
	a.wants(false, 1)
	a.p.way.Answered.Store(a.p.asked)
	a.use(100*time.Millisecond, true)
	a.wants(true, 0)
	a.use(10*time.Second, true)
	a.wants(true, 10)
	// Used no more: after its last question it has none, and is down in the end.
	for ; a.now.Before(a.p.used.Add(calm)); a.now = a.now.Add(100 * time.Millisecond) {
		a.p.way.Answered.Store(a.p.asked)
		a.look()
	}
	if a.sent > unanswered+1 {
		t.Errorf("%d questions about a way that nobody uses", a.sent)
	}
	if a.sent = 0; !a.next.Equal(a.p.used.Add(calm)) {
		t.Errorf("the next look is at %s, want %s", a.next, a.p.used.Add(calm))
	}
	a.now = a.now.Add(time.Second)
	a.look()
	a.wants(false, 0)
	if !a.next.IsZero() {
		t.Error("it has a timer still")
	}
	// Used again: what was answered then says nothing about now.
	a.p.used = a.now
	a.look()
	a.wants(false, 1)
}

func TestAWayThatDoesNotAnswerIsAskedLessAndLess(t *testing.T) {
	a := newAsking(t)
	a.use(100*time.Millisecond, true)
	a.use(2*time.Second, true)
	a.sent = 0
	was := a.now
	for a.p.way.Up.Load() {
		a.use(100*time.Millisecond, false)
	}
	if took := a.now.Sub(was); took > (unanswered+1)*askEvery {
		t.Errorf("packets go by home after %s", took)
	}
	a.sent = 0
	a.use(time.Minute, false)
	if a.sent < 5 || a.sent > 9 {
		t.Errorf("%d questions in a minute without an answer", a.sent)
	}
	a.use(100*time.Millisecond, true)
	a.use(100*time.Millisecond, true)
	if !a.p.way.Up.Load() {
		t.Error("an answer does not bring it up")
	}
}

func TestHandlesOfDirectWays(t *testing.T) {
	var keys [3]Key
	for i := range keys {
		k, err := GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = k.Public()
	}
	block := netip.MustParsePrefix("240.0.0.0/12")
	var all []netip.Addr
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		h := directHandle(keys[order[0]], keys[order[1]], keys[order[2]])
		if !block.Contains(h) || slices.Contains(all, h) {
			t.Errorf("%s is not in %s, or one of %v", h, block, all)
		}
		all = append(all, h)
	}
}

// TestTwoWaysWithOneHandle: the first has it, and the other's packets go by home.
func TestTwoWaysWithOneHandle(t *testing.T) {
	h := netip.MustParseAddr("240.0.0.9")
	one, two := &directWay{handle: h}, &directWay{handle: h}
	g := &Gateway{peers: map[string]*route{"alice": {direct: []*directWay{one}}, "dave": {direct: []*directWay{two}}}}
	g.shareHandles()
	if one.taken || !two.taken || len(g.peers["alice"].ways()) != 1 || len(g.peers["dave"].ways()) != 0 {
		t.Errorf("alice's is taken: %v, dave's: %v", one.taken, two.taken)
	}
	delete(g.peers, "alice")
	g.shareHandles()
	if two.taken {
		t.Error("dave's does not get it when it is free")
	}
}

package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

var guestRange = netip.MustParsePrefix("10.127.0.0/24")

// clock is a time that stands still until it is moved.
type clock struct{ at time.Time }

func limitsAt(c *clock) (*limits, *strings.Builder) {
	var said strings.Builder
	l := newLimits(slog.New(slog.NewTextHandler(&said, nil)))
	l.now = func() time.Time { return c.at }
	return l, &said
}

func ask(t *testing.T, h plugin.Handler, from string) int {
	t.Helper()
	a := &client{from: from}
	if _, err := h.ServeDNS(t.Context(), a, new(dns.Msg).SetQuestion("example.org.", dns.TypeA)); err != nil || a.got == nil {
		t.Fatalf("%s: %v %v", from, a.got, err)
	}
	return a.got.Rcode
}

func TestAGuestThatFloodsDNSIsRefusedAndNobodyElse(t *testing.T) {
	now := &clock{time.Now()}
	l, said := limitsAt(now)
	h := limited{next: cluster(t), isGuest: guestRange.Contains, limits: l}
	for i := range questionsAtOnce {
		if code := ask(t, h, "10.127.0.130"); code != dns.RcodeSuccess {
			t.Fatalf("question %d: %s", i, dns.RcodeToString[code])
		}
	}
	for range 1000 {
		if code := ask(t, h, "10.127.0.130"); code != dns.RcodeRefused {
			t.Fatalf("one too many: %s", dns.RcodeToString[code])
		}
	}
	for _, other := range []string{"10.127.0.131", "10.42.0.5", "10.42.255.1", "127.0.0.1"} {
		if code := ask(t, h, other); code != dns.RcodeSuccess {
			t.Errorf("%s: %s", other, dns.RcodeToString[code])
		}
	}
	for range 1000 { // the owner's own pods may ask what they like
		if code := ask(t, h, "10.42.0.5"); code != dns.RcodeSuccess {
			t.Fatalf("the owner's pod: %s", dns.RcodeToString[code])
		}
	}
	now.at = now.at.Add(time.Second)
	for range questionsPerSecond {
		if code := ask(t, h, "10.127.0.130"); code != dns.RcodeSuccess {
			t.Fatalf("a second later: %s", dns.RcodeToString[code])
		}
	}
	if n := strings.Count(said.String(), "\n"); n != 1 || !strings.Contains(said.String(), "10.127.0.130") {
		t.Errorf("%d lines were logged: %s", n, said)
	}
}

// A client that opens a connection for each of a hundred requests in a second asks eight times as many questions.
func TestAGuestMayAskForServicesOften(t *testing.T) {
	now := &clock{time.Now()}
	l, _ := limitsAt(now)
	guests := []netip.Addr{netip.MustParseAddr("10.127.0.130"), netip.MustParseAddr("10.127.0.131")}
	ask := func(guest netip.Addr, name string) bool {
		done, ok := l.enter(guest, name)
		if ok {
			done()
		}
		return ok
	}
	for i := range servicesAtOnce {
		name := []string{"web.shop-x.svc.cluster.local.", "WEB.shop.svc.cluster.local.svc.Cluster.Local."}[i%2]
		if !ask(guests[0], name) {
			t.Fatalf("question %d for a service is refused", i)
		}
	}
	for _, name := range []string{"web.shop-x.svc.cluster.local.", "cluster.local."} {
		if ask(guests[0], name) {
			t.Errorf("one too many of %s", name)
		}
	}
	if !ask(guests[0], "example.org.") {
		t.Error("names of services count as others, too")
	}
	for i := range questionsAtOnce {
		if got := ask(guests[1], "10-127-0-131.shop-x.pod.cluster.local."); !got {
			t.Fatalf("question %d for a pod is refused", i)
		}
	}
	if ask(guests[1], "10-127-0-131.shop-x.pod.cluster.local.") || ask(guests[1], "cluster.local.example.org.") {
		t.Error("names of pods, which are looked up, count as those of services")
	}
	now.at = now.at.Add(time.Minute)
	asked := 0
	for i := range 3 * servicesOfAllGuests / servicesAtOnce {
		guest := netip.AddrFrom4([4]byte{10, 42, 255, byte(140 + i)})
		for range servicesAtOnce {
			if ask(guest, "web.shop-x.svc.cluster.local.") {
				asked++
			}
		}
	}
	if asked != servicesOfAllGuests {
		t.Errorf("%d of all guests together, want %d", asked, servicesOfAllGuests)
	}
}

// TestQuestionsUnderWayAreFew: a server that never answers holds each question for seconds.
func TestQuestionsUnderWayAreFew(t *testing.T) {
	l, _ := limitsAt(&clock{time.Now()})
	hang, arrived := make(chan struct{}), make(chan struct{})
	h := limited{isGuest: guestRange.Contains, limits: l, next: plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		arrived <- struct{}{}
		<-hang
		return 0, w.WriteMsg(new(dns.Msg).SetReply(r))
	})}
	ended := make(chan struct{})
	for range questionsUnderWay {
		go func() {
			_, _ = h.ServeDNS(t.Context(), &client{from: "10.127.0.130"}, new(dns.Msg).SetQuestion("slow.example.", dns.TypeA))
			ended <- struct{}{}
		}()
		<-arrived
	}
	if code := ask(t, h, "10.127.0.130"); code != dns.RcodeRefused {
		t.Errorf("one more than may be under way: %s", dns.RcodeToString[code])
	}
	close(hang)
	for range questionsUnderWay {
		<-ended
	}
	go func() { <-arrived }()
	if code := ask(t, h, "10.127.0.130"); code != dns.RcodeSuccess {
		t.Errorf("when they are answered: %s", dns.RcodeToString[code])
	}
}

// TestTheKernelIsNotAskedAboutEachQuestion: nor once only, for a laptop may come to have the address of a guest that ended.
func TestTheKernelIsNotAskedAboutEachQuestion(t *testing.T) {
	now, asked := &clock{time.Now()}, 0
	l, _ := limitsAt(now)
	h := limited{next: cluster(t), limits: l, isGuest: func(a netip.Addr) bool { asked++; return guestRange.Contains(a) }}
	for range 10 {
		for range 5 {
			ask(t, h, "10.127.0.130")
		}
		now.at = now.at.Add(guestBelieved / 4)
	}
	if asked != 3 {
		t.Errorf("the kernel was asked %d times in 2.5 seconds, want 3", asked)
	}
	for range 10 {
		ask(t, h, "192.0.2.5")
	}
	if asked != 13 {
		t.Error("who is no guest is remembered")
	}
}

func TestWhatIsRememberedOfGuestsIsBounded(t *testing.T) {
	now := &clock{time.Now()}
	l, _ := limitsAt(now)
	address := netip.MustParseAddr("10.0.0.1")
	for range guestsRemembered {
		done, ok := l.enter(address, "example.org.")
		if !ok {
			t.Fatal("refused")
		}
		done()
		address = address.Next()
	}
	if _, ok := l.enter(address, "example.org."); ok || len(l.guests) != guestsRemembered {
		t.Errorf("%d are remembered, want %d and one refused", len(l.guests), guestsRemembered)
	}
	now.at = now.at.Add(2 * guestForgotten)
	if _, ok := l.enter(address, "example.org."); !ok || len(l.guests) != 1 {
		t.Errorf("after a silence %d are remembered, want 1", len(l.guests))
	}
}

func TestThePageSaysTheseLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	if row := fmt.Sprintf("| DNS | %d questions a second, for services %d (all guests %d), %d under way ",
		questionsPerSecond, servicesPerSecond, servicesOfAllGuests, questionsUnderWay); !strings.Contains(string(page), row) {
		t.Errorf("docs/security.md does not say %q", row)
	}
}

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/knftables"
)

// following is a Controller at work on a cluster and a table that are not real.
type following struct {
	t      *testing.T
	c      *Controller
	client *fake.Clientset
	table  *knftables.Fake // of IPv4
	six    *knftables.Fake
	socket string

	deleted chan struct{}
}

func follow(t *testing.T, change func(*Controller)) *following {
	t.Helper()
	f := &following{t: t, client: fake.NewClientset(), table: knftables.NewFake(knftables.IPv4Family, Table), six: knftables.NewFake(knftables.IPv6Family, Table), socket: filepath.Join(t.TempDir(), "policies.sock")}
	var err error
	f.c, err = Open(Options{
		Client: f.client, NodeName: "alice", NodeIP: []netip.Addr{netip.MustParseAddr(nodeIP)}, ClusterDNS: []netip.Addr{netip.MustParseAddr(dnsIP)},
		Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Local: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}, Guests: guestGroup, Socket: f.socket,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.c.bridged = func() error { return nil }
	for _, w := range f.c.tables {
		if w.nft = f.table; w.table == knftables.IPv6Family {
			w.nft = f.six
		}
	}
	f.deleted = make(chan struct{}, 1)
	f.c.news = func(func([]byte) bool) (<-chan struct{}, func(), error) { return f.deleted, func() {}, nil }
	if change != nil {
		change(f.c)
	}
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- f.c.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *following) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	if _, err := f.client.NetworkingV1().NetworkPolicies("shop").Create(f.t.Context(), p, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *following) pod(name, node, address string, made time.Time) {
	f.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(made), Labels: map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: address},
	}
	if _, err := f.client.CoreV1().Pods("shop").Create(f.t.Context(), p, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// isolated gives the pods whose ingress is limited.
func (f *following) isolated() string {
	elements, err := f.table.ListElements(f.t.Context(), "map", ingressMap)
	if err != nil {
		return ""
	}
	list := map[string]bool{}
	for _, e := range elements {
		list[e.Key[0]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(list)), " ")
}

func (f *following) becomes(want string) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); f.isolated() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("isolated are %q, want %q", f.isolated(), want)
		}
	}
}

// ask is what kith-mark does.
func (f *following) ask(text string) string {
	conn, err := net.Dial("unix", f.socket)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(conn)
	return string(b) + errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func asking(uid, address string) string {
	b, _ := json.Marshal(Ask{UID: uid, Address: address})
	return string(b)
}

func TestANewPodStartsWhenItsRulesAreInForce(t *testing.T) {
	f := follow(t, nil)
	if got := f.ask(asking("web", "10.42.0.5")); got != "" {
		t.Errorf("without policies: %q", got)
	}
	f.policy("deny")
	f.pod("old", "alice", "10.42.0.4", time.Now())
	f.becomes("10.42.0.4")
	answer := make(chan string, 1)
	go func() { answer <- f.ask(asking("web", "10.42.0.5")) }()
	select {
	case got := <-answer:
		t.Fatalf("answered %q before anybody saw the pod", got)
	case <-time.After(200 * time.Millisecond):
	}
	f.pod("web", "alice", "", time.Now())
	if got := <-answer; got != "" {
		t.Fatal(got)
	}
	if got := f.isolated(); got != "10.42.0.4 10.42.0.5" {
		t.Errorf("answered while isolated were %q", got)
	}
}

func TestWhoAsksForNothingIsToldSo(t *testing.T) {
	f := follow(t, nil)
	f.policy("deny")
	for _, bad := range []string{"{", "[]", `{"uid":"web"}`, asking("", "10.42.0.5"), asking("web", "10.42.0")} {
		if got := f.ask(bad + "\n"); got == "" {
			t.Errorf("%s: let through", bad)
		}
	}
}

func TestOnePodHasAnAddress(t *testing.T) {
	f := follow(t, nil)
	now := time.Now()
	f.pod("ended", "alice", "10.42.0.5", now.Add(-time.Minute))
	f.pod("liar", "kith-bob", "10.42.0.6", now)  // an address of this node
	f.pod("host", "kith-bob", nodeIP, now)       // the node itself
	f.pod("guest", "kith-bob", "10.76.0.5", now) // a peer's
	f.pod("broken", "alice", "fe80::1", now)     // not of this cluster
	f.pod("tenant", "alice", "10.65.1.4", now)   // somebody's guest here
	f.policy("deny")
	f.becomes("10.42.0.5 10.65.1.4 10.76.0.5")
	if err := f.client.CoreV1().Pods("shop").Delete(t.Context(), "ended", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.becomes("10.65.1.4 10.76.0.5")
}

// What a provider says of a pod there does not make it one of another's guests here.
func TestAnAddressOfAPodHereIsNoOthers(t *testing.T) {
	f := follow(t, nil)
	now := time.Now()
	f.pod("tenant", "alice", "10.65.1.4", now)
	f.pod("liar", "kith-bob", "10.65.1.4", now.Add(time.Minute))
	f.pod("web", "alice", "10.42.0.5", now)
	for i, name := range []string{"web", "liar", "tenant"} {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": name}
		if _, err := f.client.NetworkingV1().NetworkPolicies("shop").Create(f.t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if f.becomes([]string{"10.42.0.5", "10.42.0.5", "10.42.0.5 10.65.1.4"}[i]); i == 1 {
			f.pod("next", "alice", "", now)
			if got := f.ask(asking("next", "10.42.0.6")); got != "" { // what it was asked before is in force
				t.Error(got)
			}
			f.becomes("10.42.0.5")
		}
	}
}

// isolatedSix gives the addresses of IPv6 whose ingress is limited.
func (f *following) isolatedSix() string {
	elements, _ := f.six.ListElements(f.t.Context(), "map", ingressMap)
	var list []string
	for _, e := range elements {
		list = append(list, e.Key[0])
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestAPodIsHeldAtBothItsAddresses(t *testing.T) {
	f := follow(t, func(c *Controller) {
		c.o.NodeIP = append(c.o.NodeIP, netip.MustParseAddr("fd42:ff::1"))
		c.o.Local = append(c.o.Local, netip.MustParsePrefix("fd42::/64"))
		c.tables[0].dns = netip.MustParseAddr("fd43::a")
	})
	f.policy("deny")
	f.pod("web", "alice", "", time.Now())
	b, _ := json.Marshal(Ask{UID: "web", Address: "10.42.0.5", IPv6: "fd42::5"})
	if got := f.ask(string(b)); got != "" {
		t.Fatal(got)
	}
	if four, six := f.isolated(), f.isolatedSix(); four != "10.42.0.5" || six != "fd42::5" {
		t.Errorf("answered while isolated were %q and %q", four, six)
	}
	// What statuses say, of which a peer's may lie.
	for _, p := range []struct{ name, node, ip4, ip6 string }{
		{"web2", "alice", "10.42.0.6", "fd42::6"}, {"guest", "kith-bob", "10.76.0.7", "fd76::7"},
		{"liar", "kith-bob", "10.76.0.8", "fd42::8"}, {"link", "kith-bob", "10.76.0.9", "fe80::9"}, {"host", "kith-bob", "10.76.0.10", "fd42:ff::1"},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.name, UID: types.UID(p.name)}, Spec: corev1.PodSpec{NodeName: p.node}}
		o.Status.PodIP, o.Status.PodIPs = p.ip4, []corev1.PodIP{{IP: p.ip4}, {IP: p.ip6}}
		if _, err := f.client.CoreV1().Pods("shop").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.becomes("10.42.0.5 10.42.0.6 10.76.0.10 10.76.0.7 10.76.0.8 10.76.0.9")
	if six := f.isolatedSix(); six != "fd42::5 fd42::6 fd76::7" {
		t.Errorf("isolated are %q", six)
	}
}

func TestWithoutPoliciesThereIsNoTable(t *testing.T) {
	f := follow(t, nil)
	f.pod("web", "alice", "10.42.0.5", time.Now())
	for range 2 {
		f.policy("deny")
		f.becomes("10.42.0.5")
		if err := f.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), "deny", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.becomes("")
	}
}

func TestAFailureIsToldOnceOnThePolicy(t *testing.T) {
	f := follow(t, func(c *Controller) { c.bridged = func() error { return errors.New("no module") } })
	f.policy("deny")
	f.pod("web", "alice", "10.42.0.5", time.Now())
	told := func() (n int) {
		list, err := f.client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == "NotEnforced" && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "NetworkPolicy" && strings.Contains(e.Message, "no module") {
				n += int(e.Count)
			}
		}
		return n
	}
	for end := time.Now().Add(2 * time.Minute); told() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody was told")
		}
	}
	f.pod("db", "alice", "", time.Now())
	if got := f.ask(asking("db", "10.42.0.6")); got != "" {
		t.Errorf("a pod is kept from starting by what only its owner can mend: %q", got)
	}
	f.becomes("10.42.0.5 10.42.0.6")
	if n := told(); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestNoPodStartsWhileItsRulesCannotBeWritten(t *testing.T) {
	t.Parallel() // it waits for as long as a pod would
	f := follow(t, func(c *Controller) { c.tables[0].nft = broken{c.tables[0].nft} })
	f.policy("deny")
	f.pod("web", "alice", "", time.Now())
	if got := f.ask(asking("web", "10.42.0.5")); !strings.Contains(got, "no memory") {
		t.Errorf("let through: %q", got)
	}
}

// broken takes nothing.
type broken struct{ knftables.Interface }

func (broken) Run(context.Context, *knftables.Transaction) error { return errors.New("no memory") }

func TestAFlushIsNoticed(t *testing.T) {
	f := follow(t, nil)
	f.pod("web", "alice", "10.42.0.5", time.Now())
	f.policy("deny")
	f.becomes("10.42.0.5")
	tx := f.table.NewTransaction()
	tx.Delete(&knftables.Table{})
	if err := f.table.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	f.deleted <- struct{}{} // the kernel's word
	f.becomes("10.42.0.5")
}

// TestFromABootOnNothingPassesTheTunnelBeforePoliciesWereRead, and what a process before left is left.
func TestFromABootOnNothingPassesTheTunnelBeforePoliciesWereRead(t *testing.T) {
	for _, before := range []string{"", "table ip kith-policy"} {
		fake := knftables.NewFake(knftables.IPv4Family, Table)
		if before != "" {
			tx := fake.NewTransaction()
			tx.Add(&knftables.Table{})
			tx.Add(&knftables.Chain{Name: "of-before"})
			if err := fake.Run(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		c := &Controller{o: Options{}, tables: []*writer{{family: ipv4, nft: fake, dns: netip.MustParseAddr(dnsIP), pods: netip.MustParsePrefix("10.42.0.0/16"), group: guestGroup}}}
		if err := c.Shut(t.Context()); err != nil {
			t.Fatal(err)
		}
		shut := strings.Contains(fake.Dump(), `iifname "kith0" ip daddr 10.42.0.0/16 ip saddr != @pods counter drop`)
		if kept := strings.Contains(fake.Dump(), "of-before"); shut == kept || kept != (before != "") {
			t.Errorf("with %q before: %s", before, fake.Dump())
		}
		if err := c.all(func(w *writer) error { return w.remove(t.Context()) }); err != nil || fake.Dump() != "" {
			t.Errorf("without policies it stays: %v %s", err, fake.Dump())
		}
	}
}

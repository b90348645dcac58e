package exports

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

var alice = identity.ID(sha256.Sum256([]byte("alice"))).String()

// world is a provider for alice, with what it exports, and what is shared with her.
type world struct {
	t       *testing.T
	client  *ledger.Ledger
	e       *Exports
	changed notify.Broadcast
	at      string // its peer API

	mu      sync.Mutex
	exports []*clusterset.Export
	known   bool
	shared  []v1alpha1.SharedPod
	broken  error
	ended   bool
	shares  int // how often
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, known: true}
	w.client = ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}).Build())
	for _, o := range []client.Object{
		&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Spec: v1alpha1.PeerSpec{ID: alice}},
		&v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.ContractSpec{Peer: "alice", Role: v1alpha1.RoleProvider}},
		&v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.SharingPolicySpec{Services: []string{"shop", "team-*"}}},
	} {
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.e = New(w)
	w.e.ExportBy(Config{
		Own: w, Share: w.share, Ledger: w.client, Log: slog.New(slog.DiscardHandler),
		Mine: func(a netip.Addr) bool { return netip.MustParsePrefix("10.42.0.0/24").Contains(a) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = w.e.RunExports(ctx) })
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.e.ServeServices(rw, r, alice) }))
	w.at = server.Listener.Addr().String()
	t.Cleanup(func() { w.e.ShutServices(alice); server.Close(); cancel(); done.Wait() })
	return w
}

func (w *world) Held(_ context.Context, contract, _ string) (*grants.Terms, error) {
	if t := w.Of(contract); t != nil {
		return t, nil
	}
	return nil, peering.Refuse(peering.CodeNoContract, "there is no contract", "")
}

func (w *world) Of(contract string) *grants.Terms {
	w.mu.Lock()
	defer w.mu.Unlock()
	if contract != "c" || w.ended {
		return nil
	}
	return &grants.Terms{Contract: contract}
}

func (w *world) Exports() ([]*clusterset.Export, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*clusterset.Export(nil), w.exports...), w.known
}

func (w *world) Changed() <-chan struct{} { return w.changed.Wait() }

// share gives 10.42.0.N the address 10.127.3.N.
func (w *world) share(_ context.Context, id string, pods []v1alpha1.SharedPod) (map[netip.Addr]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != alice {
		return nil, errors.New("not alice")
	}
	if w.broken != nil {
		return nil, w.broken
	}
	w.shared = pods
	w.shares++
	at := map[netip.Addr]netip.Addr{}
	for _, p := range pods {
		at[netip.MustParseAddr(p.Pod)] = netip.MustParseAddr(strings.Replace(p.Pod, "10.42.0.", "10.127.3.", 1))
	}
	return at, nil
}

func (w *world) set(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.changed.Notify()
}

// service is one exported with these endpoints.
func service(namespace, name string, pods ...string) *clusterset.Export {
	e := &clusterset.Export{Name: clusterset.Name{Namespace: namespace, Name: name}, Ports: []clusterset.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}
	s := clusterset.Slice{Ports: []clusterset.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, clusterset.Endpoint{Address: netip.MustParseAddr(p), Ready: true})
	}
	e.Slices = []clusterset.Slice{s}
	return e
}

// consumer is a connection of alice's.
type consumer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (w *world) ask(namespaces ...string) *consumer {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	line, _ := clusterset.Line(clusterset.Ask{Namespaces: namespaces})
	fmt.Fprintf(conn, "POST %s?contract=c HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s", clusterset.Path, clusterset.Protocol, line)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatal(resp, err)
	}
	return &consumer{w.t, conn, in}
}

// hears wants that to be said next, in this order: a name with its addresses, "-" and a name that is gone, or "all".
func (c *consumer) hears(want ...string) {
	c.t.Helper()
	for _, w := range want {
		var tell clusterset.Tell
		line, err := c.in.ReadString('\n')
		if err == nil {
			err = json.Unmarshal([]byte(line), &tell)
		}
		got := "all"
		switch {
		case err != nil:
			got = err.Error()
		case tell.Gone != nil:
			got = "-" + tell.Gone.Name
		case tell.Export != nil:
			got = tell.Export.Name.Name
			for _, s := range tell.Export.Slices {
				for _, e := range s.Endpoints {
					got += " " + e.Address.String()
				}
			}
		}
		if got != w {
			c.t.Fatalf("%q is said, want %q", got, w)
		}
	}
}

func TestAConsumerHearsOfWhatIsInCommon(t *testing.T) {
	w := newWorld(t)
	w.set(func() { w.known = false; w.exports = nil })
	c := w.ask("shop", "team-a")
	w.set(func() { // what it exports is known
		w.known = true
		w.exports = []*clusterset.Export{
			service("shop", "web", "10.42.0.5", "10.42.1.5", "192.0.2.1"), // a guest's abroad, and who knows whose
			service("team-b", "other", "10.42.0.6"), service("home", "private", "10.42.0.7"),
		}
	})
	c.hears("web 10.127.3.5", "all")
	w.mu.Lock()
	if len(w.shared) != 1 || w.shared[0].Pod != "10.42.0.5" || w.shared[0].Ports[0].Port != 8080 {
		t.Errorf("%v is shared", w.shared)
	}
	w.mu.Unlock()
	w.set(func() { w.exports = append(w.exports, service("team-a", "db", "10.42.0.8")) })
	c.hears("db 10.127.3.8")
	w.set(func() { w.exports[0] = service("shop", "web", "10.42.0.9") })
	c.hears("web 10.127.3.9")
	w.set(func() { w.exports = w.exports[:1] })
	c.hears("-db")

	// What could not be shared is not told before it can.
	w.set(func() {
		w.broken = errors.New("there is no tunnel")
		w.exports = append(w.exports, service("shop", "more", "10.42.0.10"))
	})
	time.Sleep(50 * time.Millisecond)
	w.set(func() { w.broken = nil })
	c.hears("more 10.127.3.10")

	// The owner takes his word back.
	var policy v1alpha1.SharingPolicy
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "default"}, &policy); err != nil {
		t.Fatal(err)
	}
	w.set(func() { w.exports = w.exports[:1] })
	c.hears("-more")
	policy.Spec.Services = []string{"elsewhere"}
	if err := w.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	w.set(func() {})
	c.hears("-web")
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shared) != 0 {
		t.Errorf("%v is shared", w.shared)
	}
}

func TestOfTwoConnectionsTheLastCounts(t *testing.T) {
	w := newWorld(t)
	w.set(func() {
		w.exports = []*clusterset.Export{service("shop", "web", "10.42.0.5"), service("team-a", "db", "10.42.0.6")}
	})
	first := w.ask("shop")
	first.hears("web 10.127.3.5", "all")
	second := w.ask("team-*")
	second.hears("db 10.127.3.6", "all")
	if _, err := first.in.ReadByte(); err == nil {
		t.Error("the first hears more")
	}
	w.set(func() { w.ended = true })
	w.e.ShutServices(alice)
	if _, err := second.in.ReadByte(); err == nil {
		t.Error("the contract is over, and it hears more")
	}
}

// TestWhatIsSharedStaysWhileNobodyAsks: a consumer that is away keeps what it has, until the owner takes his word back.
func TestWhatIsSharedStaysWhileNobodyAsks(t *testing.T) {
	w := newWorld(t)
	peer := w.client.Now().Peer(alice).DeepCopy()
	peer.Status.Network = &v1alpha1.NetworkStatus{Shared: []v1alpha1.SharedPod{{Address: "10.127.3.5", Pod: "10.42.0.5"}}}
	if err := w.client.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	asked := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.shares > 0
	}
	if w.e.look(t.Context()); asked() {
		t.Error("it was shared anew, and nobody asked")
	}
	var policy v1alpha1.SharingPolicy
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "default"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Services = nil
	w.mu.Lock()
	w.known = false // as where the kinds are gone
	w.mu.Unlock()
	if err := w.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	if w.e.look(t.Context()); !asked() {
		t.Error("the owner took his word back, and it is shared")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shared) != 0 {
		t.Errorf("%v is shared", w.shared)
	}
}

// Whoever has no network to this cluster is told of no services, and none of its pods are shared with it, however it asks.
func TestWithoutANetworkNoServicesAreTold(t *testing.T) {
	w := newWorld(t)
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bob, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := contract.New(record.NewDocument(me, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}, contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Network: contract.NetworkNone}, record.Validity))
	if err != nil {
		t.Fatal(err)
	}
	var ctr v1alpha1.Contract
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "c"}, &ctr); err != nil {
		t.Fatal(err)
	}
	ctr.Spec.Document = signed.Document
	if err := w.client.Update(t.Context(), &ctr); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+w.at+clusterset.Path+"?contract=c", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden || !strings.Contains(string(said), "no network") {
		t.Errorf("%s: %s", resp.Status, said)
	}
	w.e.begin(alice, []string{"shop"}, nil) // as before the contract became one without
	w.set(func() { w.broken = errors.New("there is no tunnel") })
	if !w.e.look(t.Context()) {
		t.Error("it is tried again")
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if _, asks := w.e.asks[alice]; asks {
		t.Error("what it asked for is kept")
	}
}

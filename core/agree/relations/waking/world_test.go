package waking

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/power"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// world is a cluster with its peers. Its packets, and what it asks of others, are written down.
type world struct {
	*Waking
	t       *testing.T
	client  *ledger.Ledger
	me      *identity.Identity
	there   map[string]peering.Contact
	pods    []*corev1.Pod
	since   time.Time // that the pods wait
	network string    // of this machine; "" without one
	mains   bool
	arming  wol.Arming
	counted map[string]int64
	sent    []time.Time
	asked   []string
	refuses map[string]error
	cut     bool // writes fail
	events  *events.FakeRecorder
	news    []api.Event
}

func key(t *testing.T) *identity.Identity {
	t.Helper()
	id, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newWorld(t *testing.T, me *identity.Identity, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, me: me, there: map[string]peering.Contact{}, network: "192.168.1.0/24", mains: true, arming: wol.Armed, refuses: map[string]error{}, events: events.NewFakeRecorder(1000)}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Contract{}).Build()
	w.client = ledgertest.Over(t, interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if w.cut {
				return errors.New("it is cut")
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}))
	w.restart()
	return w
}

// restart is a new process.
func (w *world) restart() {
	w.Waking = New(Config{
		Client: w.client, Identity: w.me, Directory: w, Pods: w, Events: w.events, Log: slog.New(slog.DiscardHandler),
		Power:    func() power.State { return power.State{OnMains: w.mains, Battery: 80} },
		Announce: func(e api.Event) { w.news = append(w.news, e) },
		Counts:   func([]wol.Device) map[string]int64 { return w.counted },
		Devices: func() ([]wol.Device, error) {
			if w.network == "" {
				return nil, nil
			}
			mac, _ := net.ParseMAC("02:00:5e:10:00:01")
			return []wol.Device{{Name: "eth0", MAC: mac, Networks: []netip.Prefix{netip.MustParsePrefix(w.network)}, Arming: w.arming}}, nil
		},
		Send: func(_ context.Context, from []wol.Device, mac net.HardwareAddr, networks []netip.Prefix) error {
			if !wol.Here(from, networks) {
				return wol.ErrElsewhere
			}
			if mac.String() != "02:00:5e:10:00:01" {
				w.t.Errorf("a packet for %s", mac)
			}
			w.sent = append(w.sent, time.Now())
			return nil
		},
		Ask: func(_ context.Context, peer *v1alpha1.Peer, _ canonical.Signed) error {
			w.asked = append(w.asked, peer.Name)
			return w.refuses[peer.Name]
		},
	})
}

func (w *world) Client(*v1alpha1.Peer) (*peering.Client, error) { return nil, errors.New("not here") }

func (w *world) Contact(peer *v1alpha1.Peer) peering.Contact { return w.there[peer.Name] }

func (w *world) Needs(_ context.Context, places []seeking.Place) ([]seeking.Need, int, error) {
	if len(places) != 1 || !places[0].Asleep {
		w.t.Errorf("places are %+v", places)
	}
	return []seeking.Need{{Who: w.pods, Since: w.since}}, len(w.pods), nil
}

// waits has a pod wait from now on.
func (w *world) waits(name string) {
	w.pods, w.since = append(w.pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}), time.Now()
}

// runs has time pass, and a peer looked at whenever that is due.
func (w *world) runs(peer string, passes time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(passes); ; {
		var result ctrl.Result
		for range 3 { // what was written brings it back
			var err error
			if result, err = w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: peer}}); err != nil && !w.cut {
				w.t.Fatal(err)
			}
		}
		wait := time.Until(end)
		if wait <= 0 {
			return
		}
		if result.RequeueAfter > 0 {
			wait = min(wait, result.RequeueAfter)
		}
		time.Sleep(wait)
	}
}

// status is what is known of waking by the contract with a peer.
func (w *world) status(peer string, role v1alpha1.Role) v1alpha1.WakeStatus {
	w.t.Helper()
	ctr := w.client.Now().InForce(peer, role)
	if ctr == nil {
		w.t.Fatalf("there is no contract with %s", peer)
	}
	if ctr.Status.Wake == nil {
		return v1alpha1.WakeStatus{}
	}
	return *ctr.Status.Wake
}

// says are the events of pods since the last call.
func (w *world) says() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// sleeps has a peer be asleep, with a last word.
func (w *world) sleeps(peer string, word *canonical.Signed) {
	w.there[peer] = peering.Contact{Presence: presence.Presence{State: presence.Suspended, Since: time.Now()}, LastWord: word}
}

func (w *world) wakes(peer string) {
	w.there[peer] = peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}}
}

// peer is one that was reached on the network of most tests.
func peer(id *identity.Identity, name string, endpoints ...string) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.ID().String(), Endpoints: endpoints},
		Status: v1alpha1.PeerStatus{Endpoint: "192.168.1.20:6450"},
	}
}

// signed is a contract with a peer by which the consumer may wake the provider so many times a day.
func signed(t *testing.T, consumer, provider *identity.Identity, with string, role v1alpha1.Role, wake int64) *v1alpha1.Contract {
	t.Helper()
	party := func(of *identity.Identity) contract.Party {
		return contract.Party{ID: of.ID(), Name: "x", Key: of.Public()}
	}
	now := time.Now()
	d := contract.Document{
		ID: contract.NewID(), Revision: 1, Consumer: party(consumer), Provider: party(provider), NotBefore: now, NotAfter: now.Add(20 * 24 * time.Hour), Created: now,
		Terms: contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Wake: wake},
	}
	d.Version = d.Terms.DocumentVersion()
	doc, err := contract.Canonical(d)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "with-" + with}, Spec: v1alpha1.ContractSpec{
		ID: d.ID, Revision: 1, Role: role, Peer: with, Document: doc, NotAfter: &metav1.Time{Time: d.NotAfter},
	}}
}

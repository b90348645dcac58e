package tenants

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

var yes, no = new(true), new(false)

func conditions(ready, serving, terminating *bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
}

func sliceOf(namespace, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-x", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
}

func at(address string, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: c}
}

func TestOnlyWhatIsAtHomeGoesAway(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.72.0.0/24")}
	for what, c := range map[string]struct {
		endpoint discoveryv1.Endpoint
		unready  bool // publishNotReadyAddresses
		want     discoveryv1.EndpointConditions
		changed  bool
	}{
		"ready at home":            {at("10.42.0.7", conditions(yes, yes, nil)), false, conditions(no, no, nil), true},
		"nothing said, so ready":   {at("10.42.0.7", conditions(nil, nil, nil)), false, conditions(no, no, nil), true},
		"ends, and still serves":   {at("10.42.0.7", conditions(no, yes, yes)), false, conditions(no, no, yes), true},
		"not ready anyway":         {at("10.42.0.7", conditions(no, no, nil)), false, conditions(no, no, nil), false},
		"a guest here":             {at("10.71.0.5", conditions(yes, yes, nil)), false, conditions(yes, yes, nil), false},
		"a guest elsewhere":        {at("10.72.0.5", conditions(yes, yes, nil)), false, conditions(no, no, nil), true}, // home leads there
		"no address":               {at("nonsense", conditions(yes, yes, nil)), false, conditions(yes, yes, nil), false},
		"published ready or not":   {at("10.42.0.7", conditions(yes, yes, nil)), true, conditions(yes, no, nil), true},
		"published, not serving":   {at("10.42.0.7", conditions(yes, no, nil)), true, conditions(yes, no, nil), false},
		"one of its addresses is":  {discoveryv1.Endpoint{Addresses: []string{"10.71.0.1", "10.42.0.7"}}, false, conditions(no, no, nil), true},
		"a guest, published so":    {at("10.71.0.5", conditions(yes, no, nil)), true, conditions(yes, no, nil), false},
		"IPv6 that is not of home": {at("fd00::7", conditions(yes, yes, nil)), false, conditions(yes, yes, nil), false},
	} {
		slice := sliceOf("shop", "web", c.endpoint)
		was := away(slice, ranges, c.unready)
		if got := slice.Endpoints[0].Conditions; !reflect.DeepEqual(got, c.want) || (len(was) == 1) != c.changed {
			t.Errorf("%s: %+v, changed %v", what, got, was)
		}
		if before, ok := was[0]; ok && !reflect.DeepEqual(before, c.endpoint.Conditions) {
			t.Errorf("%s: was %+v, is kept as %+v", what, c.endpoint.Conditions, before)
		}
	}
}

// homesProvider is a provider of alice, with services of hers, one of carol's and one of its own.
type homesProvider struct {
	*provider
	homes  *Homes
	peer   *v1alpha1.Peer
	alice  grants.Consumer
	before map[types.NamespacedName]discoveryv1.EndpointSlice
}

func newHomesProvider(t *testing.T) *homesProvider {
	t.Helper()
	peer, alice := peerOf("alice", 1)
	other, carol := peerOf("carol", 2)
	peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16", "10.72.0.0/24"}} // alice's are at dave's too
	other.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "10.73.0.0/24", Space: []string{"10.42.0.0/16"}}
	ca, cc := contractWith("alice", "contracta"), contractWith("carol", "contractc")
	d := &homesProvider{provider: newProvider(t, peer, other, ca, cc), peer: peer, alice: alice}
	shop, err := d.ensure(ca, alice, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	carols, err := d.ensure(cc, carol, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	up := conditions(yes, yes, no)
	for _, o := range []client.Object{
		sliceOf(shop, "web", at("10.42.0.7", up), at("10.71.0.5", up), at("10.42.0.8", conditions(no, yes, yes))),
		sliceOf(shop, "gossip", at("10.42.0.9", up)),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "gossip", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
			Spec: corev1.ServiceSpec{PublishNotReadyAddresses: true, ClusterIP: corev1.ClusterIPNone}},
		sliceOf(carols, "web", at("10.42.1.7", up), at("10.42.0.7", up)),
		sliceOf("mine", "web", at("10.42.0.7", up)),
	} {
		if err := d.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	d.homes = &Homes{client: d.client, live: d.client, contracts: d.contracts, log: d.tenants.log, consumers: map[string]*home{}}
	d.before = d.slices()
	return d
}

func (d *homesProvider) slices() map[types.NamespacedName]discoveryv1.EndpointSlice {
	d.Helper()
	var list discoveryv1.EndpointSliceList
	if err := d.client.List(d.Context(), &list); err != nil {
		d.Fatal(err)
	}
	all := map[types.NamespacedName]discoveryv1.EndpointSlice{}
	for _, s := range list.Items {
		all[client.ObjectKeyFromObject(&s)] = s
	}
	return all
}

// tell says whether alice is away, long ago.
func (d *homesProvider) tell(away bool) {
	there := presence.Presence{State: presence.Reachable, Since: time.Now().Add(-time.Minute)}
	if away {
		there.State = presence.Unreachable
	}
	d.homes.SetHome(d.peer, there)
}

func (d *homesProvider) reconcile() {
	d.Helper()
	if _, err := d.homes.reconcile(d.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: d.alice.Compact}}); err != nil {
		d.Fatal(err)
	}
}

// changed tells which slices have other endpoints than before.
func (d *homesProvider) changed() (names []string) {
	for key, now := range d.slices() {
		if !reflect.DeepEqual(d.before[key].Endpoints, now.Endpoints) {
			names = append(names, key.String())
		}
	}
	return names
}

func (d *homesProvider) web() discoveryv1.EndpointSlice {
	for key, s := range d.slices() {
		if key.Name == "web-x" && s.Endpoints[0].Addresses[0] == "10.42.0.7" && key.Namespace != "mine" {
			return s
		}
	}
	d.Fatal("the slice of web is gone")
	panic("")
}

func TestEndpointsOfAHomeThatIsAwayAreNotReadyAndComeBack(t *testing.T) {
	d := newHomesProvider(t)
	d.tell(true)
	d.reconcile()
	if got := d.changed(); len(got) != 2 {
		t.Errorf("changed: %v", got)
	}
	web := d.web()
	if !reflect.DeepEqual(web.Endpoints[0].Conditions, conditions(no, no, no)) || !reflect.DeepEqual(web.Endpoints[1].Conditions, conditions(yes, yes, no)) {
		t.Errorf("%+v", web.Endpoints)
	}
	version := web.ResourceVersion
	d.reconcile() // again, and nothing is written
	if got := d.web().ResourceVersion; got != version {
		t.Error("written twice")
	}
	d.tell(false)
	d.reconcile()
	if got := d.changed(); len(got) != 0 {
		t.Errorf("not given back: %v", got)
	}
	d.reconcile()
}

func TestWhatHomeWritesMeanwhileStays(t *testing.T) {
	d := newHomesProvider(t)
	d.tell(true)
	d.reconcile()
	wrote := d.web()
	wrote.Endpoints = []discoveryv1.Endpoint{at("10.42.0.10", conditions(yes, yes, no))}
	if err := d.client.Update(t.Context(), &wrote); err != nil {
		t.Fatal(err)
	}
	for _, away := range []bool{true, false} {
		d.tell(away)
		d.reconcile()
		var now discoveryv1.EndpointSlice
		if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(&wrote), &now); err != nil || !reflect.DeepEqual(now.Endpoints, wrote.Endpoints) {
			t.Errorf("away %v: %+v, %v", away, now.Endpoints, err)
		}
	}
}

func TestAHomeThatTheTunnelReachesIsNotAway(t *testing.T) {
	d := newHomesProvider(t)
	var lost error
	d.homes.reach = func(_ context.Context, id string) error {
		if id != d.alice.ID {
			t.Errorf("asked for %s", id)
		}
		return lost
	}
	d.tell(true)
	d.reconcile()
	if got := d.changed(); len(got) != 0 {
		t.Errorf("changed: %v", got)
	}
	lost = errors.New("no answer")
	d.reconcile()
	if got := d.changed(); len(got) != 2 {
		t.Errorf("changed: %v", got)
	}
	lost = nil // the tunnel is back before the daemon is
	d.reconcile()
	if got := d.changed(); len(got) != 0 {
		t.Errorf("not given back: %v", got)
	}
	lost = errors.New("no answer")
	d.reconcile()
	if got := d.changed(); len(got) != 2 {
		t.Errorf("lost again, changed: %v", got)
	}
}

// Daemons start, and nobody was asked yet; contacts break, and are there again.
func TestAMomentIsNotAway(t *testing.T) {
	d := newHomesProvider(t)
	d.homes.SetHome(d.peer, presence.Presence{State: presence.Seen})
	again, err := d.homes.reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: d.alice.Compact}})
	if err != nil || again.RequeueAfter <= 0 || again.RequeueAfter > 3*time.Second || len(d.changed()) != 0 {
		t.Errorf("%+v, %v, changed %v", again, err, d.changed())
	}
	d.tell(false)
	d.tell(true)
	d.homes.reach = func(context.Context, string) error {
		d.tell(false) // comes back at this moment
		return errors.New("no answer")
	}
	d.reconcile()
	if got := d.changed(); len(got) != 0 {
		t.Errorf("changed: %v", got)
	}
}

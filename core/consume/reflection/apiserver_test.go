package reflection

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	metafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/kinds"
)

// TestTheAPIServerOfHomeIsInEveryTwin: its Service and the slice of it, whatever namespace the twin stands for, and nowhere if guests do
// not reach the API server.
func TestTheAPIServerOfHomeIsInEveryTwin(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: kinds.APIServer, UID: "1", Labels: map[string]string{discoveryv1.LabelServiceName: kinds.APIServer}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"}, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(6443)}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.255.1"}}}}
	scheme := metafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	home := &Home{core: fake.NewClientset(service, slice), meta: metafake.NewSimpleMetadataClient(scheme)}
	m, err := home.join(func(*kinds.Kind, metav1.Object, metav1.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	defer m.leave()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !cache.WaitFor(ctx, "", m.synced...) {
		t.Fatal("not everything was seen")
	}
	r, s := reflector(t, home), &session{ctx: t.Context(), member: m}
	for _, ns := range []string{"shop", metav1.NamespaceDefault} {
		tw := newTwin(ns, ns+"-x")
		r.twins[ns] = tw
		for k, o := range map[*kinds.Kind]metav1.Object{kinds.Service: service, kinds.EndpointSlice: slice} {
			it := item{k, ns, kinds.APIServerAbroad}
			if all := m.list(k, ns); !slices.Contains(all, it) {
				t.Errorf("%s: %v is not looked at with the rest: %v", ns, it, all)
			}
			if r.homeChanged(k, nil, o); !slices.Contains(drain(r), it) {
				t.Errorf("%s: a change of it is not seen", k)
			}
			src := r.source(tw, s, it, nil)
			if src == nil || src.owner.Namespace != metav1.NamespaceDefault || src.owner.Name != kinds.APIServer {
				t.Fatalf("%v: source %+v", it, src)
			}
			got, why, err := src.build(ctx)
			if err != nil || why != "" || got.GetNamespace() != ns+"-x" || got.GetName() != kinds.APIServerAbroad || itemOf(k, ns, got) != it {
				t.Errorf("%v: %+v, %q, %v", it, got, why, err)
			}
		}
		if r.homeChanged(kinds.EndpointSlice, slice, &discoveryv1.EndpointSlice{ObjectMeta: meta}); len(drain(r)) != 0 {
			t.Errorf("%s: the peer is told that an API server ends", ns)
		}
		if src := r.source(tw, s, item{kinds.Service, metav1.NamespaceDefault, kinds.APIServer}, nil); src != nil {
			t.Error("it goes under its own name too")
		}
	}
	r.cfg.APIServer = netip.Addr{}
	if src := r.source(r.twins["shop"], s, item{kinds.Service, "shop", kinds.APIServerAbroad}, nil); src != nil {
		t.Error("nobody reaches it, and guests are told to try")
	}
}

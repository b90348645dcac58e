// Package hostingtest is what the tests of hosting's rooms share: an API server in memory, and the peers, contracts and namespaces
// in it; and, with those of home, what becomes of each field of a pod.
package hostingtest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Client is of an API server in memory: enough for names, labels and who may; what only a real one does (quota, pod security,
// finalizers, the end of a namespace) is told in test/e2e/hosting.
func Client(t testing.TB, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.Contract{}, &v1alpha1.OffloadedPod{}).Build()
}

// Peer is one whose ID is made of that byte.
func Peer(name string, fill byte) *v1alpha1.Peer {
	var id identity.ID
	for i := range id {
		id[i] = fill
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String()}}
}

// BobsShop is the twin of the namespace shop of Peer("bob", 1).
const BobsShop = "shop-aeaqcai"

// Contract is one in force, in which the peer is the consumer.
func Contract(peer, id string) *v1alpha1.Contract {
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer + "-" + id}, Spec: v1alpha1.ContractSpec{
		ID: id, Revision: 1, Role: v1alpha1.RoleProvider, Peer: peer, Document: []byte("{}"),
		ConsumerSignature: []byte{1}, ProviderSignature: []byte{1}, Resources: List("cpu", "1", "pods", "5"),
	}}
}

// Twin is a namespace with the labels of one, whoever made it. The consumer is its compact ID.
func Twin(name, home, contract, consumer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "7c1e", Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer,
		v1alpha1.LabelHomeNamespace: home, v1alpha1.LabelContract: contract,
	}}}
}

// List is of resources: name, amount, name, amount.
func List(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

package grants

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
)

// desk is what is granted over an API server in memory.
type desk struct {
	*testing.T
	contracts *Contracts
	book      *Book
	client    client.Client
}

func newDesk(t *testing.T, objects ...client.Object) *desk {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithReturnManagedFields().WithStatusSubresource(&v1alpha1.Contract{}, &v1alpha1.OffloadedPod{}).Build()
	d := &desk{T: t, client: c, contracts: NewContracts(c, c, slog.New(slog.DiscardHandler)), book: NewBook()}
	return d
}

func peerOf(name string, fill byte) (*v1alpha1.Peer, Consumer) {
	var id identity.ID
	for i := range id {
		id[i] = fill
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String()}},
		Consumer{ID: id.String(), Compact: id.Compact(), Name: name}
}

// bobsShop is the twin of the namespace shop of peerOf("bob", 1).
const bobsShop = "shop-aeaqcai"

func contractWith(peer, id string) *v1alpha1.Contract {
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer + "-" + id}, Spec: v1alpha1.ContractSpec{
		ID: id, Revision: 1, Role: v1alpha1.RoleProvider, Peer: peer, Document: []byte("{}"),
		ConsumerSignature: []byte{1}, ProviderSignature: []byte{1}, Resources: list("cpu", "1", "pods", "5"),
	}}
}

// labelled is a namespace with the labels of a twin, whoever made it.
func labelled(name, home, contract string, consumer Consumer) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "7c1e", Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer.Compact,
		v1alpha1.LabelHomeNamespace: home, v1alpha1.LabelContract: contract,
	}}}
}

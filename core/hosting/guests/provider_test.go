package guests

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
	"kith.dev/core/identity"
)

// desk is what hosts guests over an API server in memory.
type desk struct {
	*testing.T
	contracts *grants.Contracts
	book      *grants.Book
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
	d := &desk{T: t, client: c, contracts: grants.NewContracts(c, c, slog.New(slog.DiscardHandler)), book: grants.NewBook()}
	return d
}

// ensure makes the twin that there is of a namespace.
func (d *desk) ensure(contract *v1alpha1.Contract, consumer grants.Consumer, home string, _ v1alpha1.NamespaceMapping) (string, error) {
	name := home + "-" + consumer.Compact[:7]
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer.Compact,
		v1alpha1.LabelHomeNamespace: home, v1alpha1.LabelContract: contract.Spec.ID,
	}}}
	if err := d.client.Create(d.Context(), ns); err != nil {
		return "", err
	}
	return name, d.contracts.Load(d.Context())
}

func peerOf(name string, fill byte) (*v1alpha1.Peer, grants.Consumer) {
	var id identity.ID
	for i := range id {
		id[i] = fill
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String()}},
		grants.Consumer{ID: id.String(), Compact: id.Compact(), Name: name}
}

// bobsShop is the twin of the namespace shop of peerOf("bob", 1).
const bobsShop = "shop-aeaqcai"

func contractWith(peer, id string) *v1alpha1.Contract {
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer + "-" + id}, Spec: v1alpha1.ContractSpec{
		ID: id, Revision: 1, Role: v1alpha1.RoleProvider, Peer: peer, Document: []byte("{}"),
		ConsumerSignature: []byte{1}, ProviderSignature: []byte{1}, Resources: list("cpu", "1", "pods", "5"),
	}}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// bob is no real peer.
var bob = grants.Consumer{ID: "BOB", Compact: "bbbbbbbccccccc" + strings.Repeat("d", 42), Name: "bob"}

package hosting

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api/v1alpha1"
)

// AnnotationGrace on an OffloadedPod, set by the consumer before it deletes it, is the grace period in
// whole seconds its Pod is deleted with; "0" deletes by force. The API server forgets
// DeleteOptions.gracePeriodSeconds for custom resources, hence this.
const AnnotationGrace = "kith.dev/grace-seconds"

// Consumer is a peer as hosting needs it.
type Consumer struct {
	ID      string // identity.ID.String
	Compact string // identity.ID.Compact
	Name    string // name of the Peer object here
}

// Guest is a pod of a consumer on this cluster.
type Guest struct {
	Namespace, Name string
	Consumer        string // name of the Peer
	ConsumerID      string // compact form of the cluster ID
	Contract        string // contract ID
	Phase           string // Pending, Running, Succeeded, Failed, Unknown or Refused
	Why             string
	Node            string
	IPs             []string
	Requests        corev1.ResourceList
	Created         metav1.Time
}

// Host is the provider's side of every contract. Make it with New.
type Host struct{}

var errSkeleton = errors.New("hosting: not there yet")

// New registers the provider's reconcilers with mgr; they work while mgr runs.
func New(mgr manager.Manager, log *slog.Logger) (*Host, error) { return nil, errSkeleton }

// CacheOptions limits the manager's cache to what hosting reads: of Pods, the guests.
func CacheOptions() cache.Options { return cache.Options{} }

// Install applies what every tenant needs: the ClusterRole kith:tenant. Idempotent.
func (h *Host) Install(ctx context.Context) error { return errSkeleton }

// EnsureNamespace makes, or finds, the twin of the consumer's namespace home and gives its name.
func (h *Host) EnsureNamespace(ctx context.Context, contract *v1alpha1.Contract, consumer Consumer, home string, mapping v1alpha1.NamespaceMapping) (twin string, err error) {
	return "", errSkeleton
}

// ReleaseNamespace clears the twin of home away, guests with their grace period first.
func (h *Host) ReleaseNamespace(ctx context.Context, contract *v1alpha1.Contract, home string) error {
	return errSkeleton
}

// EndContract shuts the door to the consumer (unless another contract with it is in force) and clears
// away everything under the contract. It may be called again until it gives nil.
func (h *Host) EndContract(ctx context.Context, contract *v1alpha1.Contract) error {
	return errSkeleton
}

// Used is the sum of the requests of the guests under the contract (its spec.id).
func (h *Host) Used(contractID string) corev1.ResourceList { return nil }

// Guests lists the guests for the owner, refused ones too.
func (h *Host) Guests(ctx context.Context) ([]Guest, error) { return nil, errSkeleton }

// Admitted says whether a contract with the consumer (identity.ID.String) is in force, and how many twin
// namespaces it has. It is the Door's Access.
func (h *Host) Admitted(consumerID string) (namespaces int, ok bool) { return 0, false }

// OnShut has f called whenever the last contract with a consumer stopped being in force.
func (h *Host) OnShut(f func(consumerID string)) {}

// PutNamespace answers PUT /kith/v1/namespaces/{home}?contract=ID&mapping=Default|SameName.
func (h *Host) PutNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {}

// DeleteNamespace answers DELETE /kith/v1/namespaces/{home}?contract=ID.
func (h *Host) DeleteNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {}

// InForce says whether pods may run under the contract at this moment.
func InForce(contract *v1alpha1.Contract, now time.Time) bool { return false }

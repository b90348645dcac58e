package hosting

import (
	"log/slog"
	"net/http"

	"k8s.io/client-go/rest"
)

// Access says who may pass the door. *Host is one.
type Access interface {
	// Admitted: is a contract with the consumer in force, and how many twin namespaces has it?
	Admitted(consumerID string) (namespaces int, ok bool)
}

// Door lets consumers through to the API server, each as itself.
type Door struct{}

// NewDoor makes the door to the API server that config leads to.
func NewDoor(config *rest.Config, access Access, log *slog.Logger) (*Door, error) {
	return nil, errSkeleton
}

// Serve answers one request under /kube/ of the consumer with this ID (identity.ID.String).
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, consumerID string) {}

// Shut cuts every open request of the consumer.
func (d *Door) Shut(consumerID string) {}

package remote

import (
	"fmt"
	"net/netip"

	"kith.dev/core/api/v1alpha1"
)

// Onward is what tells a namespace of this cluster that is another's, whose pods go on to a provider, from those of its owner.
type Onward struct {
	Link   v1alpha1.ChainLink // for whom it is
	Guests netip.Prefix       // the addresses that its pods have at the provider; the zero value when they may not go there
}

// Known is an error when it is not known for whom a namespace is: what is in it must not become this cluster's own at the provider.
func (o Onward) Known(namespace string) error {
	if o.Link.Cluster == "" {
		return fmt.Errorf("namespace %s is another cluster's, and no contract is known under which it is here: it does not go on; the log says why if there is one that cannot be read", namespace)
	}
	return nil
}

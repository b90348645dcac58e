package remote

import (
	"net/netip"

	"kith.dev/core/api/v1alpha1"
)

// Onward is what tells a namespace of this cluster that is another's, whose pods go on to a provider, from those of its owner.
type Onward struct {
	Link   v1alpha1.ChainLink // for whom it is
	Guests netip.Prefix       // the addresses that its pods have at the provider; the zero value when they may not go there
}

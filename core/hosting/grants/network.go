package grants

import (
	"net/netip"
	"strings"

	"kith.dev/core/api/v1alpha1"
)

// Network is what was agreed on of addresses with a consumer, as text; the zero value before there is a link, or when it cannot be read.
type Network struct {
	Guests   string // the range of its guests here
	Space    string // the other ranges of its address space, with commas between them: of its pods, and of its guests elsewhere
	Services string // the range of its services
}

// NetworkOf reads a Peer.
func NetworkOf(peer *v1alpha1.Peer) (n Network) {
	pair, err := peer.Status.Network.Pair(netip.Prefix{})
	if err != nil || !pair.Here.IsValid() {
		return Network{}
	}
	n.Guests = pair.Here.String()
	if pair.Services.IsValid() {
		n.Services = pair.Services.String()
	}
	var space []string
	for _, r := range pair.Space {
		space = append(space, r.String())
	}
	n.Space = strings.Join(space, ",")
	return n
}

// AddressSpace is the consumer's whole address space as kinds.AnnotationSpace has it: the range of its guests here comes first.
func (n Network) AddressSpace() string {
	return strings.Trim(n.Guests+","+n.Space, ",")
}

// Elsewhere are the ranges of the consumer's pods that are not here.
func (n Network) Elsewhere() (ranges []netip.Prefix) {
	for text := range strings.SplitSeq(n.Space, ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

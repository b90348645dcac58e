package netpolicy

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/trust/wire"
)

// Path of the message at the provider's peer API: PUT with ?contract=ID, a Policies in JSON, answered with an Answer.
const Path = "/kith/v2/policies"

// Bounds of a message: each rule is some rules of nftables at the provider, and each peer and port some elements of sets.
const (
	MaxMessage  = 64 << 10 // bytes
	maxPolicies = 100
	maxRules    = 256  // of all policies together
	maxParts    = 1024 // peers, their namespaces, exceptions and ports, of all policies together
	maxNamed    = 64   // ports by name, of all policies together: each is an element for each guest that has one of that name
)

// Policies is all that holds for the guests of a home at one provider.
type Policies struct {
	Policies []Policy `json:"policies"`
}

// Policy is one NetworkPolicy (networking.k8s.io/v1).
type Policy struct {
	Namespace string               `json:"namespace"` // at home
	Name      string               `json:"name"`
	Pods      metav1.LabelSelector `json:"pods"`              // that it is for
	Ingress   *Rules               `json:"ingress,omitempty"` // nil: not limited
	Egress    *Rules               `json:"egress,omitempty"`
}

// Rules are what is allowed; without any that is nothing.
type Rules struct {
	Rules []Rule `json:"rules,omitempty"`
}

// Rule allows some ports, all if there are none, of some peers.
type Rule struct {
	Anybody bool   `json:"anybody,omitempty"`
	Peers   []Who  `json:"peers,omitempty"`
	Ports   []Port `json:"ports,omitempty"`
}

// Who is one of: pods, the cluster's DNS, a range of addresses.
type Who struct {
	Pods       *metav1.LabelSelector `json:"pods,omitempty"`
	Namespaces []string              `json:"namespaces,omitempty"` // of the pods, at home
	DNS        bool                  `json:"dns,omitempty"`
	Block      *networkingv1.IPBlock `json:"block,omitempty"`
}

// Port is a number, a range of them, or a name; none of them means all ports of the protocol.
type Port struct {
	Protocol string `json:"protocol"` // TCP, UDP or SCTP
	Port     int32  `json:"port,omitempty"`
	End      int32  `json:"end,omitempty"`
	Name     string `json:"name,omitempty"`
}

// Answer says which policies are not enforced there.
type Answer struct {
	Refused []Refused `json:"refused,omitempty"`
}

// Refused is one of them.
type Refused struct {
	Namespace string `json:"namespace"` // at home
	Name      string `json:"name"`
	Why       string `json:"why"`
}

// Validate checks the bounds.
func (p *Policies) Validate() error {
	rules, parts, names := 0, 0, 0
	for i := range p.Policies {
		for _, d := range []*Rules{p.Policies[i].Ingress, p.Policies[i].Egress} {
			if d == nil {
				continue
			}
			rules += len(d.Rules)
			for j := range d.Rules {
				parts += len(d.Rules[j].Ports)
				for k := range d.Rules[j].Ports {
					if d.Rules[j].Ports[k].Name != "" {
						names++
					}
				}
				for k := range d.Rules[j].Peers {
					peer := &d.Rules[j].Peers[k]
					if parts += 1 + len(peer.Namespaces); peer.Block != nil {
						parts += len(peer.Block.Except)
					}
				}
			}
		}
	}
	for _, bound := range []struct {
		what      string
		has, most int
	}{{"policies", len(p.Policies), maxPolicies}, {"rules", rules, maxRules}, {"peers, namespaces, exceptions and ports", parts, maxParts}, {"names of ports", names, maxNamed}} {
		if bound.has > bound.most {
			return fmt.Errorf("%d %s in the offloaded namespaces together, at most %d are taken", bound.has, bound.what, bound.most)
		}
	}
	return nil
}

// Validate checks the bounds.
func (a *Answer) Validate() error {
	if len(a.Refused) > maxPolicies {
		return fmt.Errorf("%d refused, at most %d were sent", len(a.Refused), maxPolicies)
	}
	return nil
}

// bound is how much may be made of a message, as of those of the peering protocol.
var bound = wire.Bound{Factor: 12, Slack: 64 << 10}

var shape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Policies]())

// Read takes a message from whoever sends one. The error is for the sender.
func Read(body io.Reader) (*Policies, error) {
	data, err := io.ReadAll(io.LimitReader(body, MaxMessage+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("body: did not come whole and in time")
	case len(data) > MaxMessage:
		return nil, fmt.Errorf("body: more than %d bytes", MaxMessage)
	}
	p := new(Policies)
	if err := shape.Check(data, bound); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return p, p.Validate()
}

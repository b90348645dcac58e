package grants

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Consumer is a peer as hosting needs it.
type Consumer struct {
	ID      string // identity.ID.String
	Compact string // identity.ID.Compact
	Name    string // name of the Peer object here
}

// ConsumerOf reads a Peer. The error says that its ID is malformed.
func ConsumerOf(peer *v1alpha1.Peer) (Consumer, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return Consumer{}, fmt.Errorf("peer %s: %w", peer.Name, err)
	}
	return Consumer{ID: id.String(), Compact: id.Compact(), Name: peer.Name}, nil
}

// Terms is what hosting holds a consumer to under one contract.
type Terms struct {
	Contract       string // spec.id
	Object         string // name of the Contract object
	Consumer       Consumer
	Level          v1alpha1.PodSecurityLevel
	Limit          corev1.ResourceList
	Images         ImageRules
	DeviceClass    string // RuntimeClass of guests that ask for devices; "" is that of all guests
	UserNamespaces bool   // guests can have user namespaces of their own here
	Network
	NotAfter   *metav1.Time // nil: no end
	Changes    *metav1.Time // when Limit becomes less, by a notice; nil: never, as far as is known
	Why        string       // why it is not in force; empty when it is
	KeepsNames bool         // its namespaces may be called here as at home
	Reserved   []string     // but not like these

	Kinds []v1alpha1.GuestKind // of custom resources that it may keep here

	Provider string            // this cluster's own ID, as it signed; "" where that cannot be read
	Reoffer  bool              // it may offer on what it is granted
	Evicts   bool              // what runs beyond Limit is evicted: the contract was lowered to it
	For      map[string]*Terms // then, by the compact ID: what holds in namespaces that it has for another cluster, which say so (Twin.Origin)
	Onward   []OnwardTo        // providers of this cluster to which its guests went on, or may
	Parts    []Part            // what it has where, if it is told of each provider; this cluster's own first
}

// OnwardTo is a provider of this cluster to which guests may go on.
type OnwardTo struct {
	ID, Peer  string // the Peer's name
	Guests    string // the addresses of those there, a range
	Withdrawn bool   // no more may: what is granted by it is not offered on any longer
}

// MayGoOn are the providers to which guests may go on now.
func (t *Terms) MayGoOn() []OnwardTo {
	return slices.DeleteFunc(slices.Clone(t.Onward), func(to OnwardTo) bool { return to.Withdrawn })
}

// withdraw notes to which providers no more guests go, when what they grant is offered on by these contracts.
func (t *Terms) withdraw(still []*v1alpha1.Contract) {
	for i := range t.Onward {
		t.Onward[i].Withdrawn = !slices.ContainsFunc(still, func(ctr *v1alpha1.Contract) bool { return ctr.Spec.Peer == t.Onward[i].Peer })
	}
}

// in is what holds in a twin: for a cluster of which the consumer said no addresses, the same without any.
func (t *Terms) in(tw Twin) *Terms {
	if t == nil || tw.Origin == "" {
		return t
	}
	if of := t.For[tw.Origin]; of != nil {
		return of
	}
	none := *t
	none.Network, none.Onward, none.For, none.Parts = Network{}, nil, nil, nil
	return &none
}

// onward fills in what goes on: from this cluster to its providers, and by way of the consumer to this one.
func (t *Terms) onward(peer *v1alpha1.Peer, peers []*v1alpha1.Peer) {
	pair, err := peer.Status.Network.Pair(netip.Prefix{})
	if err != nil {
		return
	}
	for _, r := range pair.Relayed {
		if i := slices.IndexFunc(peers, func(p *v1alpha1.Peer) bool { return p.Spec.ID == r.ID }); i >= 0 {
			t.Onward = append(t.Onward, OnwardTo{ID: r.ID, Peer: peers[i].Name, Guests: r.Guests.String()})
		}
	}
	for _, o := range pair.Onward {
		id, err := identity.ParseID(o.ID)
		if err != nil { // without the term none are let in (ForAnother), but those that are here keep their addresses
			continue
		}
		of := *t
		of.For, of.Onward, of.Parts, of.Network = nil, nil, nil, Network{Guests: o.Network.String(), Part: o.Guests.String(), Space: text(o.Elsewhere()), Services: o.Services.String()}
		if !o.Services.IsValid() {
			of.Services = ""
		}
		if t.For == nil {
			t.For = map[string]*Terms{}
		}
		t.For[id.Compact()] = &of
	}
}

// whyNot says why no pod may run under the contract at this moment; empty when they may: this cluster provides, both
// signed, it has not run out, and nobody is ending it. A consumer that cannot be reached changes nothing.
func whyNot(contract *v1alpha1.Contract, now time.Time) string {
	spec := &contract.Spec
	switch state := contract.Status.State; {
	case spec.Role != v1alpha1.RoleProvider:
		return "this cluster is not the provider"
	case len(spec.ConsumerSignature) == 0 || len(spec.ProviderSignature) == 0:
		return "it is not signed by both"
	case !contract.DeletionTimestamp.IsZero(), state == v1alpha1.StateEnding:
		return "it is ending"
	case spec.NotAfter != nil && !now.Before(spec.NotAfter.Time):
		return "it ran out at " + spec.NotAfter.UTC().Format(time.RFC3339)
	case state != "" && state != v1alpha1.StateContracted && state != v1alpha1.StateConnected && state != v1alpha1.StateUnreachable:
		return "its state is " + string(state)
	}
	return ""
}

func termsOf(contract *v1alpha1.Contract, peer *v1alpha1.Peer, policies []v1alpha1.SharingPolicy, pods netip.Prefix, now time.Time) (*Terms, error) {
	consumer, err := ConsumerOf(peer)
	if err != nil {
		return nil, err
	}
	signed := signedIn(contract.Spec.Document)
	if !signed.Consumer.ID.IsZero() && signed.Consumer.ID.String() != consumer.ID {
		return nil, fmt.Errorf("it was signed by %s, and the peer %s has another key now: %s", signed.Consumer.ID, peer.Name, consumer.ID)
	}
	policy := sharing.Select(policies, peer)
	deviceClass := ""
	var kinds []v1alpha1.GuestKind
	if policy != nil {
		deviceClass, kinds = policy.Spec.DeviceRuntimeClass, policy.Spec.Kinds
	}
	provider := ""
	if !signed.Provider.ID.IsZero() {
		provider = signed.Provider.ID.String()
	}
	var changes *metav1.Time
	if l := contract.Status.Lowering; l != nil && now.Before(l.From.Time) {
		changes = &l.From
	}
	return &Terms{
		Provider: provider, Reoffer: signed.Reoffer, Evicts: signed.Notice != 0 && contract.Lowered(now),
		Contract: contract.Spec.ID, Object: contract.Name, Consumer: consumer,
		Level:  sharing.Level(policy),
		Images: imageRulesOf(policy), DeviceClass: deviceClass,
		Limit: contract.Grants(now), Changes: changes,
		Network:    NetworkOf(peer, pods),
		NotAfter:   contract.Spec.NotAfter,
		Why:        whyNot(contract, now),
		KeepsNames: sharing.SameName(policy),
		Reserved:   sharing.Reserved(policies),
		Kinds:      kinds,
	}, nil
}

// InForce asks again about the end, which comes without anybody writing anything.
func (t *Terms) InForce(now time.Time) bool {
	return t != nil && t.Why == "" && (t.NotAfter == nil || now.Before(t.NotAfter.Time))
}

// signedTerms is what of a contract's document is read here. The consumer: a Peer that was forgotten and another of its name must not be taken for each
// other.
type signedTerms struct {
	Consumer, Provider struct {
		ID identity.ID `json:"id"`
	}
	Reoffer bool  `json:"reoffer"`
	Notice  int64 `json:"notice"`
}

func signedIn(document []byte) (signed signedTerms) {
	if err := json.Unmarshal(document, &signed); err != nil {
		return signedTerms{}
	}
	return signed
}

// Reasons of a refusal, as they stand in an OffloadedPod's status.
const (
	ReasonNoContract   = "NoContract"
	ReasonNoNetwork    = "NoNetwork"
	ReasonNotFenced    = "NotFenced" // on no node here a fence is alive
	reasonExceeded     = "ContractExceeded"
	ReasonPodSecurity  = "PodSecurity"
	ReasonSysctl       = "SysctlForbidden" // as kubelets say it
	ReasonImage        = "ImageNotAllowed"
	ReasonNotSupported = "NotSupported"
	ReasonInvalid      = "Invalid"
	ReasonNameTaken    = "NameTaken"
	ReasonForbidden    = "Forbidden"
	ReasonQuota        = "QuotaExceeded"
	ReasonNamespaces   = "TooManyNamespaces"
	ReasonNoLonger     = "NoLongerGranted" // it ran, and is evicted: the contract was lowered
	ReasonNotBehind    = "NotBehind"       // who is to run it is not, or does not run such pods
	ReasonNotReoffered = "NotReoffered"    // it is for another cluster than the consumer, and that is not granted
)

// Refusal is the provider's no to a pod.
type Refusal struct{ Reason, Message string }

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

func Refused(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Cut shortens a text to n bytes.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}

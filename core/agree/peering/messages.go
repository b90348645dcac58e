package peering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// Protocol is the version of the protocol this package speaks. Within it fields may be added, and readers
// pass over those they do not know; what an old reader must not pass over makes a new version. Hello stays where the
// first version had it, so that any two can tell each other what they speak.
const Protocol = "kith/v2"

// Bounds of messages.
const (
	MaxMessage   = 64 << 10  // bytes of a body
	maxSigned    = 128 << 10 // bytes of a body with a contract: its document, 64 KiB, is base64 in it
	maxLine      = 4 << 10   // bytes of a line of presence
	maxEndpoints = 16
	maxLabels    = 64
	maxReason    = 256
)

// Hello is what a daemon says about itself. Only the ID is proven, by TLS.
type Hello struct {
	Version  string      `json:"version"`  // of the program, for people
	ID       identity.ID `json:"id"`       // as in the TLS handshake
	Name     string      `json:"name"`     // as the cluster calls itself
	Protocol []string    `json:"protocol"` // versions spoken, Protocol among them
}

// Question asks for resources.
type Question struct {
	Name      string            `json:"name"`                // as the asking cluster calls itself
	Resources map[string]string `json:"resources,omitempty"` // quantities; none means all there is to offer
	Endpoints []string          `json:"endpoints,omitempty"` // host:port of the asker's own peer API, best first
	Attempt   int64             `json:"attempt"`             // counts the times it was asked by hand
	Contract  string            `json:"contract,omitempty"`  // ID of the contract in force that it would change, as the asker has it
	// Network is contract.NetworkNone where the asker wants no tunnel; a provider of before there was this field offers one all the same.
	Network string `json:"network,omitempty"`
	// Tether says that one of the two runs the other. Only one whose GetTether was answered is asked so: others would take the
	// question for one about resources.
	Tether TetherAsk `json:"tether,omitempty"`
}

// TetherAsk is what a question has to do with a tether.
type TetherAsk string

// The kinds of questions.
const (
	TetherNone    TetherAsk = ""        // nothing
	TetherLaptop  TetherAsk = "laptop"  // the asker wants the asked to run it; resources are of no account
	TetherCompany TetherAsk = "company" // the asker runs the asked, a laptop that wanted it to, and asks for all it has
)

// TetherGrant is what a company gives the users of a laptop that it runs.
type TetherGrant struct {
	User       string            `json:"user"`       // as whom they ask its API server, always: which of them it is, is for the laptop to know
	Namespaces []TetherNamespace `json:"namespaces"` // in which they may work
}

// TetherNamespace is a namespace of a company in which a laptop's users may work.
type TetherNamespace struct {
	Name string `json:"name"`
	Role string `json:"role"` // of a ClusterRole
}

// TetherAnswer is how a company answers, or would answer, a laptop's request to be tethered to it.
type TetherAnswer string

// The answers.
const (
	TetherNo   TetherAnswer = "no"   // no policy there selects the laptop
	TetherAsks TetherAnswer = "asks" // its owner is asked
	TetherYes  TetherAnswer = "yes"  // a policy answers
)

// Tether is the company's state of the tether with the laptop that calls.
type Tether struct {
	Answer TetherAnswer `json:"answer"`         // to the request
	Why    string       `json:"why,omitempty"`  // of a no
	Runs   bool         `json:"runs,omitempty"` // the company runs the laptop now, or is about to
	Grant  *TetherGrant `json:"grant,omitempty"`
}

// SupplyState says whether there is something to ask for.
type SupplyState string

// The states of a Supply.
const (
	SupplySome    SupplyState = "some"
	SupplyPaused  SupplyState = "paused"  // its owner shares with the caller, but not now
	SupplyNothing SupplyState = "nothing" // no policy is for the caller, or all is given away
)

// Supply is what the caller would be granted now if it asked for everything.
type Supply struct {
	State     SupplyState       `json:"state"`
	Resources map[string]string `json:"resources,omitempty"` // quantities; with SupplySome
	Why       string            `json:"why,omitempty"`       // for the user, else
}

// Offer answers a question: the terms a contract would have.
type Offer struct {
	contract.Terms
	NodeLabels map[string]string `json:"nodeLabels,omitempty"` // for the virtual node
	ValidUntil time.Time         `json:"validUntil"`           // the offer lapses unless signed by then
	ValidFor   int64             `json:"validFor"`             // seconds a contract of it runs
}

// OutcomeState is how far a question is.
type OutcomeState string

// The states of a question.
const (
	OutcomePending  OutcomeState = "pending"
	OutcomeAccepted OutcomeState = "accepted" // with an Offer
	OutcomeDeclined OutcomeState = "declined"
	OutcomeExpired  OutcomeState = "expired"
)

// Outcome is the answer to a question, so far.
type Outcome struct {
	State  OutcomeState `json:"state"`
	Reason string       `json:"reason,omitempty"` // of a decline, for the user
	Offer  *Offer       `json:"offer,omitempty"`  // there if accepted, to a question about resources
	Tether *TetherGrant `json:"tether,omitempty"` // there if accepted, to a question of TetherLaptop
}

// LinkPlan is how this version agrees on addresses: guests live in their home's address space. A Link without it comes from an older
// Kith, which would translate.
const LinkPlan = 2

// Link is what one side tells the other about the tunnel and the addresses behind it. What its sender does not know yet is the zero
// value; it puts its link again after it has the answer.
type Link struct {
	PublicKey string `json:"publicKey"` // WireGuard's, 32 bytes in base64
	Port      int    `json:"port"`      // UDP, at the address of the peer API
	Plan      int    `json:"plan"`      // LinkPlan

	Space    []netip.Prefix `json:"space"`             // the sender's address space: its pods first, then its guests at others than the receiver
	Services netip.Prefix   `json:"services,omitzero"` // the sender's
	At       netip.Addr     `json:"at"`                // of the sender's host, in Space; it answers an ICMP echo
	Here     netip.Prefix   `json:"here,omitzero"`     // for the receiver's guests at the sender; none where they cannot be taken in
	AtHere   netip.Addr     `json:"atHere,omitzero"`   // of the sender's host, in Here; it answers an ICMP echo
	There    netip.Prefix   `json:"there,omitzero"`    // for the sender's guests at the receiver: what that proposed, or another if it is not free

	IPv6 *LinkIPv6 `json:"ipv6,omitempty"` // none from a sender that has IPv4 alone, as each Kith before there was this field

	// Direct says that the receiver's guests at the sender may meet its guests at other providers without going by the receiver. Others are the providers
	// to which the sender introduces the receiver for its guests there; an older Kith introduces nobody.
	Direct bool           `json:"direct,omitempty"`
	Others []Introduction `json:"others,omitempty"`

	// Onward are clusters to which the sender offers on what the receiver grants it, each a home of guests at the receiver. One whose contract does not
	// let it, and a Kith of before there was this field, passes them over.
	Onward []Onward `json:"onward,omitempty"`

	Binding *Binding `json:"binding,omitempty"` // there once the sender knows the receiver's WireGuard key
}

// Introduction is what a home tells one of its providers of another, where the owners of both let its guests meet directly.
type Introduction struct {
	ID        identity.ID      `json:"id"`        // of the other
	PublicKey string           `json:"publicKey"` // the other's of WireGuard, proven to home
	Guests    netip.Prefix     `json:"guests"`    // of home at the other: one of the ranges of its space
	Endpoints []netip.AddrPort `json:"endpoints"` // where home reaches the other's WireGuard; none of them is proven
	Signature []byte           `json:"signature"` // Ed25519 by home's identity: of all but the endpoints, and for whom it is
}

// Onward is what a cluster tells its provider of a home whose guests go on to it.
type Onward struct {
	ID       identity.ID    `json:"id"`                // of the home
	Network  netip.Prefix   `json:"network"`           // the range of its guests at the sender
	Guests   netip.Prefix   `json:"guests"`            // of that, the part for those at the receiver
	Space    []netip.Prefix `json:"space"`             // what else means something in its address space
	Services netip.Prefix   `json:"services,omitzero"` // its
}

// LinkIPv6 is what a Link says of IPv6, beside IPv4. The ranges for guests, of each direction that has one of IPv4, are not said: they
// follow from both IDs (netplan.Guests6). Where both sides say this, and neither that it has another use for one of those, guests have both
// families.
type LinkIPv6 struct {
	Space    []netip.Prefix `json:"space"`             // the sender's address space: its pods first, then its guests at others than the receiver
	Services netip.Prefix   `json:"services,omitzero"` // the sender's
	At       netip.Addr     `json:"at"`                // of the sender's host, in Space
	Taken    []netip.Prefix `json:"taken,omitempty"`   // of the two ranges for guests, those that the sender's host or network has another use for
}

// Binding says that the WireGuard key of a Link is its sender's own. Both halves are about the same statement, which
// core/agree/relations makes of who speaks to whom and of both keys.
type Binding struct {
	PeerKey   string `json:"peerKey"`   // WireGuard's of the RECEIVER, as it told it
	Signature []byte `json:"signature"` // Ed25519 by the sender's identity, 64 bytes
	Proof     []byte `json:"proof"`     // MAC by the sender's WireGuard key (gateway.Prove), 32 bytes
}

// ContractRef names a contract in force between two clusters.
type ContractRef struct {
	ID       string        `json:"id"`
	Revision int64         `json:"revision"`
	Role     contract.Role `json:"role"` // of the one who tells it
	State    State         `json:"state"`
	// Lowering is there while the provider, who tells it, lowers what the contract grants, and that is not signed.
	Lowering *Lowering `json:"lowering,omitempty"`
}

// Lowering is a provider's notice that it lowers a contract, as its terms let it. The consumer is to sign it as the next revision, all but the amounts as
// they were; from then on no more is granted, whether it does or not.
type Lowering struct {
	Resources map[string]string `json:"resources"` // quantities; what is not named is granted no more
	In        int64             `json:"in"`        // in so many seconds; 0: now
}

// NoticeType says what a Notice is about.
type NoticeType string

// The types of notices. One that is not known is passed over.
const (
	NoticeContractEnded   NoticeType = "contract-ended"
	NoticeContractLowered NoticeType = "contract-lowered" // it is lowered, or to something else, or not any more: ContractRef says so
	NoticeSuspending      NoticeType = "suspending"       // the laptop goes to sleep
	NoticeAwake           NoticeType = "awake"            // it does not, or did, and is back
	NoticeBye             NoticeType = "bye"              // the daemon ends
	NoticeReceipt         NoticeType = "receipt"          // there is one of the contract to fetch (core/agree/receipts)
)

// Notice is news for a peer. It is a hint only: a peer that misses one gets the same by a call.
type Notice struct {
	Type     NoticeType `json:"type"`
	Contract string     `json:"contract,omitempty"` // its ID
	Why      string     `json:"why,omitempty"`      // for the user
	// Wake is the last word of one that suspends on whether the reader may wake it (core/trust/wake); nil where that is no term of a contract.
	Wake *canonical.Signed `json:"wake,omitempty"`
}

// Opening is the first message of a request. It has no content: that is sent with the asker's nonce.
type Opening struct{}

// Opened answers an Opening: it commits the responder to its nonce (identity.Commit has the order, and why).
type Opened struct {
	ID         string `json:"id"`         // for the question, which must follow within half a minute
	Commitment []byte `json:"commitment"` // identity.Commit, 32 bytes
}

// Asking is the question, with the asker's nonce.
type Asking struct {
	Nonce    []byte   `json:"nonce"`
	Question Question `json:"question"`
	// Compare says that the asker's owner is shown the code: then the responder shows it too, though it may know the key.
	Compare bool `json:"compare,omitempty"`
}

// Revealed says that the request was submitted to the owner, and reveals the responder's nonce.
type Revealed struct {
	ID      string    `json:"id"` // of the request
	Expires time.Time `json:"expires"`
	Nonce   []byte    `json:"nonce"`
	// Compare says that the responder's owner is shown the code: then the asker shows it too, though it may know the key.
	Compare bool `json:"compare,omitempty"`
}

// Beat is the heartbeat of the daemon, sent every 3 s to callers that it recognises. After the first one on a stream the next may be expected;
// older versions of Kith send none.
type Beat struct {
	// Ailing is why the daemon cannot do its work, for people: its Kubernetes does not answer. Empty when all is well.
	Ailing string `json:"ailing,omitempty"`
	// Asleep says that its Kubernetes does not run, as nobody needs it, and starts when somebody does: a request for it only takes longer.
	Asleep bool `json:"asleep,omitempty"`
	// Relays: it passes connections on between the reader and its other peers.
	Relays bool `json:"relays,omitempty"`
}

// presenceLine is a line of the presence stream; a line with none of these is passed over.
type presenceLine struct {
	Hello  *Hello  `json:"hello,omitempty"`
	Notice *Notice `json:"notice,omitempty"`
	Beat   *Beat   `json:"beat,omitempty"`

	CallBack *CallBack `json:"callBack,omitempty"`
}

// message is what can be decoded from the network.
type message interface{ Validate() error }

// decode reads one message: JSON of the right content type, of at most MaxMessage bytes (maxSigned with a contract), nothing
// behind it, valid.
// The error is a *Problem for the sender.
func decode(contentType string, body io.Reader, into message) error {
	media, params, err := mime.ParseMediaType(contentType)
	if charset, ok := params["charset"]; err != nil || media != "application/json" && media != MediaProblem || ok && !strings.EqualFold(charset, "utf-8") {
		return &Problem{Code: CodeBadRequest, Message: fmt.Sprintf("content type: %.64q is not application/json", contentType)}
	}
	max := MaxMessage
	if _, ok := into.(*signed); ok {
		max = maxSigned
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(max)+1))
	if err != nil {
		return &Problem{Code: CodeBadRequest, Message: "body: did not come whole and in time"}
	}
	if len(data) > max {
		return &Problem{Code: CodeTooLarge, Message: fmt.Sprintf("body: more than %d bytes", max)}
	}
	return unmarshal(data, into)
}

func unmarshal(data []byte, into message) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && !bytes.HasPrefix(data, []byte("[")) {
		return &Problem{Code: CodeBadRequest, Message: "body: is no JSON object"}
	}
	if err := shapeOf(into).Check(data, bound); err != nil {
		return &Problem{Code: CodeBadRequest, Message: wire.Line("body: "+err.Error(), maxReason)}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &Problem{Code: CodeBadRequest, Message: wire.Line("body: "+err.Error(), maxReason)}
	}
	if err := into.Validate(); err != nil {
		if problem, ok := errors.AsType[*Problem](err); ok {
			return problem
		}
		return &Problem{Code: CodeBadRequest, Message: wire.Line(err.Error(), maxReason)}
	}
	return nil
}

// bound is how much may be made of a message; with what is read and copied on the way it is less than sixteen times its bytes.
var bound = wire.Bound{Factor: 12, Slack: 64 << 10}

// shapes are those of the messages, made when the first of its kind comes.
var shapes struct {
	sync.Mutex
	types wire.Types
}

func shapeOf(into message) *wire.Shape {
	of := reflect.TypeOf(into).Elem()
	if outer, ok := into.(*unchecked); ok {
		of = reflect.TypeOf(outer.into).Elem()
	}
	shapes.Lock()
	defer shapes.Unlock()
	shapes.types.Fold = true
	return shapes.types.Of(of)
}

// signed and refs make what others define, or lists, decodable.
type signed struct{ contract.Signed }

func (s *signed) Validate() error {
	if len(s.Document) == 0 || len(s.Document) > contract.MaxDocument {
		return fmt.Errorf("document: has %d bytes, want 1 to %d", len(s.Document), contract.MaxDocument)
	}
	return nil
}

type refs []ContractRef

func (r *refs) Validate() error {
	if len(*r) > 256 {
		return fmt.Errorf("%d contracts, at most 256 are allowed", len(*r))
	}
	for i := range *r {
		if err := (*r)[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

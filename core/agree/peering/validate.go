package peering

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wake"
	"kith.dev/core/trust/wire"
)

// Validate checks a Hello that was received.
func (h *Hello) Validate() error {
	if h.ID.IsZero() {
		return errors.New("id: is missing")
	}
	if err := contract.CheckName(h.Name); err != nil {
		return err
	}
	if len(h.Version) > 64 || !wire.Printable(h.Version) {
		return fmt.Errorf("version: %.40q cannot be one", h.Version)
	}
	if len(h.Protocol) == 0 || len(h.Protocol) > 16 {
		return fmt.Errorf("protocol: %d entries, want 1 to 16", len(h.Protocol))
	}
	for _, p := range h.Protocol {
		if len(p) > 32 || !wire.Printable(p) {
			return fmt.Errorf("protocol: %.40q cannot be one", p)
		}
	}
	return nil
}

// Speaks says whether the daemon speaks this package's version of the protocol.
func (h *Hello) Speaks() bool { return slices.Contains(h.Protocol, Protocol) }

// Validate checks a Question.
func (q *Question) Validate() error {
	if err := contract.CheckName(q.Name); err != nil {
		return err
	}
	if err := contract.CheckResources(q.Resources); err != nil {
		return err
	}
	if len(q.Endpoints) > maxEndpoints {
		return fmt.Errorf("endpoints: %d entries, at most %d are allowed", len(q.Endpoints), maxEndpoints)
	}
	for _, e := range q.Endpoints {
		if err := CheckEndpoint(e); err != nil {
			return fmt.Errorf("endpoints: %w", err)
		}
	}
	if q.Attempt < 0 {
		return fmt.Errorf("attempt: %d is negative", q.Attempt)
	}
	if q.Network != "" && q.Network != contract.NetworkNone {
		return fmt.Errorf("network: %.32q is not %s", q.Network, contract.NetworkNone)
	}
	switch q.Tether {
	case TetherNone, TetherLaptop, TetherCompany:
	default:
		return fmt.Errorf("tether: %.32q is none of laptop, company", q.Tether)
	}
	if q.Contract != "" {
		return contract.CheckID(q.Contract)
	}
	return nil
}

// Validate checks a TetherGrant.
func (g *TetherGrant) Validate() error {
	if !userName.MatchString(g.User) {
		return fmt.Errorf("user: %.80q is not the name of a user", g.User)
	}
	if len(g.Namespaces) > maxTetherNamespaces {
		return fmt.Errorf("namespaces: %d entries, at most %d are allowed", len(g.Namespaces), maxTetherNamespaces)
	}
	for _, n := range g.Namespaces {
		if !namespaceName.MatchString(n.Name) {
			return fmt.Errorf("namespaces: %.80q is not the name of a namespace", n.Name)
		}
		if len(n.Role) > maxReason {
			return fmt.Errorf("namespaces: %s: role has %d bytes, at most %d are allowed", n.Name, len(n.Role), maxReason)
		}
		if err := checkLine("role", n.Role); err != nil {
			return err
		}
	}
	return nil
}

// Validate checks a Tether.
func (t *Tether) Validate() error {
	switch t.Answer {
	case TetherNo, TetherAsks, TetherYes:
	default:
		return fmt.Errorf("answer: %.32q is none of no, asks, yes", t.Answer)
	}
	if err := checkLine("why", t.Why); err != nil {
		return err
	}
	if t.Grant != nil {
		return t.Grant.Validate()
	}
	return nil
}

// maxTetherNamespaces bounds those that a company names to a laptop.
const maxTetherNamespaces = 64

var (
	userName      = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9:._@]{0,252}$`)
	namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?$`)

// CheckEndpoint checks a host:port: host is an IP address without zone or a DNS name, port 1 to 65535.
func CheckEndpoint(endpoint string) error {
	if len(endpoint) > 260 {
		return fmt.Errorf("%.40q is too long", endpoint)
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("%.64q is not host:port", endpoint)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%.64q: the port is not 1 to 65535", endpoint)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("%.64q: the zone means nothing to others", endpoint)
		}
		return nil
	}
	if len(host) > 253 || !hostname.MatchString(host) {
		return fmt.Errorf("%.64q: the host is neither an IP address nor a DNS name", endpoint)
	}
	return nil
}

var labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)

// Validate checks a Supply.
func (s *Supply) Validate() error {
	switch s.State {
	case SupplySome, SupplyPaused, SupplyNothing:
	default:
		return fmt.Errorf("state: %.32q is none of some, paused, nothing", s.State)
	}
	if err := contract.CheckResources(s.Resources); err != nil {
		return err
	}
	if len(s.Why) > maxReason {
		return fmt.Errorf("why: has %d bytes, at most %d are allowed", len(s.Why), maxReason)
	}
	return checkLine("why", s.Why)
}

// Validate checks an Offer. That it has lapsed is no error.
func (o *Offer) Validate() error {
	if err := o.Terms.Validate(); err != nil {
		return err
	}
	if len(o.NodeLabels) > maxLabels {
		return fmt.Errorf("nodeLabels: %d entries, at most %d are allowed", len(o.NodeLabels), maxLabels)
	}
	for name, value := range o.NodeLabels {
		if err := contract.CheckQualified(name); err != nil {
			return fmt.Errorf("nodeLabels: %w", err)
		}
		if !labelValue.MatchString(value) {
			return fmt.Errorf("nodeLabels: %s: %.40q is not the value of a label", name, value)
		}
	}
	if o.ValidUntil.IsZero() {
		return errors.New("validUntil: is missing")
	}
	if o.ValidFor < 1 || o.ValidFor > int64(10*365*24*time.Hour/time.Second) {
		return fmt.Errorf("validFor: %d s, want 1 s to ten years", o.ValidFor)
	}
	return nil
}

// Validate checks an Outcome.
func (o *Outcome) Validate() error {
	switch o.State {
	case OutcomePending, OutcomeAccepted, OutcomeDeclined, OutcomeExpired:
	default:
		return fmt.Errorf("state: %.32q is none of pending, accepted, declined, expired", o.State)
	}
	if err := checkLine("reason", o.Reason); err != nil {
		return err
	}
	switch accepted := o.State == OutcomeAccepted; {
	case accepted != (o.Offer != nil || o.Tether != nil):
		return fmt.Errorf("offer: must be there if and only if accepted, not when %s", o.State)
	case o.Offer != nil && o.Tether != nil:
		return errors.New("tether: there is an offer as well")
	case o.Offer != nil:
		return o.Offer.Validate()
	case o.Tether != nil:
		return o.Tether.Validate()
	}
	return nil
}

// Validate checks a ContractRef.
func (c *ContractRef) Validate() error {
	if err := contract.CheckID(c.ID); err != nil {
		return err
	}
	if c.Revision < 1 {
		return fmt.Errorf("revision: %d is not from 1", c.Revision)
	}
	if c.Role != contract.Consumer && c.Role != contract.Provider {
		return fmt.Errorf("role: %.32q is neither consumer nor provider", c.Role)
	}
	if !slices.Contains(States[:], c.State) {
		return fmt.Errorf("state: %.32q is none", c.State)
	}
	if c.Lowering == nil {
		return nil
	}
	if most := int64(contract.MaxNotice / time.Second); c.Lowering.In < 0 || c.Lowering.In > most {
		return fmt.Errorf("lowering: in %d s, want 0 to %d", c.Lowering.In, most)
	}
	return contract.CheckResources(c.Lowering.Resources)
}

// Validate checks a Notice; a type that is not known passes.
func (n *Notice) Validate() error {
	if n.Type == "" || len(n.Type) > 32 || !wire.Printable(string(n.Type)) {
		return fmt.Errorf("type: %.40q is none", n.Type)
	}
	if n.Contract != "" {
		if err := contract.CheckID(n.Contract); err != nil {
			return err
		}
	}
	if s := n.Wake; s != nil && (len(s.Document) > wake.MaxDocument || len(s.Signature) > ed25519.SignatureSize) {
		return fmt.Errorf("wake: has %d bytes and a signature of %d, at most %d and %d are allowed", len(s.Document), len(s.Signature), wake.MaxDocument, ed25519.SignatureSize)
	}
	return checkLine("why", n.Why)
}

var requestID = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,126}[A-Za-z0-9])?$`)

func checkRequestID(id string) error {
	if !requestID.MatchString(id) {
		return fmt.Errorf("request ID: %.40q cannot be one", id)
	}
	return nil
}

// Validate checks an Opening.
func (o *Opening) Validate() error { return nil }

// Validate checks an Opened.
func (o *Opened) Validate() error {
	if len(o.Commitment) != 32 {
		return fmt.Errorf("commitment: has %d bytes, want 32", len(o.Commitment))
	}
	return checkRequestID(o.ID)
}

// Validate checks an Asking.
func (a *Asking) Validate() error {
	if err := checkNonce(a.Nonce); err != nil {
		return err
	}
	return a.Question.Validate()
}

// Validate checks a Revealed.
func (r *Revealed) Validate() error {
	if err := checkNonce(r.Nonce); err != nil {
		return err
	}
	return checkRequestID(r.ID)
}

func checkNonce(nonce []byte) error {
	if len(nonce) != len(identity.Nonce{}) {
		return fmt.Errorf("nonce: has %d bytes, want %d", len(nonce), len(identity.Nonce{}))
	}
	return nil
}

// Validate checks a line of presence.
func (l *presenceLine) Validate() error {
	if l.Hello != nil {
		if err := l.Hello.Validate(); err != nil {
			return err
		}
	}
	if l.Notice != nil {
		if err := l.Notice.Validate(); err != nil {
			return err
		}
	}
	if l.Beat != nil {
		return l.Beat.Validate()
	}
	return nil
}

// Validate checks a Beat.
func (b *Beat) Validate() error { return checkLine("ailing", b.Ailing) }

func checkLine(field, text string) error {
	if len(text) > maxReason || !wire.Printable(text) {
		return fmt.Errorf("%s: longer than %d bytes, or not a line of text", field, maxReason)
	}
	return nil
}

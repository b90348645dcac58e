package contract

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/gowebpki/jcs"

	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	// Version is what documents call themselves, and Version2 those with a term that readers of the first would refuse, or
	// take for another: KeepVolumes, Reoffer, Network, Notice, Wake, a price of Traffic.
	Version  = "kith.dev/contract/v1"
	Version2 = "kith.dev/contract/v2"
	// MaxDocument bounds a document, in bytes.
	MaxDocument = 64 << 10
	// maxRevision keeps the number exact in JSON, whose numbers are IEEE doubles for RFC 8785.
	maxRevision = 1 << 31
)

// Role is a side of a contract.
type Role string

// The roles.
const (
	Consumer Role = "consumer" // asks for resources, and signs first
	Provider Role = "provider" // grants them, and countersigns
)

// Party is a side as the document names it.
type Party struct {
	ID   identity.ID       `json:"id"`   // hash of Key
	Name string            `json:"name"` // as the cluster calls itself; a hint
	Key  ed25519.PublicKey `json:"key"`  // 32 bytes, base64 in JSON
}

// Document is what both sign. Times have whole seconds, in UTC. A changed amount is a new revision of the
// same ID.
type Document struct {
	Version  string `json:"version"`
	ID       string `json:"id"`       // see NewID
	Revision int64  `json:"revision"` // from 1
	Consumer Party  `json:"consumer"`
	Provider Party  `json:"provider"`
	Terms
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Created   time.Time `json:"created"`
}

var contractID = regexp.MustCompile(`^[a-z0-9]{16}$`)

// NewID draws the ID of a new contract: 16 of a-z and 0-9, 82 bits. It fits a Kubernetes name and label.
func NewID() string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	id := make([]byte, 0, 16)
	for len(id) < cap(id) {
		var b [32]byte
		rand.Read(b[:]) // never fails, crypto/rand ends the program instead
		for _, c := range b {
			// 252 is a multiple of 36: the rest would make some letters likelier.
			if c < 252 && len(id) < cap(id) {
				id = append(id, alphabet[c%36])
			}
		}
	}
	return string(id)
}

// CheckID checks that id is of the form NewID gives.
func CheckID(id string) error {
	if !contractID.MatchString(id) {
		return fmt.Errorf("contract ID: %.40q is not 16 letters a-z and digits", id)
	}
	return nil
}

// Party gives the side that role names.
func (d Document) Party(role Role) (Party, error) {
	switch role {
	case Consumer:
		return d.Consumer, nil
	case Provider:
		return d.Provider, nil
	}
	return Party{}, fmt.Errorf("contract: %.32q is neither %s nor %s", role, Consumer, Provider)
}

// InForce says whether now is within the time of the contract. Both sides ask their own clock.
func (d Document) InForce(now time.Time) bool {
	return !now.Before(d.NotBefore) && now.Before(d.NotAfter)
}

// Follows checks that d may take the place of old: the same ID and the same keys, and a later revision.
func (d Document) Follows(old Document) error {
	switch {
	case d.ID != old.ID:
		return fmt.Errorf("contract %s: is not a revision of %s", d.ID, old.ID)
	case d.Consumer.ID != old.Consumer.ID || d.Provider.ID != old.Provider.ID:
		return fmt.Errorf("contract %s: revision %d is between other clusters than revision %d", d.ID, d.Revision, old.Revision)
	case d.Revision <= old.Revision:
		return fmt.Errorf("contract %s: revision %d does not come after revision %d", d.ID, d.Revision, old.Revision)
	}
	return nil
}

// Validate says what in the document cannot be meant. That it is over, or not yet in force, is no error.
func (d Document) Validate() error {
	switch want := d.Terms.DocumentVersion(); d.Version {
	case want:
	case Version, Version2:
		return fmt.Errorf("contract: version %s, and what it says is of %s", d.Version, want)
	default:
		return fmt.Errorf("contract: version %.64q, this Kith reads %s and %s", d.Version, Version, Version2)
	}
	if err := CheckID(d.ID); err != nil {
		return err
	}
	if d.Revision < 1 || d.Revision > maxRevision {
		return fmt.Errorf("contract %s: revision %d, want 1 to %d", d.ID, d.Revision, maxRevision)
	}
	for _, role := range []Role{Consumer, Provider} {
		if p, err := d.Party(role); err != nil {
			return err
		} else if err := p.Validate(); err != nil {
			return fmt.Errorf("contract %s: %s: %w", d.ID, role, err)
		}
	}
	if d.Consumer.ID == d.Provider.ID {
		return fmt.Errorf("contract %s: consumer and provider are the same cluster", d.ID)
	}
	if err := d.Terms.Validate(); err != nil {
		return fmt.Errorf("contract %s: %w", d.ID, err)
	}
	for name, t := range map[string]time.Time{"notBefore": d.NotBefore, "notAfter": d.NotAfter, "created": d.Created} {
		if t.Year() < 2000 || t.Year() > 9999 {
			return fmt.Errorf("contract %s: %s: the year %d cannot be meant", d.ID, name, t.Year())
		}
	}
	if !d.NotBefore.Before(d.NotAfter) {
		return fmt.Errorf("contract %s: ends before it begins", d.ID)
	}
	return nil
}

// Validate says what in the party cannot be meant; its ID is that of its key.
func (p Party) Validate() error {
	if len(p.Key) != ed25519.PublicKeySize {
		return fmt.Errorf("key has %d bytes, want %d", len(p.Key), ed25519.PublicKeySize)
	}
	if got := identity.IDOf(p.Key); got != p.ID {
		return &identity.MismatchError{Want: p.ID, Got: got}
	}
	return CheckName(p.Name)
}

// Canonical writes the document as canonical JSON (RFC 8785), after Validate. Times lose what is below
// a second.
func Canonical(d Document) ([]byte, error) {
	for _, t := range []*time.Time{&d.NotBefore, &d.NotAfter, &d.Created} {
		*t = t.UTC().Truncate(time.Second)
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("contract %s: %w", d.ID, err)
	}
	out, err := jcs.Transform(plain)
	if err != nil {
		return nil, fmt.Errorf("contract %s: %w", d.ID, err)
	}
	if len(out) > MaxDocument {
		return nil, fmt.Errorf("contract %s: has %d bytes, at most %d are allowed", d.ID, len(out), MaxDocument)
	}
	return out, nil
}

var documentShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Document]())

// Parse reads a document. It takes exactly the bytes that Canonical gives for the same content and nothing
// else, so one content has one signature, and no reader can see in it what another does not.
func Parse(doc []byte) (Document, error) {
	if len(doc) > MaxDocument {
		return Document{}, fmt.Errorf("contract: has %d bytes, at most %d are allowed", len(doc), MaxDocument)
	}
	if err := documentShape.Check(doc, wire.Bound{Factor: 12, Slack: 64 << 10}); err != nil {
		return Document{}, fmt.Errorf("contract: %w", err)
	}
	var d Document
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return Document{}, fmt.Errorf("contract: %w", readably(err))
	}
	again, err := Canonical(d)
	if err != nil {
		return Document{}, err
	}
	// Finds what the decoder tolerates: other case, order or spelling, repeated members, anything behind.
	if !bytes.Equal(again, doc) {
		return Document{}, errors.New("contract: is not written as canonical JSON (RFC 8785)")
	}
	return d, nil
}

// readably puts the decoder's own words into those of a reader; what a type of ours says of its text it leaves.
func readably(err error) error {
	var syntax *json.SyntaxError
	var form *json.UnmarshalTypeError
	var text base64.CorruptInputError
	var moment *time.ParseError
	switch {
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("is not JSON")
	case errors.As(err, &form):
		return fmt.Errorf("%.64q has another form than in a contract", form.Field)
	case errors.As(err, &text):
		return errors.New("a key in it is not base64")
	case errors.As(err, &moment), strings.HasPrefix(err.Error(), "Time."):
		return errors.New("a time in it is not of the form of RFC 3339")
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type
		return fmt.Errorf("%.64s is no field of a contract", field)
	}
	return err
}

package custom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/trust/wire"
)

// Path is where a provider keeps custom resources for a consumer: an upgrade to Protocol, then lines of JSON in both directions. The first of the
// consumer names the kinds that it will speak of; of each the provider says that it will not have it, or tells what it has, and says when that
// was all. From then on each side tells what changes.
const (
	Path     = "/kith/v2/objects"
	Protocol = "kith-objects"
)

// Bounds of the protocol.
const (
	MaxKinds      = 32
	MaxContent    = 64 << 10 // of one object, or of its status
	MaxDefinition = 1 << 20  // of a CustomResourceDefinition
	maxOther      = 4 << 10  // of what else is in a line
)

// Kind names one kind of custom resources.
type Kind struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
}

// GVR is the same as Kubernetes has it.
func (k Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// Name is that of its definition, RESOURCE.GROUP.
func (k Kind) Name() string { return k.Resource + "." + k.Group }

// Key names an object: its kind by the number in Ask.Kinds, its namespace by the name that home has for it.
type Key struct {
	Kind      int    `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Content is what an object says: all of its fields at the top but apiVersion, kind, metadata and status.
type Content struct {
	Key
	Digest  string          `json:"digest"` // of Content, as the consumer makes it; the provider keeps it with the object
	Content json.RawMessage `json:"content"`
}

// Definition is a CustomResourceDefinition (apiextensions.k8s.io/v1).
type Definition struct {
	Kind       int             `json:"kind"`
	Definition json.RawMessage `json:"definition"`
}

// Ask is a line of the consumer: one of these.
type Ask struct {
	Kinds  []Kind      `json:"kinds,omitempty"`
	Define *Definition `json:"define,omitempty"`
	Put    *Content    `json:"put,omitempty"`
	Delete *Key        `json:"delete,omitempty"`
}

// Reason is why something is not at a provider: one of a closed set.
type Reason string

// The reasons.
const (
	NotAllowed    Reason = "NotAllowed"    // the owner there does not let peers keep objects of the kind, or bring its definition
	Unknown       Reason = "Unknown"       // there is no such kind
	NotServed     Reason = "NotServed"     // not in that version
	ClusterScoped Reason = "ClusterScoped" // its objects are in no namespace
	TooMany       Reason = "TooMany"
	TooLarge      Reason = "TooLarge"
	Invalid       Reason = "Invalid" // the API server there refuses it
	NotOurs       Reason = "NotOurs" // somebody else made an object of that name there
	Failed        Reason = "Failed"  // it is tried again
)

// Refusal is a provider's no, to an object or, without a name, to a kind.
type Refusal struct {
	Key
	Reason Reason `json:"reason"`
	Why    string `json:"why,omitempty"` // for people
}

// State is an object as the provider has it.
type State struct {
	Key
	Digest     string          `json:"digest,omitempty"` // of the content that was put last; none when somebody there has changed it since
	Generation int64           `json:"generation,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
	Gone       bool            `json:"gone,omitempty"`
}

// Tell is a line of the provider: one of these.
type Tell struct {
	Refused *Refusal `json:"refused,omitempty"`
	State   *State   `json:"state,omitempty"`
	Kept    *int     `json:"kept,omitempty"` // objects of the kind are kept there; what there was of it, was told
}

// open is any JSON object as it is decoded into a map.
var open = new(wire.Types).Of(reflect.TypeFor[map[string]any]())

// bound is how much may be made of a content.
var bound = wire.Bound{Factor: 12, Slack: 64 << 10}

// Fields decodes a content or a status that somebody else sent; nil is no error, and no fields.
func Fields(raw json.RawMessage, most int) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > most {
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(raw), most)
	}
	if err := open.Check(raw, bound); err != nil {
		return nil, err
	}
	fields := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, err
	}
	return numbers(fields).(map[string]any), nil
}

// numbers are int64 or float64, as in unstructured objects.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = numbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = numbers(x)
		}
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// Check reports what cannot be meant in a line.
func (a *Ask) Check(kinds int) error {
	if len(a.Kinds) > 0 {
		return errors.New("kinds: are named once, first")
	}
	switch {
	case a.Put != nil:
		return a.Put.check(kinds)
	case a.Delete != nil:
		return a.Delete.check(kinds)
	case a.Define != nil && (a.Define.Kind < 0 || a.Define.Kind >= kinds):
		return fmt.Errorf("kind %d was not named", a.Define.Kind)
	}
	return nil
}

func (k *Key) check(kinds int) error {
	switch {
	case k.Kind < 0 || k.Kind >= kinds:
		return fmt.Errorf("kind %d was not named", k.Kind)
	case len(validation.IsDNS1123Label(k.Namespace)) > 0:
		return fmt.Errorf("%.80q is no namespace", k.Namespace)
	case len(validation.IsDNS1123Subdomain(k.Name)) > 0:
		return fmt.Errorf("%.80q is no name of an object", k.Name)
	}
	return nil
}

// CheckKinds reports what cannot be meant in the first line.
func (a *Ask) CheckKinds() error {
	if len(a.Kinds) == 0 || len(a.Kinds) > MaxKinds {
		return fmt.Errorf("kinds: %d, want 1 to %d", len(a.Kinds), MaxKinds)
	}
	for _, k := range a.Kinds {
		if len(validation.IsDNS1123Subdomain(k.Group)) > 0 || len(validation.IsDNS1123Label(k.Version)) > 0 || len(validation.IsDNS1123Label(k.Resource)) > 0 {
			return fmt.Errorf("kinds: %.80q is none", k.Name())
		}
	}
	return nil
}

// NewLines reads the messages of one side, with at most so many bytes of content.
func NewLines(r io.Reader, most int) *wire.Lines {
	return wire.NewLines(r, most+maxOther, messages, bound)
}

var messages = wire.Messages(Ask{}, Tell{})

package door

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/codec"
)

// BodyBound is how much a body may cost: the API server to decode, keep and index it, and this daemon after it.
var BodyBound = wire.Bound{Factor: 12, Slack: 512 << 10}

// openBound is the same for an OffloadedPod as the API server decodes it, of any fields, which is all that is made of it there:
// honest pods come near to what it allows. Each of the variables that take their value from a Secret is four objects.
var openBound = wire.Bound{Factor: 15, Slack: 1 << 20}

// booked is what the API server spends besides on each entry of a map: it notes who wrote it (managedFields).
const booked = 256

// open is an object of any fields, as the API server decodes custom resources, and patches of all kinds. It keeps books
// about fields, but not inside of lists.
var open = (&wire.Types{Entry: booked / 4}).Of(reflect.TypeFor[map[string]any]())

// contents are what consumers send, by their resource.
var contents = func() map[string]content {
	typed := codec.Types()
	typed.Entry = booked
	all := map[string]content{}
	for _, k := range kinds.Written() {
		c := content{k.Name, []*wire.Shape{typed.Of(reflect.TypeOf(k.Type).Elem())}, k.Check, k.Here}
		if k.Custom() {
			c.shapes = append([]*wire.Shape{open}, c.shapes...)
		}
		all[k.Resource.Resource] = c
	}
	return all
}()

var deletion = content{"DeleteOptions", []*wire.Shape{codec.Types().Of(reflect.TypeFor[metav1.DeleteOptions]())}, nil, nil}

// content is what a body holds: what it costs to be decoded, and what else is looked at.
type content struct {
	kind   string
	shapes []*wire.Shape // all of which have to allow it: of the API server, and of this daemon
	check  func(media string, body []byte) (weight int64, err error)
	here   func(body []byte, t netplan.Translation) ([]byte, error) // nil: no addresses are in it
}

// JSON only: it is enough for those who write, and its cost is known before it is decoded. Patches by operations are not
// taken: they make much of little, and their paths would have to be followed.
var patches = []string{string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

// checkBody refuses what no consumer has to say, and what would cost too much to be heard. The API server decodes a body as
// the kind that it names, before it looks whether that belongs at this path, and to parse an amount in a Pod may take it
// hours (codec.Types).
//
// weight is what the object costs besides its bytes, in bytes of the kind of which it may send so many (Stored).
func checkBody(info apiproxy.Info, method, contentType string, body []byte) (weight int64, err error) {
	is, known := contents[info.Resource]
	switch {
	case method == http.MethodDelete:
		is = deletion
	case !known || info.Subresource != "":
		return 0, errors.New("nothing can be written here")
	}
	if contentType == "" {
		contentType = runtime.ContentTypeJSON // as the API server has it
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, fmt.Errorf("content type %.64q: %w", contentType, err)
	}
	patch := method == http.MethodPatch
	if patch && !slices.Contains(patches, media) || !patch && media != runtime.ContentTypeJSON {
		return 0, fmt.Errorf("content type %.64q is not taken: bodies are JSON", contentType)
	}
	shapes := is.shapes
	if patch {
		shapes = append([]*wire.Shape{open}, shapes...)
	}
	for _, shape := range shapes {
		bound := BodyBound
		if shape == open && !patch {
			bound = openBound
		}
		if err := shape.Check(body, bound); err != nil {
			return 0, fmt.Errorf("%s: %w", is.kind, err)
		}
	}
	if err := is.named(body); err != nil {
		return 0, err
	}
	var head struct {
		Metadata struct {
			OwnerReferences []struct{} `json:"ownerReferences"`
			ManagedFields   []struct {
				FieldsV1 json.RawMessage `json:"fieldsV1"`
			} `json:"managedFields"`
			Finalizers  []string           `json:"finalizers"`
			Labels      map[string]*string `json:"labels"`
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := Read(body, &head); err != nil {
		return 0, fmt.Errorf("%s: %w", is.kind, err)
	}
	m := &head.Metadata
	switch {
	case len(m.ManagedFields) > kinds.MaxWriters:
		return 0, fmt.Errorf("metadata.managedFields: %d writers, at most %d are taken", len(m.ManagedFields), kinds.MaxWriters)
	case len(m.OwnerReferences) > 0:
		return 0, errors.New("metadata.ownerReferences: are not taken")
	case len(m.Finalizers) > kinds.MaxFinalizers:
		return 0, fmt.Errorf("metadata.finalizers: %d, at most %d are taken", len(m.Finalizers), kinds.MaxFinalizers)
	case len(m.Labels) > kinds.MaxMarks || len(m.Annotations) > kinds.MaxMarks:
		return 0, fmt.Errorf("metadata: %d labels and %d annotations, at most %d of each are taken", len(m.Labels), len(m.Annotations), kinds.MaxMarks)
	}
	for i := range m.ManagedFields { // which clients send back as they came; the API server makes sets of them
		if raw := m.ManagedFields[i].FieldsV1; raw != nil {
			if err := open.Check(raw, BodyBound); err != nil {
				return 0, fmt.Errorf("metadata.managedFields[%d].fieldsV1: %w", i, err)
			}
		}
	}
	for key, value := range m.Annotations {
		if value != nil && len(*value) > kinds.MaxMark {
			return 0, fmt.Errorf("metadata.annotations[%.64q]: has %d bytes, at most %d are taken", key, len(*value), kinds.MaxMark)
		}
	}
	if is.check == nil {
		return 0, nil
	}
	return is.check(media, body)
}

// named refuses a body that names another kind than its path does, anywhere that the API server could look. Without one it
// is of the kind of its path.
func (c content) named(body []byte) error {
	return wire.Fields(body, func(name, value []byte) error {
		if strings.EqualFold(string(name), "kind") && string(value) != strconv.Quote(c.kind) {
			return fmt.Errorf("a %.64s cannot be written here", value)
		}
		return nil
	})
}

// Read decodes like the API server, which takes names of fields in one case only. The cost was looked at before.
func Read(body []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(body, into) }

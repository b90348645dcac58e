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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/apiproxy"
	"kith.dev/core/wire"
	"kith.dev/core/wire/codec"
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

// wares are the kinds that a consumer writes, by their resource.
var wares = func() map[string]ware {
	typed := codec.Types()
	typed.Entry = booked
	return map[string]ware{
		"offloadedpods":  {"OffloadedPod", []*wire.Shape{open, typed.Of(reflect.TypeFor[v1alpha1.OffloadedPod]())}, checkOffloaded},
		"services":       {"Service", []*wire.Shape{typed.Of(reflect.TypeFor[corev1.Service]())}, checkService},
		"configmaps":     {"ConfigMap", []*wire.Shape{typed.Of(reflect.TypeFor[corev1.ConfigMap]())}, nil},
		"secrets":        {"Secret", []*wire.Shape{typed.Of(reflect.TypeFor[corev1.Secret]())}, nil},
		"endpointslices": {"EndpointSlice", []*wire.Shape{typed.Of(reflect.TypeFor[discoveryv1.EndpointSlice]())}, checkSlice},
	}
}()

var deletion = ware{"DeleteOptions", []*wire.Shape{codec.Types().Of(reflect.TypeFor[metav1.DeleteOptions]())}, nil}

// ware is one kind: what it costs to be decoded, and what else is looked at.
type ware struct {
	kind   string
	shapes []*wire.Shape // all of which have to allow it: of the API server, and of this daemon
	check  func(media string, body []byte) (weight int64, err error)
}

// JSON only: it is enough for those who write, and its cost is known before it is decoded. Patches by operations are not
// taken: they make much of little, and their paths would have to be followed.
var patches = []string{string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

// checkBody refuses what no consumer has to say, and what would cost too much to be heard. The API server decodes a body as
// the kind that it names, before it looks whether that belongs at this path, and to parse an amount in a Pod may take it
// hours (codec.Types).
//
// weight is what the object costs besides its bytes, in bytes of the kind of which it may send so many (Stock).
func checkBody(info apiproxy.Info, method, contentType string, body []byte) (weight int64, err error) {
	goods, known := wares[info.Resource]
	switch {
	case method == http.MethodDelete:
		goods = deletion
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
	shapes := goods.shapes
	if patch {
		shapes = append([]*wire.Shape{open}, shapes...)
	}
	for _, shape := range shapes {
		bound := BodyBound
		if shape == open && !patch {
			bound = openBound
		}
		if err := shape.Check(body, bound); err != nil {
			return 0, fmt.Errorf("%s: %w", goods.kind, err)
		}
	}
	if err := goods.named(body); err != nil {
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
		return 0, fmt.Errorf("%s: %w", goods.kind, err)
	}
	m := &head.Metadata
	switch {
	case len(m.ManagedFields) > maxWriters:
		return 0, fmt.Errorf("metadata.managedFields: %d writers, at most %d are taken", len(m.ManagedFields), maxWriters)
	case len(m.OwnerReferences) > 0:
		return 0, errors.New("metadata.ownerReferences: are not taken")
	case len(m.Finalizers) > maxFinalizers:
		return 0, fmt.Errorf("metadata.finalizers: %d, at most %d are taken", len(m.Finalizers), maxFinalizers)
	case len(m.Labels) > maxMarks || len(m.Annotations) > maxMarks:
		return 0, fmt.Errorf("metadata: %d labels and %d annotations, at most %d of each are taken", len(m.Labels), len(m.Annotations), maxMarks)
	}
	for i := range m.ManagedFields { // which clients send back as they came; the API server makes sets of them
		if raw := m.ManagedFields[i].FieldsV1; raw != nil {
			if err := open.Check(raw, BodyBound); err != nil {
				return 0, fmt.Errorf("metadata.managedFields[%d].fieldsV1: %w", i, err)
			}
		}
	}
	for key, value := range m.Annotations {
		if value != nil && len(*value) > maxMark {
			return 0, fmt.Errorf("metadata.annotations[%.64q]: has %d bytes, at most %d are taken", key, len(*value), maxMark)
		}
	}
	if goods.check == nil {
		return 0, nil
	}
	return goods.check(media, body)
}

// named refuses a body that names another kind than its path does, anywhere that the API server could look. Without one it
// is of the kind of its path.
func (w ware) named(body []byte) error {
	return wire.Fields(body, func(name, value []byte) error {
		if strings.EqualFold(string(name), "kind") && string(value) != strconv.Quote(w.kind) {
			return fmt.Errorf("a %.64s cannot be written here", value)
		}
		return nil
	})
}

// Bounds of what stands on an object. The admission policies (bounds) hold the object that comes of a patch to the same.
const (
	maxMarks      = 32 // labels, and annotations
	maxMark       = 1 << 10
	maxFinalizers = 4
	maxEntries    = 1000 // of a ConfigMap or Secret
	maxPorts      = 100  // of a Service
	// maxPairs is how many pairs of address and port an EndpointSlice may make: kube-proxy keeps each by itself. The
	// endpoint slice controller makes slices of 100 addresses, which leaves 25 ports.
	maxPairs = 2500
)

// Read decodes like the API server, which takes names of fields in one case only. The cost was looked at before.
func Read(body []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(body, into) }

// checkOffloaded: a template is sent whole. Patch by patch a pod could be made of what no single body may be.
func checkOffloaded(media string, body []byte) (int64, error) {
	if media == runtime.ContentTypeJSON {
		return 0, nil
	}
	var fields map[string]json.RawMessage
	if err := Read(body, &fields); err != nil {
		return 0, err
	}
	for field := range fields {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			return 0, fmt.Errorf("%.64s: of an OffloadedPod only the metadata can be patched; write it whole", field)
		}
	}
	return 0, nil
}

func checkService(_ string, body []byte) (int64, error) {
	var service struct {
		Spec struct {
			Ports []struct{} `json:"ports"`
		} `json:"spec"`
	}
	if err := Read(body, &service); err != nil {
		return 0, err
	}
	if n := len(service.Spec.Ports); n > maxPorts {
		return 0, fmt.Errorf("spec.ports: %d, at most %d are taken", n, maxPorts)
	}
	return 0, nil
}

// checkSlice: endpoints and ports come together, so that what is weighed here is what is kept.
func checkSlice(media string, body []byte) (int64, error) {
	var slice sliceSize
	if err := Read(body, &slice); err != nil {
		return 0, err
	}
	switch n := slice.pairs(); {
	case media != runtime.ContentTypeJSON && media != string(types.ApplyYAMLPatchType), slice.Endpoints == nil, slice.Ports == nil:
		return 0, errors.New("endpoints, ports: of an EndpointSlice both are written together; write it whole")
	case n > maxPairs:
		return 0, fmt.Errorf("endpoints, ports: %d addresses with %d ports each make %d pairs, at most %d are taken", slice.addresses(), len(slice.Ports), n, maxPairs)
	}
	return slice.weight(), nil
}

// sliceSize is of an EndpointSlice what makes it large.
type sliceSize struct {
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
	Ports []struct{} `json:"ports"`
}

func (s *sliceSize) addresses() (n int) {
	for i := range s.Endpoints {
		n += max(1, len(s.Endpoints[i].Addresses))
	}
	return n
}

func (s *sliceSize) pairs() int { return s.addresses() * max(1, len(s.Ports)) }

// weight: kube-proxy takes some 400 bytes for each pair, and of what a consumer sends sixteen times as much is expected.
func (s *sliceSize) weight() int64 { return 32 * int64(s.pairs()) }

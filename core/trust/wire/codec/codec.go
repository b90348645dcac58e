// Package codec decodes what a peer's API server says, and knows what objects of Kubernetes cost to be decoded
// (core/trust/wire). JSON only: one parser, whose cost is known, is enough between clusters.
package codec

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"kith.dev/core/trust/wire"
)

// MaxFrame is how long an answer of a peer may be, or one line of a view. The API server keeps no object of more than 2 MiB.
const MaxFrame = 4 << 20

// Bound is how much memory decoding what a peer sends may take. Together with reading and copying it stays below sixteen times the number of
// bytes sent (TestCost).
var Bound = wire.Bound{Factor: 12, Slack: 512 << 10}

// Types makes shapes of Kubernetes' types, whose amounts must not take hours to parse (plainAmount). Not to be
// used by many at once; shapes may.
func Types() *wire.Types {
	return &wire.Types{Leaves: map[reflect.Type]func([]byte) error{reflect.TypeFor[apiresource.Quantity](): amount}}
}

// plainAmount is what somebody else's amount may be to be parsed at all: resource.ParseQuantity works for hours at "1e-99999999", and
// comparing takes as long for "1e99999999", on all that memory holds. Nobody's amounts exceed it.
var plainAmount = regexp.MustCompile(`^[-+]?[0-9.]{0,40}([A-Za-z]{0,2}|[eE][-+]?[0-9]{1,2})$`)

func amount(raw []byte) error {
	text := raw
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	if len(text) > 64 || !plainAmount.Match(text) {
		return fmt.Errorf("%.40q is no amount of anything", text)
	}
	return nil
}

// Transport bounds how much of a peer's answers is read, and accepts no compression: a thousandth of the bytes could decompress to all.
func Transport(to http.RoundTripper) http.RoundTripper { return bounded{to} }

type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Accept-Encoding") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept-Encoding", "identity") // else the transport asks for gzip, and unpacks it
	}
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, MaxFrame)
	}
	return resp, err
}

// shapes are those of the types that may be decoded into.
type shapes map[reflect.Type]*wire.Shape

// decode fills an object in, when that may cost what it does.
func (s shapes) decode(data []byte, object any) error {
	shape := s[reflect.TypeOf(object).Elem()]
	if shape == nil {
		return fmt.Errorf("a %T was not asked for", object)
	}
	if err := shape.Check(data, Bound); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, object)
}

// Codec decodes the objects of a scheme, and Status objects, one at a time: what a peer has many of it tells in a view
// (core/consume/remote), and nobody lists or watches there. It is a runtime.NegotiatedSerializer for rest.Config.
type Codec struct {
	runtime.NegotiatedSerializer
	json runtime.SerializerInfo
}

// New is a codec for a scheme, which must have metav1 added to its groups.
func New(scheme *runtime.Scheme) *Codec {
	types, known := Types(), shapes{}
	for _, t := range scheme.AllKnownTypes() {
		known[t] = types.Of(t)
	}
	c := &Codec{NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}
	c.json, _ = runtime.SerializerInfoForMediaType(c.NegotiatedSerializer.SupportedMediaTypes(), runtime.ContentTypeJSON) // each factory has it
	c.json.Serializer, c.json.StreamSerializer = &decoder{c.json.Serializer, scheme, known}, nil
	return c
}

// SupportedMediaTypes is part of runtime.NegotiatedSerializer.
func (c *Codec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{c.json}
}

// decoder is the serializer of JSON, with a decoder of our own.
type decoder struct {
	runtime.Serializer
	scheme *runtime.Scheme
	shapes shapes
}

// Decode makes the object that data names: into when that is one of its kind, or else a Status, which is what a refusal is.
func (d *decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	apiVersion, kindName := wire.Kind(data)
	group, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, nil, err
	}
	kind := group.WithKind(kindName)
	if defaults != nil && kind.Empty() {
		kind = *defaults
	}
	object, err := d.scheme.New(kind)
	if err != nil {
		return nil, &kind, fmt.Errorf("%q was not asked for", kind)
	}
	switch {
	case reflect.TypeOf(object) == reflect.TypeOf(into):
		object = into
	case kind.Kind != "Status":
		return nil, &kind, fmt.Errorf("a %s came, a %T was asked for", kind.Kind, into)
	}
	if err := d.shapes.decode(data, object); err != nil {
		return nil, &kind, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, &kind, nil
}

// Reader decodes objects one by one whose kind is known from elsewhere, within the same bounds. One that cannot be decoded does not
// take the others along: it comes as one of its kind of which only the name is known. Unreadable tells why.
type Reader struct{ shapes shapes }

// NewReader is a reader for objects of these types, all of which must have metadata.
func NewReader(of ...runtime.Object) *Reader {
	types, r := Types(), &Reader{shapes{}}
	for _, o := range of {
		t := reflect.TypeOf(o).Elem()
		r.shapes[t] = types.Of(t)
	}
	return r
}

// Read decodes data into an object of one of the types. The error says that not even its name is known.
func (r *Reader) Read(data []byte, into runtime.Object) error {
	why := r.shapes.decode(data, into)
	if why == nil {
		return nil
	}
	reflect.ValueOf(into).Elem().SetZero()
	o, err := meta.Accessor(into)
	if err != nil {
		return err
	}
	o.SetName(wire.Text(data, "metadata", "name"))
	o.SetNamespace(wire.Text(data, "metadata", "namespace"))
	o.SetResourceVersion(wire.Text(data, "metadata", "resourceVersion"))
	o.SetAnnotations(map[string]string{annotationUnreadable: wire.Cut(why.Error(), 512)})
	if o.GetName() == "" {
		return why
	}
	return nil
}

// annotationUnreadable stands on an object in place of one that could not be decoded.
const annotationUnreadable = "kith.dev/unreadable"

// Unreadable says why an object could not be decoded; empty when it was.
func Unreadable(o metav1.Object) string { return o.GetAnnotations()[annotationUnreadable] }

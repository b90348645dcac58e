// Package codec decodes what a peer's API server says, and knows what objects of Kubernetes cost to be decoded
// (core/wire). JSON only: one parser, whose cost is known, is enough between clusters.
package codec

import (
	"fmt"
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/wire"
)

// Bounds of what a peer answers. A thousand pods are some 10 MiB; the API server keeps no object of more than 2.
const (
	maxAnswer = 64 << 20
	// MaxFrame is how long one event of a watch may be, or one line of a view.
	MaxFrame = 4 << 20
)

// Bound is how much may be made of what a peer sends. With what is read and copied on the way all of it stays below
// sixteen times its bytes (TestCost).
var Bound = wire.Bound{Factor: 12, Slack: 512 << 10, Most: 256 << 20}

// Types makes shapes of Kubernetes' types, whose amounts must not take hours to parse (v1alpha1.PlainAmount). Not to be
// used by many at once; shapes may.
func Types() *wire.Types {
	return &wire.Types{Leaves: map[reflect.Type]func([]byte) error{reflect.TypeFor[apiresource.Quantity](): amount}}
}

func amount(raw []byte) error {
	text := raw
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	if len(text) > 64 || !v1alpha1.PlainAmount(string(text)) {
		return fmt.Errorf("%.40q is no amount of anything", text)
	}
	return nil
}

// Transport bounds how much of a peer's answers is read.
func Transport(to http.RoundTripper) http.RoundTripper {
	return wire.Transport{RoundTripper: to, Answer: maxAnswer, Frame: MaxFrame}
}

// Codec decodes the kinds of a scheme, and Status objects. It is a runtime.NegotiatedSerializer for rest.Config.
//
// One object among others that cannot be decoded does not take them along: in a list or a watch it comes as one of its
// kind of which only the name is known. Unreadable tells why.
type Codec struct {
	runtime.NegotiatedSerializer
	media []runtime.SerializerInfo
}

// New is a codec for a scheme, which must have metav1 added to its groups.
func New(scheme *runtime.Scheme) *Codec {
	types, shapes := Types(), map[reflect.Type]*wire.Shape{}
	for _, t := range scheme.AllKnownTypes() {
		shapes[t] = types.Of(t)
	}
	c := &Codec{NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}
	for _, info := range c.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON {
			continue
		}
		stream := *info.StreamSerializer
		stream.Serializer = &decoder{stream.Serializer, scheme, shapes}
		info.StreamSerializer = &stream
		info.Serializer = &decoder{info.Serializer, scheme, shapes}
		c.media = append(c.media, info)
	}
	return c
}

// SupportedMediaTypes is part of runtime.NegotiatedSerializer.
func (c *Codec) SupportedMediaTypes() []runtime.SerializerInfo { return c.media }

// annotationUnreadable stands on an object in place of one that could not be decoded.
const annotationUnreadable = "kith.dev/unreadable"

// Unreadable says why an object could not be decoded; empty when it was.
func Unreadable(o metav1.Object) string { return o.GetAnnotations()[annotationUnreadable] }

// decoder is the serializer for one form, with a decoder of our own.
type decoder struct {
	runtime.Serializer
	scheme *runtime.Scheme
	shapes map[reflect.Type]*wire.Shape
}

// Decode makes the object that data names, in into when that is one of its kind.
func (d *decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if frame, ok := into.(*metav1.WatchEvent); ok {
		err := d.fill(data, frame, wire.Bound{Factor: Bound.Factor, Slack: Bound.Slack, Depth: 10_000}) // its object is looked at by itself
		return frame, &schema.GroupVersionKind{}, err
	}
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
	case into == nil:
	case reflect.TypeOf(object) == reflect.TypeOf(into):
		object = into
	case kind.Kind != "Status": // which is what a refusal is
		return nil, &kind, fmt.Errorf("a %s came, a %T was asked for", kind.Kind, into)
	}
	if meta.IsListType(object) {
		err = d.list(data, object)
	} else if err = d.fill(data, object, Bound); err != nil && into == nil && kind.Kind != "Status" {
		if instead := d.instead(data, object, err); instead != nil { // of a watch
			return instead, &kind, nil
		}
	}
	if err != nil {
		return nil, &kind, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, &kind, nil
}

// fill decodes data into an object, when it may cost that.
func (d *decoder) fill(data []byte, object any, bound wire.Bound) error {
	shape := d.shapes[reflect.TypeOf(object).Elem()]
	if shape == nil {
		return fmt.Errorf("a %T was not asked for", object)
	}
	if err := shape.Check(data, bound); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, object)
}

// list decodes a list one by one. What the whole may cost is shared by all.
func (d *decoder) list(data []byte, into runtime.Object) error {
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	items.SetZero()
	one := items.Type().Elem()
	shape, left := d.shapes[one], min(Bound.Factor*int64(len(data))+Bound.Slack, Bound.Most)
	if shape == nil {
		return fmt.Errorf("a list of %s was not asked for", one)
	}
	rest, err := wire.Each(data, "items", func(raw []byte) error {
		left -= listGrowth * int64(one.Size()) //nolint:gosec // sizes of Go types
		cost, err := shape.Cost(raw, wire.Bound{Slack: max(left, 0)})
		if refused, ok := err.(*wire.Error); ok && refused.Costly || left < 0 { //nolint:errorlint // never wrapped
			return fmt.Errorf("here the list has become too costly: to decode its %d bytes would take more than %d times as much", len(data), Bound.Factor)
		}
		left -= cost
		items.Grow(1)
		items.SetLen(items.Len() + 1)
		object := items.Index(items.Len() - 1).Addr().Interface().(runtime.Object)
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(raw, object)
		}
		if err != nil && d.instead(raw, object, err) == nil {
			items.SetLen(items.Len() - 1) // nobody could say which one it is
		}
		return nil
	})
	if err != nil {
		return err
	}
	decoded := reflect.New(items.Type()).Elem()
	decoded.Set(items)
	if err := d.fill(rest, into, wire.Bound{Slack: max(left, 0)}); err != nil {
		return err
	}
	items.Set(decoded)
	return nil
}

// listGrowth is what a slice costs that grows one by one, in sizes of its elements.
const listGrowth = 5

// instead makes of object one that stands for what could not be decoded; nil when it has no name.
func (d *decoder) instead(data []byte, object runtime.Object, why error) runtime.Object {
	reflect.ValueOf(object).Elem().SetZero()
	o, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	o.SetName(wire.Text(data, "metadata", "name"))
	o.SetNamespace(wire.Text(data, "metadata", "namespace"))
	o.SetResourceVersion(wire.Text(data, "metadata", "resourceVersion"))
	text := why.Error()
	o.SetAnnotations(map[string]string{annotationUnreadable: text[:min(len(text), 512)]})
	if o.GetName() == "" {
		return nil
	}
	return object
}

// Reader decodes objects one by one whose kind is known from elsewhere, within the same bounds.
type Reader struct{ decoder }

// NewReader is a reader for objects of these types, all of which must have metadata.
func NewReader(of ...runtime.Object) *Reader {
	types, r := Types(), &Reader{decoder{shapes: map[reflect.Type]*wire.Shape{}}}
	for _, o := range of {
		t := reflect.TypeOf(o).Elem()
		r.shapes[t] = types.Of(t)
	}
	return r
}

// Read decodes data into an object of one of the types. Of one that cannot be decoded only the name is there afterwards, and
// Unreadable tells why; the error says that not even the name is known.
func (r *Reader) Read(data []byte, into runtime.Object) error {
	err := r.fill(data, into, Bound)
	if err != nil && r.instead(data, into, err) != nil {
		return nil
	}
	return err
}

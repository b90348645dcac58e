package virtualnode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"kith.dev/core/api/v1alpha1"
)

// careful decodes what a peer's API server says. The answer names its own kind, and a decoder that knows the kind
// makes it, so only those that are asked for are known. Amounts are parsed while decoding and some take hours
// (v1alpha1.PlainAmount), so they are looked at first, in the bytes.
type careful struct {
	runtime.NegotiatedSerializer
	media []runtime.SerializerInfo
}

func newCareful() (careful, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Event{}, &corev1.EventList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return careful{}, err
	}
	kinds := map[schema.GroupVersionKind]*shape{}
	for kind, t := range scheme.AllKnownTypes() {
		kinds[kind] = shapeOf(t)
	}
	c := careful{NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}
	for _, info := range c.NegotiatedSerializer.SupportedMediaTypes() {
		switch info.MediaType {
		case runtime.ContentTypeJSON:
			stream := *info.StreamSerializer
			stream.Serializer = checked{stream.Serializer, kinds, inJSON}
			info.StreamSerializer = &stream
			info.Serializer = checked{info.Serializer, kinds, inJSON}
		case runtime.ContentTypeProtobuf: // whose stream holds what it is expected to, whatever it says
			info.Serializer = checked{info.Serializer, kinds, inProtobuf}
		default: // nobody asked for it
			continue
		}
		c.media = append(c.media, info)
	}
	return c, nil
}

func (c careful) SupportedMediaTypes() []runtime.SerializerInfo { return c.media }

// checked is the serializer of one form, with a look at the bytes before.
type checked struct {
	runtime.Serializer
	kinds map[schema.GroupVersionKind]*shape // all that may come
	open  func([]byte) (schema.GroupVersionKind, func(*shape) error, error)
}

func (d checked) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	kind, check, err := d.open(data)
	if err != nil {
		return nil, nil, err
	}
	amounts, known := d.kinds[kind]
	if _, frame := into.(*metav1.WatchEvent); !known && !(frame && kind.Kind == "") { // a frame need not say what it is
		return nil, &kind, fmt.Errorf("%q was not asked for", kind)
	}
	if amounts != nil {
		if err := check(amounts); err != nil {
			return nil, &kind, fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	return d.Serializer.Decode(data, defaults, into)
}

// shape is where amounts are in a type; nil where there are none.
type shape struct {
	amount bool              // it is one
	values *shape            // of a map
	names  map[string]*shape // JSON
	fields map[int32]*shape  // protobuf
}

var amountType = reflect.TypeFor[apiresource.Quantity]()

func shapeOf(t reflect.Type) *shape {
	switch {
	case t == amountType:
		return &shape{amount: true}
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice:
		return shapeOf(t.Elem())
	case t.Kind() == reflect.Map:
		if values := shapeOf(t.Elem()); values != nil {
			return &shape{values: values, fields: map[int32]*shape{2: values}}
		}
	case t.Kind() == reflect.Struct:
		s := &shape{names: map[string]*shape{}, fields: map[int32]*shape{}}
		for f := range t.Fields() {
			s.add(f)
		}
		if len(s.names) > 0 {
			return s
		}
	}
	return nil
}

func (s *shape) add(f reflect.StructField) {
	inner := shapeOf(f.Type)
	if inner == nil {
		return
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" { // inlined
		for name, field := range inner.names {
			s.names[name] = field
		}
	} else {
		s.names[name] = inner
	}
	if _, tag, ok := strings.Cut(f.Tag.Get("protobuf"), ","); ok {
		number, _, _ := strings.Cut(tag, ",")
		if n, err := strconv.ParseInt(number, 10, 32); err == nil {
			s.fields[int32(n)] = inner
		}
	}
}

func plain(text string) error {
	if !v1alpha1.PlainAmount(text) {
		return fmt.Errorf("%.40q is no amount of anything", text)
	}
	return nil
}

func inJSON(data []byte) (schema.GroupVersionKind, func(*shape) error, error) {
	kind, err := jsonserializer.DefaultMetaFactory.Interpret(data)
	if err != nil {
		return schema.GroupVersionKind{}, nil, err
	}
	return *kind, func(s *shape) error {
		tokens := json.NewDecoder(bytes.NewReader(data))
		tokens.UseNumber()
		return s.json(tokens, 0)
	}, nil
}

const maxDepth = 100

func (s *shape) json(tokens *json.Decoder, depth int) error {
	if s == nil {
		var skipped json.RawMessage
		return tokens.Decode(&skipped)
	}
	token, err := tokens.Token()
	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return fmt.Errorf("nested more than %d deep", maxDepth)
		}
		for err == nil && tokens.More() {
			element := s
			if token == '{' {
				if element, err = s.next(tokens); err != nil {
					return err
				}
			}
			err = element.json(tokens, depth+1)
		}
		if err == nil {
			_, err = tokens.Token()
		}
	case json.Number:
		if s.amount {
			return plain(token.String())
		}
	case string:
		if s.amount {
			return plain(token)
		}
	}
	return err
}

// next reads the name of a field and gives what the field holds.
func (s *shape) next(tokens *json.Decoder) (*shape, error) {
	name, err := tokens.Token()
	if err != nil {
		return nil, err
	}
	if s.values != nil {
		return s.values, nil
	}
	text, _ := name.(string)
	return s.names[text], nil
}

// protobufPrefix comes before each message: k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
const protobufPrefix = "k8s\x00"

func inProtobuf(data []byte) (schema.GroupVersionKind, func(*shape) error, error) {
	var message runtime.Unknown
	rest, ok := bytes.CutPrefix(data, []byte(protobufPrefix))
	if !ok {
		return schema.GroupVersionKind{}, nil, errMalformed
	}
	if err := message.Unmarshal(rest); err != nil {
		return schema.GroupVersionKind{}, nil, err
	}
	return message.GroupVersionKind(), func(s *shape) error { return s.protobuf(message.Raw) }, nil
}

var errMalformed = errors.New("malformed protobuf")

// protobuf finds all that the generated decoders would, or fails: they read on where a message is malformed.
func (s *shape) protobuf(data []byte) error {
	if s == nil { // no amounts
		return nil
	}
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return errMalformed
		}
		data = data[n:]
		var length uint64
		switch tag & 7 { // the wire types
		case 0:
			_, n = binary.Uvarint(data)
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			length, n = binary.Uvarint(data)
		default: // groups, which Kubernetes does not have
			return errMalformed
		}
		if s.values != nil && tag&7 != 2 { // the decoder of maps takes anything for a length
			return errMalformed
		}
		if n <= 0 || n > len(data) || length > uint64(len(data)-n) {
			return errMalformed
		}
		content := data[n : n+int(length)]
		data = data[n+int(length):]
		if tag&7 != 2 {
			continue
		}
		number := int32(tag >> 3) //nolint:gosec // cut off as the decoder does
		if s.amount && number == 1 {
			if err := plain(string(content)); err != nil {
				return err
			}
		}
		if err := s.fields[number].protobuf(content); err != nil {
			return err
		}
	}
	return nil
}

package codec

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"kith.dev/core/trust/wire"
)

// protobufMagic is what every object of Kubernetes in protobuf begins with (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

// ProtobufElements reports whether a body is an object of Kubernetes in protobuf, of a kind of the scheme that it names, with no more
// than so many fields and elements of lists, nested no more than wire.MaxDepth deep, and no amount that takes long to parse. It counts without decoding: of the empty strings in 3 MiB
// the decoder makes a hundred megabytes.
func ProtobufElements(body []byte, scheme *runtime.Scheme, most int64) bool {
	inside, is := bytes.CutPrefix(body, protobufMagic)
	var object runtime.Unknown
	if !is || object.Unmarshal(inside) != nil {
		return false
	}
	made, err := scheme.New(object.GroupVersionKind())
	if err != nil {
		return false
	}
	c := counter{left: most}
	return c.message(reflect.TypeOf(made).Elem(), object.Raw, 0)
}

// counter walks a message by the types that it would be decoded into, as their protobuf tags have it.
type counter struct{ left int64 }

func (c *counter) pay(n int) bool {
	c.left -= int64(n)
	return c.left >= 0
}

func (c *counter) message(of reflect.Type, data []byte, depth int) bool {
	if depth > wire.MaxDepth {
		return false
	}
	fields := fieldsOf(of)
	for len(data) > 0 {
		number, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 || kind == protowire.StartGroupType || kind == protowire.EndGroupType || !c.pay(1) {
			return false
		}
		length := protowire.ConsumeFieldValue(number, kind, data[tag:])
		if length < 0 {
			return false
		}
		value := data[tag : tag+length]
		data = data[tag+length:]
		inner, known := fields[number]
		if !known || kind != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(value)
		switch {
		case inner == quantityType:
			if !amounts(content) {
				return false
			}
		case inner.Kind() == reflect.String || inner == bytesType:
		case inner.Kind() == reflect.Struct || inner.Kind() == reflect.Slice:
			if !c.message(inner, content, depth+1) {
				return false
			}
		case !c.pay(len(content)): // numbers packed into one field, of a byte each at least
			return false
		}
	}
	return true
}

var (
	bytesType    = reflect.TypeFor[[]byte]()
	quantityType = reflect.TypeFor[apiresource.Quantity]()
)

// amounts reports whether a Quantity holds texts that are parsed in no time.
func amounts(quantity []byte) bool {
	for len(quantity) > 0 {
		number, kind, tag := protowire.ConsumeTag(quantity)
		if tag < 0 {
			return false
		}
		length := protowire.ConsumeFieldValue(number, kind, quantity[tag:])
		if length < 0 {
			return false
		}
		if text, _ := protowire.ConsumeBytes(quantity[tag : tag+length]); number == 1 && kind == protowire.BytesType && !plainAmount.Match(text) {
			return false
		}
		quantity = quantity[tag+length:]
	}
	return true
}

var fieldsByType sync.Map // map[protowire.Number]reflect.Type, by reflect.Type

// fieldsOf are what the fields of a message hold, each occurrence of them: of a list an element, of a map an entry.
func fieldsOf(message reflect.Type) map[protowire.Number]reflect.Type {
	if known, ok := fieldsByType.Load(message); ok {
		return known.(map[protowire.Number]reflect.Type)
	}
	fields := map[protowire.Number]reflect.Type{}
	if message.Kind() == reflect.Slice { // a list with a message of its own, as metav1.Verbs
		fields[1] = plain(message.Elem())
	} else {
		for i := range message.NumField() {
			field := message.Field(i)
			parts := strings.Split(field.Tag.Get("protobuf"), ",") // bytes,1,rep,name=items
			if len(parts) < 3 {
				continue
			}
			number, err := strconv.Atoi(parts[1])
			if err != nil {
				continue
			}
			of := plain(field.Type)
			switch {
			case of.Kind() == reflect.Map:
				of = reflect.StructOf([]reflect.StructField{
					{Name: "Key", Type: of.Key(), Tag: `protobuf:"bytes,1,opt"`}, {Name: "Value", Type: of.Elem(), Tag: `protobuf:"bytes,2,opt"`},
				})
			case of.Kind() == reflect.Slice && parts[2] == "rep":
				of = plain(of.Elem())
			}
			fields[protowire.Number(number)] = of
		}
	}
	fieldsByType.Store(message, fields)
	return fields
}

// plain is what a pointer leads to.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

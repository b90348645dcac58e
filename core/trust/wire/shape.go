package wire

import (
	"encoding"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"unicode"
)

// Types makes shapes of Go types.
type Types struct {
	// Leaves are types that decode themselves, with what is to be asked of their text before; nil asks nothing. Any other
	// type with UnmarshalJSON or UnmarshalText is a leaf too.
	Leaves map[reflect.Type]func(raw []byte) error
	// Fold: the decoder takes names of fields in any case, as encoding/json does.
	Fold bool
	// Entry is what each entry of a map costs besides, in bytes, because the reader keeps books about each.
	Entry int64

	known map[reflect.Type]*Shape
}

// Shape is what a Go type costs to be decoded into.
type Shape struct {
	form   form
	size   int64             // of a value, in place
	elem   *Shape            // of pointers, lists and maps
	fields map[string]*Shape // of structs
	fold   bool
	entry  int64
	ask    func(raw []byte) error // of leaves
	copies bool                   // a leaf that costs its text and no more
}

type form uint8

const (
	skipped form = iota // nobody decodes it
	anything
	text
	number
	boolean
	leaf
	pointer
	structure
	list
	mapping
)

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	prefix          = reflect.TypeFor[netip.Prefix]() // parsed in place; an address may have a zone, which is kept elsewhere
	nothing         = &Shape{form: skipped}
)

// Of is the shape of a type.
func (t *Types) Of(of reflect.Type) *Shape {
	if t.known == nil {
		t.known = map[reflect.Type]*Shape{}
	}
	if s := t.known[of]; s != nil {
		return s
	}
	s := &Shape{size: int64(of.Size()), fold: t.Fold, entry: t.Entry} //nolint:gosec // sizes of Go types
	t.known[of] = s                                                   // before its fields, among which it may be
	ask, special := t.Leaves[of]
	switch to := reflect.PointerTo(of); {
	case special, of.Kind() != reflect.Pointer && of.Kind() != reflect.Interface && (to.Implements(jsonUnmarshaler) || to.Implements(textUnmarshaler)):
		s.form, s.ask = leaf, ask
		s.copies = of.Kind() == reflect.Slice || of.Kind() == reflect.Struct && keepsText(of) || of == prefix
		return s
	}
	switch of.Kind() {
	case reflect.Interface:
		s.form = anything
	case reflect.String:
		s.form = text
	case reflect.Bool:
		s.form = boolean
	case reflect.Pointer:
		s.form, s.elem = pointer, t.Of(of.Elem())
	case reflect.Slice, reflect.Array:
		s.form, s.elem = list, t.Of(of.Elem())
		if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8 {
			s.form, s.copies = leaf, true // base64
		}
	case reflect.Map:
		s.form, s.elem = mapping, t.Of(of.Elem())
		s.size = 8
		s.entry += int64(of.Key().Size()) //nolint:gosec // sizes of Go types
	case reflect.Struct:
		s.form, s.fields = structure, map[string]*Shape{}
		for f := range of.Fields() {
			t.add(s, f)
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		s.form = skipped
	default:
		s.form = number
	}
	return s
}

// keepsText: a struct around one slice of bytes, as those that decode themselves later.
func keepsText(of reflect.Type) bool {
	return of.NumField() > 0 && of.Field(0).Type.Kind() == reflect.Slice && of.Field(0).Type.Elem().Kind() == reflect.Uint8
}

func (t *Types) add(s *Shape, f reflect.StructField) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return
	}
	inner := t.Of(f.Type)
	if name == "" && f.Anonymous && inner.form == structure { // inlined
		for name, field := range inner.fields {
			s.fields[name] = field
		}
		return
	}
	if !f.IsExported() {
		return
	}
	if name == "" {
		name = f.Name
	}
	if t.Fold {
		name = folded(name)
	}
	s.fields[name] = inner
}

// field is the shape of what stands under a name.
func (s *Shape) field(name []byte) *Shape {
	if f := s.fields[string(name)]; f != nil {
		return f
	}
	if s.fold {
		if f := s.fields[folded(string(name))]; f != nil {
			return f
		}
	}
	return nothing
}

// folded is the same for all spellings that encoding/json takes for one name.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r { // the smallest of its circle
				return next
			}
			r = next
		}
	}, name)
}

package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep what others send may be nested. Pods are nested 15 deep, their managed fields 20.
const MaxDepth = 64

// deepest is how deep decoders go at all.
const deepest = 10_000

// maxNumber is how many characters a number may have; 64 bits need 20, a float 24.
const maxNumber = 64

// Bound is how much may be made of a text.
type Bound struct {
	Factor int64 // bytes for each byte of the text
	Slack  int64 // and so many whatever its length
}

// Error says what of a text is refused, and why. Both are fit to be shown.
type Error struct {
	Field string // "spec.containers[3].env"; empty for the whole
	Why   string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Why
	}
	return e.Field + ": " + e.Why
}

var errSyntax = errors.New("not JSON")

// Check says why data may not be decoded into the shape's type; nil for JSON in UTF-8, not nested too deep, of the types that are
// expected, of which a decoder allocates no more than the bound, besides a fixed number of bytes. The error is an *Error.
func (s *Shape) Check(data []byte, bound Bound) error {
	if !utf8.Valid(data) {
		return &Error{Why: "not UTF-8"}
	}
	most := bound.Factor*int64(len(data)) + bound.Slack
	w := walker{data: data, left: most, deepest: MaxDepth}
	err := w.value(s, 0)
	if err == nil {
		if w.space(); w.at < len(data) {
			err = errSyntax
		}
	}
	if err != nil {
		return w.explain(err, most)
	}
	return nil
}

// walker goes once along a text.
type walker struct {
	data    []byte
	at      int
	left    int64
	deepest int
	path    []step // gathered on the way out, when there is an error
}

// step is a name, or an index when the name is nil.
type step struct {
	name  []byte
	index int
}

var (
	errCostly = errors.New("costs too much")
	errDeep   = errors.New("nested too deep")

	errTwice   = errors.New("is there twice")
	errEscaped = errors.New("the name of a field is written with escapes")
)

// mistaken is something else than what the type wants.
type mistaken struct{ want string }

func (m mistaken) Error() string { return "must be " + m.want }

// explain names the field. The path is made here and nowhere else: made on the way in, it would cost more than all the rest.
func (w *walker) explain(err error, most int64) *Error {
	e := &Error{Why: err.Error()}
	switch {
	case errors.Is(err, errSyntax):
		e.Why = fmt.Sprintf("not JSON, at byte %d", w.at)
	case errors.Is(err, errDeep):
		e.Why = fmt.Sprintf("nested more than %d deep", w.deepest)
	case errors.Is(err, errCostly):
		e.Why = fmt.Sprintf("here the whole has become too costly: to decode its %d bytes would take more than %d", len(w.data), most)
	}
	var path strings.Builder
	for i := len(w.path) - 1; i >= 0 && path.Len() < 256; i-- {
		switch step := w.path[i]; {
		case step.name == nil:
			fmt.Fprintf(&path, "[%d]", step.index)
		default:
			if path.Len() > 0 {
				path.WriteByte('.')
			}
			path.WriteString(shown(step.name))
		}
	}
	e.Field = path.String()
	return e
}

func shown(name []byte) string {
	cut := strings.ToValidUTF8(string(name[:min(len(name), 64)]), "")
	for _, r := range cut {
		if r <= ' ' || r > '~' || r == '"' || r == '.' {
			return strconv.QuoteToASCII(cut)
		}
	}
	return cut
}

func (w *walker) pay(bytes int64) error {
	if w.left -= bytes; w.left < 0 {
		return errCostly
	}
	return nil
}

// What decoders allocate, by measurement (TestCost) and from above: a list that grows is copied again and again; a map has
// room for eight entries from the first one on, and then doubles.
const (
	growth    = 5
	room      = 4 // elements, from the first one on
	rounding  = 16
	aMap      = 64
	perEntry  = 32
	leafCost  = 640
	firstRoom = 8
)

// value walks over one value.
func (w *walker) value(s *Shape, depth int) error {
	c := w.peek()
	switch c {
	case 0:
		return errSyntax
	case 'n':
		return w.literal("null")
	}
	if depth >= w.deepest && (c == '{' || c == '[') {
		return errDeep
	}
	switch s.form {
	case skipped:
		return w.skip(c, depth)
	case anything:
		return w.any(s, c, depth)
	case leaf:
		return w.leaf(s, c, depth)
	case pointer:
		if err := w.pay(s.elem.size + s.elem.size/8 + rounding); err != nil {
			return err
		}
		return w.value(s.elem, depth)
	case text:
		if c != '"' {
			return mistaken{"a string"}
		}
		return w.string()
	case number:
		if c != '-' && (c < '0' || c > '9') {
			return mistaken{"a number"}
		}
		return w.number()
	case boolean:
		if c != 't' && c != 'f' {
			return mistaken{"true or false"}
		}
		return w.skip(c, depth)
	case list:
		if c != '[' {
			return mistaken{"a list"}
		}
		return w.list(s.elem, depth, 0)
	case mapping:
		if c != '{' {
			return mistaken{"an object"}
		}
		return w.mapping(s.elem, depth, s.entry)
	default:
		if c != '{' {
			return mistaken{"an object"}
		}
		return w.object(func(name []byte, escaped bool) error {
			if escaped {
				return errEscaped
			}
			return w.value(s.field(name), depth+1)
		})
	}
}

// any is what becomes a value of type any: map[string]any, []any and so on.
func (w *walker) any(s *Shape, c byte, depth int) error {
	switch c {
	case '{':
		return w.mapping(s, depth, rounding+s.entry)
	case '[':
		return w.list(s, depth, 2*rounding)
	case '"':
		if err := w.pay(rounding); err != nil {
			return err
		}
		return w.string()
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if err := w.pay(2 * rounding); err != nil {
			return err
		}
		return w.number()
	}
	return w.skip(c, depth)
}

func (w *walker) leaf(s *Shape, c byte, depth int) error {
	from := w.at
	if err := w.skip(c, depth); err != nil {
		return err
	}
	raw := w.data[from:w.at]
	cost := int64(len(raw))*4 + 4*rounding
	if !s.copies {
		cost = int64(len(raw))*4 + leafCost
	}
	if err := w.pay(cost); err != nil {
		return err
	}
	if s.ask == nil {
		return nil
	}
	return s.ask(raw)
}

func (w *walker) list(elem *Shape, depth int, header int64) error {
	if err := w.pay(header); err != nil {
		return err
	}
	return w.elements(func(i int) error {
		cost := elem.size + rounding
		switch {
		case elem.form == skipped:
			cost = 0
		case i == 0:
			cost = room*elem.size + rounding
		case i >= room:
			cost = growth*elem.size + rounding
		}
		if err := w.pay(cost); err != nil {
			return err
		}
		return w.value(elem, depth+1)
	})
}

func (w *walker) mapping(elem *Shape, depth int, entry int64) error {
	slot := elem.size + 16
	if err := w.pay(aMap); err != nil {
		return err
	}
	entries := 0
	return w.object(func(name []byte, escaped bool) error {
		cost := perEntry + entry + int64(len(name))
		if escaped {
			cost += 4 * int64(len(name))
		}
		switch entries++; {
		case entries == 1:
			cost += firstRoom * slot
		case entries == firstRoom:
			cost += 2 * firstRoom * slot
		case entries > firstRoom:
			cost += growth * slot
		}
		if err := w.pay(cost); err != nil {
			return err
		}
		return w.value(elem, depth+1)
	})
}

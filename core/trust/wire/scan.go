package wire

import (
	"bytes"
	"fmt"
	"strings"
)

func (w *walker) space() {
	for w.at < len(w.data) {
		switch w.data[w.at] {
		case ' ', '\t', '\n', '\r':
			w.at++
		default:
			return
		}
	}
}

func (w *walker) peek() byte {
	w.space()
	if w.at >= len(w.data) {
		return 0
	}
	return w.data[w.at]
}

// elements walks over a list, over each of whose elements member has to walk.
func (w *walker) elements(member func(i int) error) error {
	w.at++
	if w.peek() == ']' {
		w.at++
		return nil
	}
	for i := 0; ; i++ {
		if err := member(i); err != nil {
			w.path = append(w.path, step{index: i})
			return err
		}
		switch w.peek() {
		case ',':
			w.at++
		case ']':
			w.at++
			return nil
		default:
			return errSyntax
		}
	}
}

// object walks over the fields, each of whose values member has to walk over.
func (w *walker) object(member func(name []byte, escaped bool) error) error {
	w.at++
	if w.peek() == '}' {
		w.at++
		return nil
	}
	for {
		if w.peek() != '"' {
			return errSyntax
		}
		from := w.at
		escaped, err := w.pass()
		if err != nil {
			return err
		}
		name := w.data[from+1 : w.at-1]
		if w.peek() != ':' {
			return errSyntax
		}
		w.at++
		if err := member(name, escaped); err != nil {
			w.path = append(w.path, step{name: name})
			return err
		}
		switch w.peek() {
		case ',':
			w.at++
		case '}':
			w.at++
			return nil
		default:
			return errSyntax
		}
	}
}

func (w *walker) string() error {
	from := w.at
	escaped, err := w.pass()
	if err != nil {
		return err
	}
	n := int64(w.at-from) + rounding
	if escaped {
		n = 4 * n
	}
	return w.pay(n)
}

// pass goes past a string.
func (w *walker) pass() (escaped bool, err error) {
	for w.at++; w.at < len(w.data); w.at++ {
		switch c := w.data[w.at]; {
		case c == '"':
			w.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			w.at++
		case c < ' ':
			return false, errSyntax
		}
	}
	return false, errSyntax
}

func (w *walker) number() error {
	from := w.at
	for w.at < len(w.data) && strings.IndexByte("+-.0123456789eE", w.data[w.at]) >= 0 {
		w.at++
	}
	if w.at-from > maxNumber {
		return fmt.Errorf("a number of more than %d characters", maxNumber)
	}
	return w.pay(int64(w.at - from))
}

func (w *walker) literal(word string) error {
	if !bytes.HasPrefix(w.data[w.at:], []byte(word)) {
		return errSyntax
	}
	w.at += len(word)
	return nil
}

// skip goes past a value that nobody decodes.
func (w *walker) skip(c byte, depth int) error {
	if depth >= w.deepest && (c == '{' || c == '[') {
		return errDeep
	}
	switch {
	case c == '{':
		return w.object(func([]byte, bool) error { return w.skip(w.peek(), depth+1) })
	case c == '[':
		return w.list(nothing, depth, 0)
	case c == '"':
		_, err := w.pass()
		return err
	case c == 't':
		return w.literal("true")
	case c == 'f':
		return w.literal("false")
	case c == 'n':
		return w.literal("null")
	case c == '-', '0' <= c && c <= '9':
		return w.number()
	}
	return errSyntax
}

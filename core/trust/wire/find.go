package wire

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// Each calls do with the text of every element of the list under a name of the object data, in their order, and gives what
// is left of the object with an empty list instead. What has that name twice, or is no object, is refused. How deep an
// element is, is for do to look at.
func Each(data []byte, name string, do func(raw []byte) error) (rest []byte, err error) {
	w := walker{data: data, left: math.MaxInt64, deepest: deepest}
	from, to := 0, 0
	err = w.members(func(has []byte, escaped bool) error {
		if escaped {
			return errEscaped
		}
		c := w.peek()
		if string(has) != name || c == 'n' {
			return w.skip(c, 1)
		}
		if c != '[' {
			return mistaken{"a list"}
		}
		if to > 0 {
			return errTwice
		}
		from = w.at + 1
		err := w.elements(func(int) error {
			raw, err := w.raw(2)
			if err == nil {
				err = do(raw)
			}
			return err
		})
		to = w.at - 1
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case to == 0:
		return data, nil
	}
	return append(append(make([]byte, 0, len(data)-(to-from)), data[:from]...), data[to:]...), nil
}

// Fields calls do with the name and the text of each field of the object data, one that is there twice included. What is
// malformed, or has names with escapes in them, is refused.
func Fields(data []byte, do func(name, raw []byte) error) error {
	return fields(data, func(name, raw []byte, escaped bool) error {
		if escaped {
			return errEscaped
		}
		return do(name, raw)
	})
}

func fields(data []byte, do func(name, raw []byte, escaped bool) error) error {
	w := walker{data: data, left: math.MaxInt64, deepest: deepest}
	return w.members(func(name []byte, escaped bool) error {
		raw, err := w.raw(1)
		if err == nil {
			err = do(name, raw, escaped)
		}
		return err
	})
}

// members walks over an object from its beginning; the error is an *Error.
func (w *walker) members(member func(name []byte, escaped bool) error) error {
	if w.peek() != '{' {
		return &Error{Why: mistaken{"an object"}.Error()}
	}
	if err := w.object(member); err != nil {
		return w.explain(err, 0)
	}
	return nil
}

// raw goes past a value, and gives its text.
func (w *walker) raw(depth int) ([]byte, error) {
	c := w.peek()
	from := w.at
	if err := w.skip(c, depth); err != nil {
		return nil, err
	}
	return w.data[from:w.at], nil
}

// Text is the string under this path of names, empty when there is none, or it is longer than 1 KiB or not plainly written.
func Text(data []byte, path ...string) (found string) {
	_ = fields(data, func(name, raw []byte, _ bool) error { // what cannot be read has none
		switch {
		case string(name) != path[0]:
		case len(path) > 1:
			found = cmp.Or(Text(raw, path[1:]...), found)
		case raw[0] == '"':
			found = plainText(raw)
		}
		return nil
	})
	return found
}

// Kind is what an object says it is: the first of each that it says, which is near its beginning when an API server wrote it.
func Kind(data []byte) (apiVersion, kind string) {
	found := map[string]*string{"apiVersion": &apiVersion, "kind": &kind}
	_ = fields(data, func(name, raw []byte, _ bool) error {
		into := found[string(name)]
		if into == nil || raw[0] != '"' {
			return nil
		}
		delete(found, string(name))
		*into = plainText(raw)
		if len(found) == 0 {
			return errFound
		}
		return nil
	})
	return apiVersion, kind
}

var errFound = errors.New("found")

func plainText(quoted []byte) string {
	if len(quoted) > 1<<10 || !utf8.Valid(quoted) {
		return ""
	}
	text, _ := strconv.Unquote(string(quoted)) // empty when it is written otherwise
	return text
}

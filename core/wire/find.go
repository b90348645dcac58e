package wire

import (
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
	if w.peek() != '{' {
		return nil, &Error{Why: mistaken{"an object"}.Error()}
	}
	from, to := 0, 0
	err = w.object(func(has []byte, escaped bool) error {
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
		err := w.elements(do)
		to = w.at - 1
		return err
	})
	if err != nil {
		return nil, w.explain(err, 0)
	}
	if to == 0 {
		return data, nil
	}
	return append(append(make([]byte, 0, len(data)-(to-from)), data[:from]...), data[to:]...), nil
}

func (w *walker) elements(do func(raw []byte) error) error {
	w.at++
	if w.peek() == ']' {
		w.at++
		return nil
	}
	for i := 0; ; i++ {
		c := w.peek()
		from := w.at
		err := w.skip(c, 2)
		if err == nil {
			err = do(w.data[from:w.at])
		}
		if err != nil {
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

// Fields calls do with the name and the text of each field of the object data, one that is there twice included. What is
// malformed, or has names with escapes in them, is refused.
func Fields(data []byte, do func(name, raw []byte) error) error {
	w := walker{data: data, left: math.MaxInt64, deepest: deepest}
	if w.peek() != '{' {
		return &Error{Why: mistaken{"an object"}.Error()}
	}
	err := w.object(func(name []byte, escaped bool) error {
		if escaped {
			return errEscaped
		}
		c := w.peek()
		from := w.at
		if err := w.skip(c, 1); err != nil {
			return err
		}
		return do(name, data[from:w.at])
	})
	if err != nil {
		return w.explain(err, 0)
	}
	return nil
}

// Text is the string under this path of names, empty when there is none, or it is longer than 1 KiB or not plainly written.
func Text(data []byte, path ...string) (found string) {
	w := walker{data: data, left: math.MaxInt64, deepest: deepest}
	_ = w.text(path, 0, &found) // what cannot be read has none
	return found
}

func (w *walker) text(path []string, depth int, found *string) error {
	c := w.peek()
	if len(path) == 0 {
		from := w.at
		err := w.skip(c, depth)
		if err == nil && c == '"' {
			*found = plainText(w.data[from:w.at])
		}
		return err
	}
	if c != '{' || depth >= deepest {
		return w.skip(c, depth)
	}
	return w.object(func(name []byte, _ bool) error {
		if string(name) != path[0] {
			return w.skip(w.peek(), depth+1)
		}
		return w.text(path[1:], depth+1, found)
	})
}

// Kind is what an object says it is: the first of each that it says, which is near its beginning when an API server wrote it.
func Kind(data []byte) (apiVersion, kind string) {
	w := walker{data: data, left: math.MaxInt64, deepest: deepest}
	if w.peek() != '{' {
		return "", ""
	}
	found := map[string]*string{"apiVersion": &apiVersion, "kind": &kind}
	_ = w.object(func(name []byte, _ bool) error {
		into, c := found[string(name)], w.peek()
		from := w.at
		if err := w.skip(c, 1); err != nil || into == nil || c != '"' {
			return err
		}
		delete(found, string(name))
		*into = plainText(w.data[from:w.at])
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

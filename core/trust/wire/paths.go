package wire

import "math"

// Paths reports whether the whole paths of all fields of a JSON text are no more than so many bytes together: what is written down by whoever
// names each field that it does not know, or that is there twice. A text that is no JSON, or nested more than MaxDepth deep, costs more than
// can be said.
func Paths(data []byte, most int64) bool {
	w := walker{data: data, left: most, deepest: MaxDepth}
	err := w.paths(0, 0)
	w.space()
	return err == nil && w.at == len(data)
}

// indexed is how many bytes an index of a list has in a path, with its brackets.
const indexed = 8

func (w *walker) paths(above int64, depth int) error {
	c := w.peek()
	if depth >= w.deepest && (c == '{' || c == '[') {
		return errDeep
	}
	switch c {
	case '{':
		return w.object(func(name []byte, _ bool) error {
			path := above + 1 + int64(len(name))
			if err := w.pay(path); err != nil {
				return err
			}
			return w.paths(path, depth+1)
		})
	case '[':
		return w.elements(func(int) error { return w.paths(above+indexed, depth+1) })
	}
	left := w.left // what stands there costs nothing
	defer func() { w.left = left }()
	w.left = math.MaxInt64
	return w.skip(c, depth)
}

// Elements reports whether a text is JSON, nested no more than MaxDepth deep, with no more than so many fields and elements of lists.
func Elements(data []byte, most int64) bool {
	w := walker{data: data, left: most, deepest: MaxDepth}
	err := w.count(0)
	w.space()
	return err == nil && w.at == len(data)
}

func (w *walker) count(depth int) error {
	c := w.peek()
	if depth >= w.deepest && (c == '{' || c == '[') {
		return errDeep
	}
	one := func() error {
		if err := w.pay(1); err != nil {
			return err
		}
		return w.count(depth + 1)
	}
	switch c {
	case '{':
		return w.object(func([]byte, bool) error { return one() })
	case '[':
		return w.elements(func(int) error { return one() })
	}
	left := w.left // what stands there costs nothing
	defer func() { w.left = left }()
	w.left = math.MaxInt64
	return w.skip(c, depth)
}

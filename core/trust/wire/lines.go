package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Lines reads messages, a line of JSON each, of types that were named.
type Lines struct {
	in     *bufio.Scanner
	shapes map[reflect.Type]*Shape
	bound  Bound
}

// Messages are the shapes of messages by the types that they are decoded into.
func Messages(of ...any) map[reflect.Type]*Shape {
	types, shapes := &Types{Fold: true}, map[reflect.Type]*Shape{}
	for _, m := range of {
		t := reflect.TypeOf(m)
		shapes[reflect.PointerTo(t)] = types.Of(t)
	}
	return shapes
}

// NewLines reads lines of at most so many bytes, of which no more is made than the bound says.
func NewLines(r io.Reader, most int, messages map[reflect.Type]*Shape, bound Bound) *Lines {
	s := bufio.NewScanner(r)
	s.Buffer(nil, most)
	return &Lines{s, messages, bound}
}

// Next decodes the next line into a pointer to one of the messages; io.EOF at the end.
func (l *Lines) Next(into any) error {
	if !l.in.Scan() {
		if err := l.in.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	shape := l.shapes[reflect.TypeOf(into)]
	if shape == nil {
		return fmt.Errorf("%T is no message", into)
	}
	raw := l.in.Bytes()
	if err := shape.Check(raw, l.bound); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

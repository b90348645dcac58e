package peering

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"

	"kith.dev/core/trust/wire/wiretest"
)

func TestCost(t *testing.T) {
	all := messages()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "declined" || name == "opening" { // an outcome; and what has no fields costs nothing
			continue
		}
		kind, max := all[name], MaxMessage
		switch kind.(type) {
		case *signed:
			max = maxSigned
		case *presenceLine:
			max = maxLine
		}
		wiretest.Row{
			What: name, From: "anybody", Max: max, Type: reflect.TypeOf(kind).Elem(),
			Taken:  func(text []byte) error { return shapeOf(kind).Check(text, bound) },
			Decode: func(text []byte) { _ = decode("application/json", bytes.NewReader(text), blank(kind)) }, // most is not valid
		}.Check(t)
	}
}

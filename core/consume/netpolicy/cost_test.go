package netpolicy

import (
	"bytes"
	"reflect"
	"testing"

	"kith.dev/core/trust/wire/wiretest"
)

func TestCost(t *testing.T) {
	wiretest.Row{
		What: "NetworkPolicies of guests", From: "consumer", Max: MaxMessage, Type: reflect.TypeFor[Policies](),
		Taken:  func(text []byte) error { return shape.Check(text, bound) },
		Decode: func(text []byte) { _, _ = Read(bytes.NewReader(text)) },
	}.Check(t)
}

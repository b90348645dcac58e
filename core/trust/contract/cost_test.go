package contract

import (
	"reflect"
	"testing"

	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/wiretest"
)

func TestCost(t *testing.T) {
	wiretest.Row{
		What: "contract's document", From: "anybody", Max: MaxDocument, Type: reflect.TypeFor[Document](),
		Taken: func(text []byte) error {
			return documentShape.Check(text, wire.Bound{Factor: 12, Slack: 64 << 10})
		},
		Decode: func(text []byte) { _, _ = Parse(text) }, // most is not valid
	}.Check(t)
}

package custom

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"kith.dev/core/trust/wire/wiretest"
)

var reconcileRequest ctrl.Request

func TestCost(t *testing.T) {
	for _, c := range []struct {
		what, from string
		max        int
		of         reflect.Type
		line       any
	}{
		{"custom resources of guests", "consumer", MaxDefinition + maxOther, reflect.TypeFor[Ask](), new(Ask)},
		{"states of custom resources", "provider", MaxContent + maxOther, reflect.TypeFor[Tell](), new(Tell)},
	} {
		wiretest.Row{
			What: c.what, From: c.from, Max: c.max, Type: c.of,
			Taken:  func(text []byte) error { return messages[reflect.PointerTo(c.of)].Check(text, bound) },
			Decode: func(text []byte) { _ = json.Unmarshal(text, reflect.New(c.of).Interface()) },
		}.Check(t)
	}
	wiretest.Row{
		What: "what a custom resource says", From: "anybody", Max: MaxContent, Type: reflect.TypeFor[map[string]any](),
		Taken:  func(text []byte) error { return open.Check(text, bound) },
		Decode: func(text []byte) { _, _ = Fields(text, MaxContent) },
	}.Check(t)
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"kinds":[{"group":"example.com","version":"v1","resource":"widgets"}]}` + "\n" + `{"put":{"namespace":"shop","name":"a","content":{"spec":{}}}}` + "\n"))
	f.Add([]byte(`{"state":{"namespace":"shop","name":"a","status":{"x":1e9}}}` + "\n" + `{"kept":0}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for in := NewLines(bytes.NewReader(text), MaxContent); ; {
			var line Ask
			if in.Next(&line) != nil {
				break
			}
			if line.CheckKinds() == nil || line.Check(1) != nil {
				continue
			}
			if line.Put != nil {
				if strings.ContainsAny(line.Put.Name+line.Put.Namespace, "/ ") {
					t.Fatalf("%+v is taken", line.Put.Key)
				}
				fields, err := Fields(line.Put.Content, MaxContent)
				if _, wrong := json.Marshal(fields); err == nil && wrong != nil {
					t.Fatal(wrong)
				}
			}
		}
		for in := NewLines(bytes.NewReader(text), MaxContent); ; {
			var line Tell
			if in.Next(&line) != nil {
				return
			}
			if line.State != nil {
				_, _ = status(line.State.Status, line.State.Generation, 1)
			}
		}
	})
}

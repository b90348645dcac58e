package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/wire/wiretest"
)

type fruit struct {
	Name   string            `json:"name"`
	Count  int               `json:"count,omitempty"`
	Ripe   *bool             `json:"ripe"`
	Parts  []fruit           `json:"parts"`
	Marks  map[string]string `json:"marks"`
	Peel   *fruit            `json:"peel"`
	Picked time.Time         `json:"picked"`
	Raw    json.RawMessage   `json:"raw"`
	Pips   []byte            `json:"pips"`
	Else   any               `json:"else"`
	inner
	Never []fruit `json:"-"`
}

type inner struct {
	Stone float64 `json:"stone"`
}

var (
	fruits = (&Types{Fold: true}).Of(reflect.TypeFor[fruit]())
	bound  = Bound{Factor: 12, Slack: 64 << 10}
)

func TestCheckNamesWhatItRefuses(t *testing.T) {
	deep := strings.Repeat(`{"peel":`, 70) + "null" + strings.Repeat("}", 70)
	for _, c := range []struct{ text, says string }{
		{`{"name":"apple","count":-3,"ripe":true,"parts":[{"name":"core"},null],"marks":{"a":"b"},"peel":{"name":"x"},"picked":"2026-01-01T00:00:00Z","raw":{"a":[1]},"pips":"AAAA","else":[{"a":1.5e3},null,"x",false],"stone":1,"unknown":{"a":[[]]}}`, ""},
		{` { "name" : "a" } `, ""},
		{`null`, ""},
		{`{}`, ""},
		{``, "not JSON"},
		{`{`, "not JSON, at byte 1"},
		{`{"name"}`, "not JSON"},
		{`{"name":"a",}`, "not JSON"},
		{`{"name":"a"} x`, "not JSON"},
		{`{"name":"a`, "not JSON"},
		{`{"name":"\`, "not JSON"},
		{"{\"name\":\"a\nb\"}", "not JSON"},
		{"{\"name\":\"\xff\"}", "not UTF-8"},
		{`{"name":nul}`, "not JSON"},
		{`{"x":tru}`, "not JSON"},
		{`{"name":7}`, "name: must be a string"},
		{`{"NAME":7}`, "NAME: must be a string"},
		{`{"parts":[{"parts":[{},{"marks":[]}]}]}`, "parts[0].parts[1].marks: must be an object"},
		{`{"parts":{}}`, "parts: must be a list"},
		{`{"ripe":"yes"}`, "ripe: must be true or false"},
		{`{"count":"1"}`, "count: must be a number"},
		{`[]`, "must be an object"},
		{`{"count":` + strings.Repeat("1", 65) + `}`, "count: a number of more than 64"},
		{`{"n\u0061me":"x"}`, "escapes"},
		{deep, "nested more than 64 deep"},
		{`{"else":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "nested more than 64"},
		{`{"raw":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "nested more than 64"},
		{`{"who knows":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `"who knows"[0]`},
		{`{"parts":[` + strings.Repeat("{},", 10_000) + `{}]}`, "parts["},
		{`{"parts":[` + strings.Repeat("{},", 10_000) + `{}]}`, "to decode its 30014 bytes would take more than 425704"},
	} {
		err := fruits.Check([]byte(c.text), bound)
		if refused := (*Error)(nil); (err != nil) != (c.says != "") || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.As(err, &refused)) {
			t.Errorf("%.80s: %v, want %q", c.text, err, c.says)
		}
	}
	if err := fruits.Check([]byte(`{"parts":[{"name":"a"}]}`), Bound{Slack: 100}); err == nil || !strings.Contains(err.Error(), "too costly") {
		t.Errorf("a bound of 100 bytes holds %v", err)
	}
}

// A path of names that is made at each level costs the square of the depth: 615 kB took 900 MB once.
func TestTheCheckItselfCostsNothing(t *testing.T) {
	key := strings.Repeat("k", 200)
	for what, text := range map[string]string{
		"deep":  strings.Repeat(`{"`+key+`":`, 3000) + "0" + strings.Repeat("}", 3000),
		"wide":  `{"else":{` + strings.TrimSuffix(strings.Repeat(`"`+key+`":0,`, 3000), ",") + `}}`,
		"empty": `{"parts":[` + strings.Repeat("{},", 200_000) + `{}]}`,
	} {
		used := wiretest.Measure(func() { _ = fruits.Check([]byte(text), bound) })
		if used.Allocated > int64(len(text))+64<<10 { // the bytes themselves are copied here
			t.Errorf("%s: %d bytes for a text of %d", what, used.Allocated, len(text))
		}
	}
}

func TestCost(t *testing.T) {
	texts := wiretest.Worst(reflect.TypeFor[fruit](), 64<<10, func(text []byte) error { return fruits.Check(text, bound) })
	if len(texts) < 20 {
		t.Errorf("%d places were tried", len(texts))
	}
	for _, text := range texts {
		used := wiretest.Measure(func() { _ = json.Unmarshal(text.Data, new(fruit)) })
		if most := 12*int64(len(text.Data)) + 64<<10 + 8<<10; used.Allocated > most {
			t.Errorf("%s: %d bytes cost %d", text.What, len(text.Data), used.Allocated)
		}
	}
}

func TestEachAndTextAndKind(t *testing.T) {
	text := []byte(`{"kind":"Bowl","apiVersion":"v1","metadata":{"name":"x","labels":{"a/b":"c\"d"}},"items":[ {"a":[1,2]}, 7 ,"]"],"more":[]}`)
	var items []string
	rest, err := Each(text, "items", func(raw []byte) error { items = append(items, string(raw)); return nil })
	if err != nil || fmt.Sprint(items) != `[{"a":[1,2]} 7 "]"]` || string(rest) != `{"kind":"Bowl","apiVersion":"v1","metadata":{"name":"x","labels":{"a/b":"c\"d"}},"items":[],"more":[]}` {
		t.Errorf("%v %s %v", items, rest, err)
	}
	if apiVersion, kind := Kind(text); apiVersion != "v1" || kind != "Bowl" {
		t.Error(apiVersion, kind)
	}
	for want, path := range map[string][]string{"x": {"metadata", "name"}, `c"d`: {"metadata", "labels", "a/b"}, "": {"metadata", "nothing"}} {
		if got := Text(text, path...); got != want {
			t.Errorf("%v: %q", path, got)
		}
	}
	for _, bad := range []string{"", "[]", `{"items":[1,2}`, `{"items":7}`, `{"items":[],"items":[1]}`, `{"items":[1,2`} {
		if _, err := Each([]byte(bad), "items", func([]byte) error { return nil }); err == nil {
			t.Errorf("%s: taken", bad)
		}
	}
	if rest, err := Each([]byte(`{"items":null}`), "items", func([]byte) error { return io.EOF }); err != nil || string(rest) != `{"items":null}` {
		t.Errorf("%s %v", rest, err)
	}
	if _, err := Each([]byte(`{"items":[1,2]}`), "items", func(raw []byte) error { return errors.New("no " + string(raw)) }); err == nil || err.Error() != "items[0]: no 1" {
		t.Errorf("%v", err)
	}
}

// FuzzCheck: what is taken costs a decoder no more than the bound, and what a decoder takes is not called malformed.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"name":"apple","count":-3,"ripe":true,"parts":[{"name":"core"},null],"marks":{"a":"b"},"else":[{"a":1.5e3},null,"x",false]}`))
	f.Add([]byte(`{"picked":"2026-01-01T00:00:00Z","raw":{"a":[1]},"pips":"AAAA","peel":{"peel":{}},"NAME":"\u00e4"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if refused := fruits.Check(text, bound); refused != nil {
			if json.Unmarshal(text, new(fruit)) == nil && strings.Contains(refused.Error(), "not JSON") {
				t.Fatalf("%q is JSON: %v", text, refused)
			}
			return
		}
		wiretest.Within(t, len(text), func() { _ = json.Unmarshal(text, new(fruit)) })
	})
}

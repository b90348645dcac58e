// Package wiretest makes the costliest texts that a door takes, and measures what they cost.
package wiretest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"testing"
	"time"
)

// Worst makes texts of about size bytes for a type, each as dense in one place as taken allows, filled up with what nobody
// decodes. That is what somebody would send who wants to cost most.
func Worst(of reflect.Type, size int, taken func(text []byte) error) []Text {
	g := &generator{size: size, taken: taken, seen: map[reflect.Type]bool{}}
	g.walk(of, "", "", "")
	return g.texts
}

// Text is one of them.
type Text struct {
	What string // the place that is dense
	Data []byte
}

type generator struct {
	size  int
	taken func([]byte) error
	seen  map[reflect.Type]bool
	texts []Text
}

// walk makes the texts for a value of type of that stands between head and tail.
func (g *generator) walk(of reflect.Type, what, head, tail string) {
	if kind := of.Kind(); g.seen[of] && (kind == reflect.Struct || kind == reflect.Pointer) || decodesItself(of) && what != "" {
		return
	}
	g.seen[of] = true // what is dense in one place is so in others
	switch of.Kind() {
	case reflect.Pointer:
		g.walk(of.Elem(), what, head, tail)
	case reflect.Struct:
		for _, f := range fields(of) {
			at, name := what+"."+f.name, fmt.Sprintf("{%q:", f.name)
			g.walk(f.of, at, head+name, "}"+tail)
		}
	case reflect.Slice, reflect.Array:
		for _, unit := range units(of.Elem()) {
			g.dense(what+"[] of "+unit, head+"[", func(int) string { return unit }, "]"+tail)
		}
		g.walk(of.Elem(), what+"[]", head+"[", "]"+tail)
	case reflect.Map:
		for _, unit := range units(of.Elem()) {
			g.dense(what+"{} of "+unit, head+"{", func(i int) string { return fmt.Sprintf(`"%s":%s`, key(i), unit) }, "}"+tail)
		}
		g.walk(of.Elem(), what+"{}", head+`{"a":`, "}"+tail)
	case reflect.Interface:
		for _, unit := range []string{"{}", "[]", `""`, "0", "0.5", `{"":0}`, `[{}]`, `[0]`, "null"} {
			g.dense(what+"[] of "+unit, head+"[", func(int) string { return unit }, "]"+tail)
			g.dense(what+"{} of "+unit, head+"{", func(i int) string { return fmt.Sprintf(`"%s":%s`, key(i), unit) }, "}"+tail)
		}
	}
}

func key(i int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	var b []byte
	for ; ; i /= len(letters) {
		b = append(b, letters[i%len(letters)])
		if i < len(letters) {
			return string(b)
		}
	}
}

// dense repeats a unit as often as is taken.
func (g *generator) dense(what, head string, unit func(int) string, tail string) {
	var longest []byte
	text := func(n int) []byte {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(unit(i))
			if b.Len() > g.size {
				return nil
			}
		}
		b.WriteString(tail)
		if pad := g.size - b.Len() - len(`"-":"",`); pad > 0 && strings.HasPrefix(head, "{") {
			return []byte(`{"-":"` + strings.Repeat("x", pad) + `",` + b.String()[1:])
		}
		return []byte(b.String())
	}
	most := sort.Search(g.size, func(n int) bool {
		data := text(n + 1)
		if data == nil || g.taken(data) != nil {
			return true
		}
		longest = data
		return false
	})
	if most == 0 {
		return
	}
	if data := text(most); data != nil && g.taken(data) == nil {
		longest = data
	}
	g.texts = append(g.texts, Text{strings.TrimPrefix(what, "."), longest})
}

// units are short texts for a type that become much.
func units(of reflect.Type) []string {
	switch {
	case of.Kind() == reflect.Pointer:
		return append(units(of.Elem()), "null")
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return []string{`""`, `"AAAA"`}
	case decodesItself(of):
		return []string{`"1"`, `{}`, "null", `"2026-03-01T12:00:00Z"`}
	}
	switch of.Kind() {
	case reflect.String:
		return []string{`""`, `"a"`, `"\u0041\u0041"`, "null"}
	case reflect.Bool:
		return []string{"true"}
	case reflect.Struct:
		all := []string{"{}"}
		for _, f := range fields(of) {
			switch f.of.Kind() {
			case reflect.Slice, reflect.Map, reflect.Pointer, reflect.String:
				all = append(all, fmt.Sprintf("{%q:%s}", f.name, small(f.of)))
			}
		}
		return all
	case reflect.Slice, reflect.Map:
		return []string{small(of)}
	case reflect.Interface:
		return []string{"{}", `"a"`, "0.5", `{"":0}`}
	}
	return []string{"1"}
}

// small is the shortest text for a type that makes the decoder allocate.
func small(of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return small(of.Elem())
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return `"AAAA"`
	case strings.HasSuffix(of.Name(), "Time"):
		return `"2026-03-01T12:00:00.000000Z"`
	case decodesItself(of):
		return `"1"`
	}
	switch of.Kind() {
	case reflect.String:
		return `"a"`
	case reflect.Bool:
		return "true"
	case reflect.Slice:
		return "[" + small(of.Elem()) + "]"
	case reflect.Map:
		return `{"":` + small(of.Elem()) + "}"
	case reflect.Struct, reflect.Interface:
		return "{}"
	}
	return "1"
}

type field struct {
	name string
	of   reflect.Type
}

func fields(of reflect.Type) (all []field) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			all = append(all, fields(f.Type)...)
		case !f.IsExported():
		case name == "":
			all = append(all, field{f.Name, f.Type})
		default:
			all = append(all, field{name, f.Type})
		}
	}
	return all
}

func decodesItself(of reflect.Type) bool {
	if of.Kind() == reflect.Interface {
		return false
	}
	to := reflect.PointerTo(of)
	return to.Implements(reflect.TypeFor[json.Unmarshaler]()) || to.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Used is what something cost.
type Used struct {
	Allocated int64 // bytes, in all: what is freed again on the way counts too
	Took      time.Duration
}

// Measure runs do twice, the first time to have made what is made once only, and says what the second took.
func Measure(do func()) Used {
	do()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	do()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return Used{int64(after.TotalAlloc - before.TotalAlloc), took} //nolint:gosec // it only grows
}

// The rule: what somebody else sends costs at most Factor times its bytes, and Slack.
const (
	Factor = 16
	Slack  = 1 << 20
)

// Row is a line of the table in docs/security.md.
type Row struct {
	What, From, Limit string
	Worst             Used
	Len               int
	Place             string
}

// Table measures messages and prints a line for each.
type Table struct{ t *testing.T }

// NewTable begins one.
func NewTable(t *testing.T) *Table {
	t.Helper()
	return &Table{t}
}

// Row tries every text and tells of the worst. decode is what the door does with it, from the bytes on; it fails the test
// when any costs more than the rule says.
func (tb *Table) Row(what, from, limit string, texts []Text, decode func([]byte)) {
	tb.t.Helper()
	if len(texts) == 0 {
		tb.t.Errorf("%s: nothing to try", what)
		return
	}
	worst := Row{What: what, From: from, Limit: limit}
	for _, text := range texts {
		used := Measure(func() { decode(text.Data) })
		if over := used.Allocated - Factor*int64(len(text.Data)) - Slack; over > 0 {
			tb.t.Errorf("%s, %s: %d bytes cost %d, %.1f times as much", what, text.What, len(text.Data), used.Allocated, float64(used.Allocated)/float64(len(text.Data)))
		}
		if used.Allocated > worst.Worst.Allocated {
			worst.Worst.Allocated, worst.Len, worst.Place = used.Allocated, len(text.Data), text.What
		}
		worst.Worst.Took = max(worst.Worst.Took, used.Took)
	}
	fmt.Println(worst)
}

// String is a line of Markdown.
func (r Row) String() string {
	per := float64(r.Worst.Took.Nanoseconds()) / math.Max(1, float64(r.Len))
	return fmt.Sprintf("cost: | %s | %s | %s | %s | %.1f | %.0f |", r.What, r.From, r.Limit, size(r.Worst.Allocated), float64(r.Worst.Allocated)/math.Max(1, float64(r.Len)), per)
}

func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
}

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
	return worstOf(of, size, taken, "")
}

func worstOf(of reflect.Type, size int, taken func(text []byte) error, place string) []Text {
	g := &generator{size: size, taken: taken, place: place, seen: map[reflect.Type]bool{}}
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
	place string // the only one, unless it is empty
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
	case reflect.String:
		if at := strings.TrimPrefix(what, ".") + " of escapes"; g.place == "" || g.place == at {
			text := head + `"` + strings.Repeat(`\u0041`, (g.size-len(head)-len(tail)-2)/6) + `"` + tail
			if g.taken([]byte(text)) == nil {
				g.texts = append(g.texts, Text{at, []byte(text)})
			}
		}
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
	what = strings.TrimPrefix(what, ".")
	if g.place != "" && what != g.place {
		return
	}
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
	most := sort.Search(g.size/max(2, len(unit(0))), func(n int) bool {
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
	g.texts = append(g.texts, Text{what, longest})
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
			case reflect.Slice, reflect.Map, reflect.Pointer:
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

// Within fails the test when do, which reads n bytes of somebody else's, allocates more than the rule says. It is for
// fuzzers, which cannot wait for the garbage collector each time.
func Within(t *testing.T, n int, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !raced && used > uint64(Factor*n+Slack) { //nolint:gosec // of a text
		t.Errorf("%d bytes cost %d", n, used)
	}
}

// The rule: what somebody else sends costs at most Factor times its bytes, and Slack.
const (
	Factor = 16
	Slack  = 1 << 20
)

// Row is a line of the table in docs/security.md.
type Row struct {
	What string // the message, or the kind
	From string // who sends it
	Max  int    // bytes of the largest that is taken

	Type   reflect.Type            // what it is decoded into
	Taken  func(text []byte) error // what the door asks first
	Decode func(text []byte)       // what the door does with it, from the bytes on
}

// sweep is how long texts are that try every place.
const sweep = 48 << 10

// Check tries every place in which a message can be dense, and the worst of them once more at full length. The test fails
// when any costs more than the rule says; the line of the table goes to the log.
func (r Row) Check(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("the race detector allocates too")
	}
	var place string
	var worst int64
	measure := func(text Text) Used {
		used := Measure(func() { r.Decode(text.Data) })
		if used.Allocated > Factor*int64(len(text.Data))+Slack {
			t.Errorf("%s, %s: %d bytes cost %d, %.1f times as much", r.What, text.What, len(text.Data), used.Allocated, float64(used.Allocated)/float64(len(text.Data)))
		}
		return used
	}
	for _, text := range worstOf(r.Type, min(sweep, r.Max), r.Taken, "") {
		if used := measure(text); used.Allocated > worst {
			worst, place = used.Allocated, text.What
		}
	}
	texts := worstOf(r.Type, r.Max, r.Taken, place)
	if len(texts) == 0 {
		t.Errorf("%s: nothing to try", r.What)
		return
	}
	used := measure(texts[0])
	t.Log(Line(r.What, r.From, r.Max, len(texts[0].Data), used))
}

// Line is one of the table, for a text of n bytes.
func Line(what, from string, most, n int, used Used) string {
	return fmt.Sprintf("row: | %s | %s | %s | %s | %.1f | %.0f ms |", what, from, size(int64(most)), size(used.Allocated), float64(used.Allocated)/float64(n), math.Ceil(float64(used.Took.Microseconds())/1000))
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

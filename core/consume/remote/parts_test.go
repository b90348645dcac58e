package remote

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

func partOf(n byte, name string) Part {
	return Part{ID: identity.ID{n}.String(), Name: name, Resources: map[string]string{"cpu": "1"}}
}

func partsText(t testing.TB, parts ...Part) string {
	text, err := json.Marshal(Line{Kind: KindParts, Object: Parts{parts}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWhatIsToldOfParts: they count once all was told, and a stream that tells of none has none.
func TestWhatIsToldOfParts(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		want := func(names string) {
			t.Helper()
			var has []string
			for _, part := range v.Parts() {
				has = append(has, part.Name)
			}
			if got := strings.Join(has, ","); got != names {
				t.Errorf("parts are %q, want %q", got, names)
			}
		}
		p.say(partsText(t, partOf(1, "bob"), partOf(2, "carol")))
		want("")
		p.say(synced)
		want("bob,carol")
		p.say(partsText(t, partOf(1, "bob")))
		want("bob")
		p.out.Close()
		pass(time.Second)
		want("bob") // while it is told anew
		p.say(synced)
		want("")
		p.say(partsText(t, partOf(1, "bob"), partOf(2, "dave")))
		want("bob,dave")
		p.say(strings.Replace(partsText(t), `"kind"`, `"gone":true,"kind"`, 1))
		want("")
	})
}

// TestHostileParts: nothing of what cannot be meant is taken, and nothing else goes on in its place.
func TestHostileParts(t *testing.T) {
	many := []Part{}
	for i := range 10_000 {
		id := identity.ID{byte(i), byte(i >> 8), 1}
		many = append(many, Part{ID: id.String(), Name: fmt.Sprint("p", i)})
	}
	twice, id, name, why, amount, arch := partOf(2, "x"), partOf(2, "x"), partOf(2, "x"), partOf(2, "x"), partOf(2, "x"), partOf(2, "x")
	id.ID, name.Name, why.Why, amount.Resources, arch.Arch = "carol", "a\nb", strings.Repeat("y", maxPartWhy+1), map[string]string{"cpu": "-1"}, "a b"
	for what, text := range map[string]string{
		"too many": partsText(t, many...), "twice": partsText(t, partOf(2, "y"), twice), "no ID": partsText(t, id), "a name of two lines": partsText(t, name),
		"a long story": partsText(t, why), "less than nothing": partsText(t, amount), "no architecture": partsText(t, arch),
		"another form": `{"kind":"Parts","object":{"parts":{"a":1}}}`, "deep": `{"kind":"Parts","object":{"parts":` + strings.Repeat(`[`, 1<<16) + strings.Repeat(`]`, 1<<16) + `}}`,
	} {
		t.Run(what, func(t *testing.T) {
			follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
				p.say(text)
				pass(time.Second)
				if p.opened.Load() != 2 || len(v.Parts()) > 0 {
					t.Errorf("opened %d times, with %d parts", p.opened.Load(), len(v.Parts()))
				}
			})
		})
	}
}

func FuzzParts(f *testing.F) {
	good, err := json.Marshal(Parts{[]Part{partOf(1, "bob"), partOf(2, "carol")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"parts":[{"id":"` + strings.Repeat("A", 63) + `"}]}`))
	f.Add([]byte(`{"parts":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		is, err := readParts(text)
		if err == nil && (len(is.Parts) > MaxParts || is.Validate() != nil) {
			t.Errorf("%q is taken", text)
		}
	})
}

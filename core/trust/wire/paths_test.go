package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestPathsAreCountedBeforeTheyAreWritten(t *testing.T) {
	for text, most := range map[string]int64{
		`{}`: 0, `7`: 0, `{"a":1}`: 2, `{"a":{"b":1,"b":2}}`: 2 + 4 + 4, `{"a":[{"b":1},{"c":2}]}`: 2 + 2*(2+indexed+2), ` {"a" : [ ] } `: 2,
	} {
		if !Paths([]byte(text), most) || most > 0 && Paths([]byte(text), most-1) {
			t.Errorf("%s: are not %d bytes", text, most)
		}
	}
	deep := func(n int) []byte { return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)) }
	for text, want := range map[string]bool{string(deep(MaxDepth)): true, string(deep(MaxDepth + 1)): false, `{"a":1`: false, `a: 1`: false, `{} {}`: false, ``: false} {
		if Paths([]byte(text), math.MaxInt32) != want {
			t.Errorf("%.40s: not %t", text, want)
		}
	}
}

func TestElementsAreCounted(t *testing.T) {
	for text, most := range map[string]int64{`7`: 0, `{}`: 0, `[]`: 0, `{"a":1}`: 1, `[null,[1,"a,b"],{}]`: 5, ` {"a":{"b":[{"c":1}]}} `: 4} {
		if !Elements([]byte(text), most) || most > 0 && Elements([]byte(text), most-1) {
			t.Errorf("%s: are not %d", text, most)
		}
	}
	for _, text := range []string{``, `a: 1`, `[1`, `[1] 2`, "k8s\x00\n", strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)} {
		if Elements([]byte(text), math.MaxInt32) {
			t.Errorf("%.20q was counted", text)
		}
	}
}

func FuzzPaths(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1},{"c":"\u0041"}],"d":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !Paths(data, 1<<20) && !Elements(data, 1<<20) {
			return
		}
		depth := 0
		for d := json.NewDecoder(bytes.NewReader(data)); ; {
			token, err := d.Token()
			if err != nil {
				return // what Go takes for JSON is not what is tested
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
			if depth > MaxDepth {
				t.Fatal("counted, and nested too deep")
			}
		}
	})
}

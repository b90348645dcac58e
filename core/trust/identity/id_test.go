package identity

import (
	"crypto/ed25519"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func someID(seed byte) ID {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed%26)), ed25519.SeedSize)))
	return IDOf(key.Public().(ed25519.PublicKey))
}

func randomIDs(n int) []ID {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]ID, n)
	for i := range ids {
		for b := range ids[i] {
			ids[i][b] = byte(r.Uint32())
		}
	}
	return ids
}

func TestIDFormsArePinned(t *testing.T) {
	// RFC 8032 section 7.1, test 1. These strings are in people's configs: they never change.
	pub := ed25519.PublicKey("\xd7\x5a\x98\x01\x82\xb1\x0a\xb7\xd5\x4b\xfe\xd3\xc9\x64\x07\x3a\x0e\xe1\x72\xf3\xda\xa6\x23\x25\xaf\x02\x1a\x68\xf7\x07\x51\x1a")
	id := IDOf(pub)
	const want = "EH7DDX5-BKSRGCD-YTL7BKA-I36SE44-NXX3KLN-K7ELKS2-YQ57PI7-4XEG4QI"
	if got := id.String(); got != want {
		t.Errorf("String %s, want %s", got, want)
	}
	if got, want := id.Compact(), strings.ToLower(strings.ReplaceAll(want, "-", "")); got != want {
		t.Errorf("Compact %s, want %s", got, want)
	}
	if got := id.Short(); got != "eh7ddx5" {
		t.Errorf("Short %s", got)
	}
}

func TestIDFormsFitWhereTheyGo(t *testing.T) {
	written := regexp.MustCompile(`^([A-Z2-7]{7}-){7}[A-Z2-7]{7}$`)
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) // RFC 1123
	for _, id := range randomIDs(1000) {
		if s := id.String(); !written.MatchString(s) {
			t.Fatalf("String %q", s)
		}
		for _, s := range []string{id.Compact(), id.Short()} {
			if !label.MatchString(s) {
				t.Fatalf("%q is no DNS label", s)
			}
		}
	}
}

func TestParseIDReadsWhatPeopleType(t *testing.T) {
	for _, id := range randomIDs(200) {
		s := id.String()
		for _, typed := range []string{
			s, id.Compact(), strings.ToLower(s), strings.ReplaceAll(s, "-", " "), "  " + s + "\n",
			strings.ReplaceAll(s, "-", "–"), // a word processor's dash
			strings.NewReplacer("O", "0", "I", "1", "B", "8").Replace(s),
		} {
			got, err := ParseID(typed)
			if err != nil || got != id {
				t.Fatalf("ParseID(%q) = %v, %v", typed, got, err)
			}
		}
	}
}

func TestEverySingleWrongCharacterIsFoundAndItsGroupNamed(t *testing.T) {
	for _, id := range randomIDs(20) {
		full := strings.ToUpper(id.Compact())
		for i := range full {
			for _, c := range alphabet {
				if byte(c) == full[i] {
					continue
				}
				_, err := ParseID(full[:i] + string(c) + full[i+1:])
				if err == nil {
					t.Fatalf("%s with %c at %d passes", full, c, i)
				}
				first := "group " + string(rune('1'+2*(i/14)))
				if i < 42 && !strings.Contains(err.Error(), first) { // the last chunk may also fail by its spare bits
					t.Fatalf("mistake at %d, error does not name %s: %v", i, first, err)
				}
			}
		}
	}
}

func TestSwappedNeighboursAreFoundExceptAWith7(t *testing.T) {
	for _, id := range randomIDs(200) {
		full := strings.ToUpper(id.Compact())
		for i := range len(full) - 1 {
			a, b := full[i], full[i+1]
			if a == b || i%14 >= 12 { // over the border of a chunk, or with the check character, see below
				continue
			}
			_, err := ParseID(full[:i] + string([]byte{b, a}) + full[i+2:])
			blind := a == 'A' && b == '7' || a == '7' && b == 'A'
			if err == nil && !blind {
				t.Fatalf("%s with %c%c swapped at %d passes", full, a, b, i)
			}
		}
	}
}

func TestParseIDErrors(t *testing.T) {
	good := someID(0).String()
	for _, c := range []struct{ typed, says string }{
		{"", "has 0 characters, want 56"},
		{good[:62], "has 55 characters"},
		{good + "A", "has 57 characters"},
		{strings.Repeat("-", 300), "too long"},
		{"EH7DDXG-9MQSRWF" + good[15:], `character '9' in group 2`},
		{"EH7DDXG-éMQSRWF" + good[15:], `character 'é' in group 2`},
		{strings.Repeat("A", 56), "all zero"},
	} {
		if _, err := ParseID(c.typed); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("ParseID(%q): %v, want it to say %q", c.typed, err, c.says)
		}
	}
}

func TestOneKeyHasOneSpelling(t *testing.T) {
	// The last data character carries one bit of the ID; its other four must be zero.
	id := ID{1}
	full := strings.ToUpper(id.Compact())
	for _, c := range alphabet {
		chunk := full[42:54] + string(c)
		if got, err := ParseID(full[:42] + chunk + string(checkChar(chunk))); err == nil && got.Compact() != strings.ToLower(full[:42]+chunk+string(checkChar(chunk))) {
			t.Errorf("%s is a second spelling of %s", chunk, got)
		}
	}
}

func TestIDInJSON(t *testing.T) {
	type doc struct {
		ID    ID `json:"id"`
		Other ID `json:"other,omitzero"`
	}
	in := doc{ID: someID(1)}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"id":"`+in.ID.String()+`"}` {
		t.Fatalf("%s, %v", text, err)
	}
	var out doc
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"id":"","other":"nonsense"}`), &out); err == nil {
		t.Error("nonsense is taken for an ID")
	}
	if !out.ID.IsZero() || out.ID.String() != "" || out.ID.Short() != "" {
		t.Error("empty text is not the zero ID")
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(someID(0).String())
	f.Add(someID(1).Compact())
	f.Add("A-1 8–\xff")
	f.Fuzz(func(t *testing.T, typed string) {
		id, err := ParseID(typed)
		if err != nil {
			return
		}
		if id.IsZero() {
			t.Fatalf("%q gives the zero ID", typed)
		}
		again, err := ParseID(id.String())
		if err != nil || again != id {
			t.Fatalf("%q gives %s, which gives %s, %v", typed, id, again, err)
		}
	})
}

package record

import (
	"strings"
	"testing"

	"kith.dev/core/trust/identity"
)

func TestLabelIsAlwaysADNSLabel(t *testing.T) {
	for name, want := range map[string]string{
		"bob":                            "bob",
		"Bob's MacBook Pro":              "bob-s-macbook-pro",
		"--x--":                          "x",
		"":                               "laptop",
		"日本":                             "laptop",
		"a\nb\u202ec":                    "a-b-c",
		strings.Repeat("x", 300):         strings.Repeat("x", maxName),
		strings.Repeat("x", 39) + "-yyy": strings.Repeat("x", 39),
	} {
		if got := Label(name); got != want {
			t.Errorf("Label(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSecondBobIsNamedAfterHisID(t *testing.T) {
	id := identity.ID{1, 2, 3}
	got := NameFor(id, "bob", func(name string) bool { return name == "bob" })
	if want := "bob-" + strings.ToLower(id.Short()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNobodyGetsTheNameOfAnother(t *testing.T) {
	id := identity.ID{1, 2, 3}
	second := "bob-" + id.Short()
	got := NameFor(id, "bob", func(name string) bool { return name == "bob" || name == second }) // who calls himself so, on purpose
	if got == "bob" || got == second || len(got) > maxName || Label(got) != got {
		t.Errorf("got %q", got)
	}
}

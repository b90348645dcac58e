package api

import (
	"maps"
	"strings"
	"testing"
)

func TestPricesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"0.02EUR": "0.02 EUR", "0.02 EUR": "0.02 EUR", "3credits": "3 credits", "0": "", "0.00": "", "0EUR": "", "12.123456789 X": "12.123456789 X",
	} {
		if got, err := ReadPrice("price.cpu", text); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "EUR", "1", "-1EUR", "1e3EUR", "1.EUR", "0.1234567891EUR", "1  EUR", "1 EUR ", "1 €", "1 " + strings.Repeat("E", 17)} {
		if got, err := ReadPrice("price.cpu", text); err == nil {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
}

func TestPricesOfAPolicy(t *testing.T) {
	was := Policy{Amounts: Resources{CPU: "2"}, Prices: map[string]string{CPU: "0.02 EUR"}}
	is := PolicyChange{Prices: map[string]string{CPU: "", Memory: "0.01 EUR"}}.Apply(was)
	if !maps.Equal(is.Prices, map[string]string{Memory: "0.01 EUR"}) || was.Prices[CPU] == "" {
		t.Errorf("%v", is.Prices)
	}
	if got, want := is.Since(was), "cpu costs 0.02 EUR → nothing, memory costs nothing → 0.01 EUR"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if back := is.Undo(was).Apply(is); !maps.Equal(back.Prices, was.Prices) {
		t.Errorf("undone: %v", back.Prices)
	}
}

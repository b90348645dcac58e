package question_test

import (
	"strings"
	"testing"
	"unicode"

	"kith.dev/core/api"
	"kith.dev/tray/question"
)

func text(q question.Question) string {
	return strings.Join(append([]string{q.Lead, q.Code}, append(q.Text, "["+q.Yes+"] ["+q.No+"]")...), "\n")
}

func TestRequestIsAskedAboutWithAllThatItWants(t *testing.T) {
	r := api.Request{ID: "r", Peer: "alice", PeerID: "P5QHIFI-X", Code: "069210", Address: "192.0.2.11:6450", Asked: api.Resources{"cpu": "100000"},
		Granted: api.Resources{"cpu": "8", "memory": "4Gi", "ephemeral-storage": "1Gi"}}
	got := text(question.Accept(r, "P5QHIFI"))
	want := `alice asks to use this laptop. Does alice's screen show this code?
069 210
It is cluster P5QHIFI, at 192.0.2.11:6450.
It would get cpu 8 (asked 100000), memory 4Gi, ephemeral-storage 1Gi.
Accept only if its owner sees the same digits.
[Accept] [Decline]`
	if got != want {
		t.Error(got)
	}
	r.Code, r.Asked, r.InForce = "", nil, api.Resources{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi"}
	got = text(question.Accept(r, "P5QHIFI"))
	if !strings.HasPrefix(got, "alice asks to change what it uses of this laptop.\n") ||
		!strings.Contains(got, "It would get cpu 2 → 8, memory 4Gi, ephemeral-storage 1Gi.\nIts key is known: you accepted it before.") || strings.Contains(got, "code") {
		t.Error(got)
	}
}

func TestAcceptanceIsAskedAboutWithCodeAndTerms(t *testing.T) {
	p := api.Peer{Name: "bob", ShortID: "KXJ2A7Q", Addresses: []string{"192.0.2.12:6450"}, Confirm: &api.Confirmation{Code: "069210"}}
	q, whole := question.Confirm(p)
	want := `bob accepted. Does bob's screen show this code?
069 210
It is cluster KXJ2A7Q, at 192.0.2.12:6450.
Confirm only if its owner sees the same digits. Nothing is signed before.
[Confirm] [They differ]`
	if got := text(q); got != want || !whole {
		t.Error(got, whole)
	}
	p.Confirm = &api.Confirmation{Terms: []string{"cpu costs 0.02 EUR an hour"}}
	if q, whole = question.Confirm(p); !whole || q.Code != "" || q.No != "Refuse" || q.Text[len(q.Text)-1] != "- cpu costs 0.02 EUR an hour" {
		t.Error(text(q), whole)
	}
	p.Confirm = nil
	if _, whole = question.Confirm(p); whole {
		t.Error("there is nothing to confirm")
	}
}

// Nobody can agree to terms that a window shows in part.
func TestTermsThatDoNotFitCannotBeAgreedTo(t *testing.T) {
	for name, terms := range map[string][]string{"many": make([]string, 11), "long": {strings.Repeat("x", 241)}} {
		if _, whole := question.Confirm(api.Peer{Name: "bob", Confirm: &api.Confirmation{Terms: terms}}); whole {
			t.Errorf("%s: it is said to be whole", name)
		}
	}
}

func TestNameThatIsNoWordOfAShellIsNotRecommended(t *testing.T) {
	for name, want := range map[string]string{"bob": "bob", "lap-2.lan": "lap-2.lan", "bob;reboot": "KX", "$(x)": "KX", "-f": "KX", "": "KX", "Bob": "KX", "b ob": "KX"} {
		if got := question.Named(name, "KX"); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func FuzzQuestionsShowAnyWordsHarmlessly(f *testing.F) {
	for _, s := range []string{"bob", "<b>x</b>\n", "\u202eevil", "\\74b\\76", "\x00\xff", strings.Repeat("x", 5000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := api.Peer{Name: s, ShortID: s, Addresses: []string{s}, Confirm: &api.Confirmation{Code: s, Terms: []string{s, s}}}
		c, _ := question.Confirm(p)
		for _, q := range []question.Question{question.Accept(api.Request{Peer: s, Code: s, Address: s, Asked: api.Resources{s: s}, Granted: api.Resources{s: s}, InForce: api.Resources{"cpu": s}, Refusal: s}, s), c} {
			for line := range strings.SplitSeq(text(q), "\n") {
				if strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsAny(line, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067") || len(line) > 4096 {
					t.Errorf("%q", line)
				}
			}
		}
	})
}

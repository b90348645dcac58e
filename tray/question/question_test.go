package question_test

import (
	"strings"
	"testing"
	"time"
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
		check := api.TetherCheck{Peer: s, Effects: []string{s}, Blockers: []api.Problem{{What: s, Why: s, Do: s}}}
		run := api.Snapshot{Status: api.Status{Mode: api.Tethered, Tether: &api.Tether{Peer: s}}}
		for _, q := range []question.Question{question.Accept(api.Request{Peer: s, Code: s, Address: s, Asked: api.Resources{s: s}, Granted: api.Resources{s: s}, InForce: api.Resources{"cpu": s}, Refusal: s}, s), c,
			question.Tether(check, s), question.Blocked(check), question.Untether(run)} {
			for line := range strings.SplitSeq(text(q), "\n") {
				if strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsAny(line, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067") || len(line) > 4096 {
					t.Errorf("%q", line)
				}
			}
		}
	})
}

func TestATetherIsAskedAboutWithAllThatItMeans(t *testing.T) {
	check := api.TetherCheck{Peer: "corp", Effects: []string{"The laptop becomes a node of corp's cluster.", "You may work there in team-a (edit)."}}
	got := text(question.Tether(check, "CORPAAA"))
	want := `Have corp's cluster run this laptop?

It is cluster CORPAAA.
- The laptop becomes a node of corp's cluster.
- You may work there in team-a (edit).
[Tether] []`
	if got != want {
		t.Error(got)
	}
	check.Blockers = []api.Problem{{What: "bob uses this laptop", Why: "all of it would be corp's", Do: "kith unpeer bob"}, {What: "this laptop uses carol", Do: "kith unpeer carol"}}
	got = text(question.Blocked(check))
	want = `This laptop cannot be tethered to corp yet.

- bob uses this laptop: all of it would be corp's
   kith unpeer bob
- this laptop uses carol
   kith unpeer carol
[Look again] []`
	if got != want {
		t.Error(got)
	}
	for range 20 {
		check.Blockers, check.Effects = append(check.Blockers, check.Blockers[0]), append(check.Effects, check.Effects[0])
	}
	if got := text(question.Blocked(check)); !strings.Contains(got, "… and 10 more: kith tether --check") || strings.Count(got, "\n") > 30 {
		t.Error(got)
	}
	if got := text(question.Tether(check, "CORPAAA")); strings.Count(got, "\n") > 20 {
		t.Error(got)
	}
}

func TestUntetherSaysWhatBecomesOfTheCompanysPods(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   api.Mode
		lost   bool
		guests int
		says   []string
		not    string
	}{
		"with pods":      {api.Tethered, false, 3, []string{"Take this laptop back from corp?", "corp is asked to take away what it runs here, 3 pods, which starts again elsewhere", "Your own pods run on.", "[Untether]"}, "cut"},
		"without":        {api.Tethered, false, 0, []string{"Then this laptop's own cluster decides again"}, "take away"},
		"lost, with one": {api.Tethered, true, 1, []string{"corp does not answer. 1 pod that it runs here is cut"}, "asked to take away"},
		"lost, without":  {api.Tethered, true, 0, []string{"corp does not answer. It learns that it has this laptop no more"}, "cut"},
		"on the way":     {api.Tethering, false, 0, []string{"Stop tethering this laptop to corp?", "What was done so far is undone", "[Take back]"}, "kubectl"},
	} {
		s := api.Snapshot{Status: api.Status{Mode: tc.mode, Tether: &api.Tether{Peer: "corp"}, Counts: api.Counts{Guests: tc.guests}}}
		if tc.lost {
			s.Status.Tether.DownSince = time.Now()
		}
		got := text(question.Untether(s))
		for _, want := range tc.says {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in %s", name, want, got)
			}
		}
		if strings.Contains(got, tc.not) {
			t.Errorf("%s: %q in %s", name, tc.not, got)
		}
	}
}

func TestALaptopThatAsksToBeRunIsNoGuest(t *testing.T) {
	got := text(question.Accept(api.Request{Peer: "alice", Code: "069210", Tether: true, Means: "this cluster runs it; its users work in team-a (edit)", Address: "192.0.2.11:6450"}, "P5QHIFI"))
	if !strings.HasPrefix(got, "alice is a laptop that asks this cluster to run it. Does alice's screen show this code?\n069 210\n") ||
		!strings.Contains(got, "With a yes this cluster runs it; its users work in team-a (edit).") || strings.Contains(got, "would get") {
		t.Error(got)
	}
}

func TestAnEndSaysWhatBecomesOfThePods(t *testing.T) {
	for want, pods := range map[string]api.PeerPods{
		"What runs there, 3 pods, starts again where there is room.\nWhat it runs here, 1 pod, is ended.": {Abroad: 3, Guests: 1},
		"What it runs here, 2 pods, is ended.":         {Guests: 2},
		"No pods run there or here for the other now.": {},
	} {
		q := question.Unpeer(api.Peer{Name: "bob", ShortID: "kxj2a7q", Pods: pods})
		if got := text(q); !strings.Contains(got, "End what there is with bob?") || !strings.Contains(got, "It is cluster kxj2a7q.\n"+want) || q.No != "" {
			t.Error(got)
		}
	}
}

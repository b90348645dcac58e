package receipts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/receipt"
)

// tunnel is what each side counts of traffic.
type tunnel struct{ alice, bob uint64 }

func (w *world) tunnel() *tunnel {
	at := &tunnel{}
	w.alice.Carried = func(_ string, provides bool) uint64 {
		if provides {
			w.t.Error("alice does not provide")
		}
		return at.alice
	}
	w.bob.Carried = func(string, bool) uint64 { return at.bob }
	return at
}

// Traffic is counted while there are pods, by the bytes, and is in receipts of a version of their own.
func TestTrafficHasAPrice(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "0.03 EUR", "network": "0.1 EUR"})
	at := w.tunnel()
	at.alice, at.bob = 7e9, 9e9 // of a contract before
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000, "pods": 3}, "batch": {"pods": 1}})
	at.alice, at.bob = at.alice+2_500_000_000, at.bob+2_500_000_000
	w.pass(42 * time.Minute)                                        // and it is fetched
	at.alice, at.bob = at.alice+1_010_000_000, at.bob+1_000_000_000 // some of what she sent was lost
	w.pass(time.Hour)
	at.alice, at.bob = 300_000_000, 300_000_000 // the tunnel was made anew
	w.pass(time.Hour)
	chain, _ := w.file(w.alice)
	if n := len(chain.Items); n != 3 {
		t.Fatalf("%d receipts, %q", n, w.account(w.alice).Fault)
	}
	for i, want := range []struct{ used, due string }{{"2500000000", "0.25"}, {"1000000000", "0.1"}, {"300000000", "0.03"}} {
		r := chain.Items[i]
		if r.Receipt.Version != receipt.Version2 || r.Receipt.Used["network"] != want.used || r.Receipt.Due["network"] != want.due || r.Answer == nil || r.Answer.Verdict != receipt.Agreed {
			t.Errorf("receipt %d: %+v, %+v; want %+v", i+1, r.Receipt, r.Answer, want)
		}
	}
	// Namespaces have of it as they have pods.
	for _, s := range w.shares()[1] {
		if want := map[string]string{"shop": "1875000000", "batch": "625000000"}[s.Namespace]; s.Used["network"] != want {
			t.Errorf("%s has %s, want %s", s.Namespace, s.Used["network"], want)
		}
	}
	// Without pods nothing is counted, though gateways ask each other whether they are there.
	w.uses(Amounts{})
	at.alice, at.bob = at.alice+5_000_000, at.bob+5_000_000
	w.pass(time.Hour)
	chain, _ = w.file(w.bob)
	if last := chain.Last().Receipt; last.Used["network"] != "" {
		t.Errorf("%+v", last)
	}
}

// Traffic counts to a budget as it passes, also of an hour, whose receipt comes when it is over; and once.
func TestTrafficIsSpentAsItPasses(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "0 EUR", "network": "1 EUR"})
	w.paid, w.alice.note, w.bob.note = true, checkpoint, checkpoint
	at := w.tunnel()
	w.usesBy(map[string]Amounts{"shop": {"pods": 3}, "batch": {"pods": 1}})
	carry := func(n uint64) {
		at.alice, at.bob = at.alice+n, at.bob+n
		w.pass(10 * time.Minute)
	}
	nine := begin.Truncate(hour)
	spent := func(since time.Time, shop, batch string) {
		t.Helper()
		for namespace, want := range map[string]string{"shop": shop, "batch": batch} {
			if n, perHour, err := w.alice.Spent(namespace, "EUR", since); err != nil || n.FloatString(3) != want || perHour.Sign() != 0 {
				t.Errorf("%s since %s: %s, %v; want %s", namespace, since, n.FloatString(3), err, want)
			}
		}
	}
	carry(2e9) // 9:30
	spent(nine, "1.500", "0.500")
	carry(4e9)
	spent(nine, "4.500", "1.500")
	w.usesBy(map[string]Amounts{"shop": {"pods": 1}})
	carry(1e9) // 9:50, and then nothing until the receipt is here
	spent(nine, "5.500", "1.500")
	w.alice.restarts(w, false)
	at = w.tunnel()
	w.pass(15 * time.Minute) // 10:05
	spent(nine.Add(hour), "0.000", "0.000")
	spent(nine, "5.500", "1.500")
	if n := len(w.account(w.alice).Items); n != 1 {
		t.Fatalf("%d receipts", n)
	}
	carry(3e9) // 10:15
	spent(nine.Add(hour), "3.000", "0.000")
	spent(nine, "8.500", "1.500")
	w.cut = true // no receipt comes
	w.pass(time.Hour)
	carry(1e9) // 11:25
	spent(nine.Add(2*hour), "1.000", "0.000")
	spent(nine, "9.500", "1.500")
	w.cut = false
	w.pass(2 * time.Hour)
	spent(nine, "9.500", "1.500")
	for _, s := range w.shares()[1] {
		if want := map[string]string{"shop": "5500000000", "batch": "1500000000"}[s.Namespace]; s.Used["network"] != want {
			t.Errorf("%s has %s, want %s", s.Namespace, s.Used["network"], want)
		}
	}
}

func TestAProviderThatCountsMoreTraffic(t *testing.T) {
	for name, c := range map[string]struct {
		alice, bob uint64
		want       receipt.Verdict
	}{
		"a little":      {100_000_000, 109_000_000, receipt.Agreed},
		"a fiftieth":    {10_000_000_000, 10_190_000_000, receipt.Agreed},
		"more":          {100_000_000, 111_000_000, receipt.Disputed},
		"more than 2 %": {10_000_000_000, 10_210_000_000, receipt.Disputed},
		"less":          {10_000_000_000, 1, receipt.Agreed},
	} {
		w := newWorld(t, map[string]string{"network": "1 EUR"})
		at := w.tunnel()
		w.uses(Amounts{"pods": 1})
		at.alice, at.bob = c.alice, c.bob
		w.pass(42 * time.Minute)
		if chain, _ := w.file(w.alice); len(chain.Items) != 1 || chain.Items[0].Answer.Verdict != c.want {
			t.Errorf("%s: %+v", name, chain.Items)
		}
	}
}

func (w *world) disputed() (n int) {
	chain, _ := w.file(w.alice)
	for _, item := range chain.Items {
		if item.Answer == nil || item.Answer.Verdict == receipt.Disputed {
			n++
		}
	}
	return n
}

// A part of what is sent is always lost on its way. That never becomes a dispute, however long it goes on, and whenever the receipts come; a provider that
// makes more receipts gets no more of it.
func TestTrafficThatIsLostIsForgivenByTheHour(t *testing.T) {
	for name, c := range map[string]struct{ alice, bob uint64 }{
		"a little of little": {1_000_000, 7_000_000},
		"2 % of much":        {10_000_000_000, 10_190_000_000},
		"nothing comes":      {0, 6_000_000},
	} {
		w := newWorld(t, map[string]string{"network": "1 EUR"})
		at := w.tunnel()
		w.uses(Amounts{"pods": 1})
		for i := range 30 {
			w.cut = i >= 5 && i < 20
			at.alice, at.bob = at.alice+c.alice, at.bob+c.bob
			w.pass(time.Hour)
		}
		if n := w.disputed(); n > 0 {
			t.Errorf("%s: %d receipts are disputed", name, n)
		}
	}
	w := newWorld(t, map[string]string{"network": "1 EUR"})
	at := w.tunnel()
	w.uses(Amounts{"pods": 1})
	for range 10 {
		at.bob += 5_000_000
		w.pass(time.Minute)
		w.closes()
		w.closes()
	}
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	if w.disputed() == 0 {
		t.Error("a tolerance is granted with each receipt")
	}
}

// What a provider did not count it cannot make up for later; but what passed while receipts did not come is in those that come together, also where clocks differ.
func TestTrafficIsNotSavedUp(t *testing.T) {
	w := newWorld(t, map[string]string{"network": "1 EUR"})
	at := w.tunnel()
	w.uses(Amounts{"pods": 1})
	for range 5 {
		at.alice += 1_000_000_000
		w.pass(time.Hour)
	}
	at.bob += 3_000_000_000
	w.pass(time.Hour)
	if n := w.disputed(); n != 1 {
		t.Errorf("%d receipts are disputed", n)
	}
	for _, skew := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute} {
		w := newWorld(t, map[string]string{"network": "1 EUR"})
		w.paid, w.alice.note, w.bob.note = true, 10*checkpoint, 10*checkpoint
		w.alice.now.Wall = w.alice.now.Wall.Add(skew)
		at := w.tunnel()
		w.uses(Amounts{"pods": 1})
		for i := range 50 {
			w.cut = i >= 5 && i < 45
			at.alice, at.bob = at.alice+1_000_000_000, at.bob+1_000_000_000
			w.pass(10 * time.Minute)
		}
		if n := w.disputed(); n > 0 {
			t.Errorf("clocks that differ by %s: %d receipts are disputed", skew, n)
		}
	}
}

// What is not priced is not counted, and receipts are what they were.
func TestTrafficWithoutAPriceIsInNoReceipt(t *testing.T) {
	w := newWorld(t, priced)
	at := w.tunnel()
	w.uses(Amounts{"cpu": 1000, "pods": 1})
	at.alice, at.bob = 5e9, 5e9
	w.pass(time.Hour)
	chain, text := w.file(w.bob)
	r := chain.Items[0].Receipt
	if r.Version != receipt.Version || r.Used["network"] != "" || strings.Contains(text, "receipt/v2") {
		t.Errorf("%+v", r)
	}
	state, err := os.ReadFile(filepath.Join(w.bob.Dir, w.doc.ID+stateOf))
	if err != nil || strings.Contains(string(state), "traffic") || !json.Valid(state) {
		t.Errorf("%s, %v", state, err)
	}
}

// A kithd that starts anew counts from nothing on, and what was counted before stays.
func TestTrafficOverARestart(t *testing.T) {
	w := newWorld(t, map[string]string{"network": "1 EUR"})
	w.paid, w.alice.note, w.bob.note = true, checkpoint, checkpoint
	at := w.tunnel()
	w.uses(Amounts{"pods": 1})
	at.alice, at.bob = 3e9, 3e9
	w.pass(10*time.Minute + time.Second)
	for _, s := range []*side{w.alice, w.bob} {
		s.restarts(w, false)
	}
	at = w.tunnel()
	at.alice, at.bob = 1e9, 1e9
	w.pass(time.Hour)
	chain, _ := w.file(w.alice)
	if r := chain.Items[0]; r.Receipt.Used["network"] != "4000000000" || r.Answer.Verdict != receipt.Agreed {
		t.Errorf("%+v, %+v", r.Receipt, r.Answer)
	}
}

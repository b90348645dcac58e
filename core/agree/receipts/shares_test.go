package receipts

import (
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/receipt"
)

// usesBy has pods of namespaces request so much from now on.
func (w *world) usesBy(by map[string]Amounts) {
	used := Amounts{}
	for _, amounts := range by {
		for name, n := range amounts {
			used[name] += n
		}
	}
	w.by = by
	w.uses(used)
}

// shares are those of all that alice has, and all of them together sum up to what is signed or open.
func (w *world) shares() map[int64][]Share {
	w.t.Helper()
	account := w.account(w.alice)
	all, err := w.alice.Shares(account)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range account.Items {
		due, used := new(big.Int), map[string]*big.Int{}
		for _, s := range all[item.Receipt.Sequence] {
			n, err := receipt.Billionths(s.Total)
			if err != nil {
				w.t.Fatal(err)
			}
			due.Add(due, n)
			for name, text := range s.Used {
				n, _ := new(big.Int).SetString(text, 10)
				if used[name] == nil {
					used[name] = new(big.Int)
				}
				used[name].Add(used[name], n)
			}
		}
		got := receipt.Sums{}
		for name, n := range used {
			got[name] = n.String()
		}
		if receipt.Money(due) != item.Receipt.Total || !maps.Equal(got, item.Receipt.Used) {
			w.t.Errorf("receipt %d: the shares come to %s and %v, the receipt to %s and %v", item.Receipt.Sequence, receipt.Money(due), got, item.Receipt.Total, item.Receipt.Used)
		}
	}
	return all
}

func namespaces(shares []Share) string {
	var parts []string
	for _, s := range shares {
		parts = append(parts, s.Namespace+"="+s.Used["cpu"]+"/"+s.Total)
	}
	return strings.Join(parts, " ")
}

// Each receipt is split as its hour was used; together the shares are what is signed, to the last billionth.
func TestReceiptsAreSplitByNamespace(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "0.03 EUR", "memory": "0.007 EUR"})
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000, "memory": 1 << 30, "pods": 1}, "batch": {"cpu": 500, "memory": 3 << 30, "pods": 2}})
	w.pass(40 * time.Minute) // to the hour
	w.usesBy(map[string]Amounts{"shop": {"cpu": 700}})
	w.pass(20 * time.Minute)
	w.alice.restarts(w, false)
	w.usesBy(map[string]Amounts{"batch": {"cpu": 100}, "shop": {"cpu": 200}})
	w.sign(2, map[string]string{"cpu": "0.3 EUR"})
	w.pass(40*time.Minute + 30*time.Second)
	w.pass(10 * time.Minute)
	all := w.shares()
	for sequence, want := range map[int64]string{
		1: "batch=1200000/0.023999999 shop=2400000/0.024666667",
		2: "batch=199/0.000001658 shop=839801/0.006998342", // and two seconds, until it is fetched, of what came next
		3: "batch=239801/0.019983416 shop=480199/0.040016584",
		0: "batch=63000/0.00525 shop=126000/0.0105",
	} {
		if got := namespaces(all[sequence]); got != want {
			t.Errorf("receipt %d: %s, want %s", sequence, got, want)
		}
	}
}

func TestWhatNamespacesSpent(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "1 EUR"})
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}, "batch": {"cpu": 3000}})
	w.pass(40*time.Minute + 2*time.Hour + 15*time.Minute) // 12:15
	spent := func(namespace, currency string, since time.Time, want, rate string) {
		t.Helper()
		for range 2 {
			n, perHour, err := w.alice.Spent(namespace, currency, since)
			if err != nil || n.FloatString(3) != want || perHour.FloatString(3) != rate {
				t.Errorf("%s since %s: %s, %s an hour, %v; want %s, %s", namespace, since, n.FloatString(3), perHour.FloatString(3), err, want, rate)
			}
			w.alice.restarts(w, false) // reads the same
		}
	}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	spent("shop", "EUR", noon, "0.250", "1.000")
	spent("batch", "EUR", noon, "0.750", "3.000")
	spent("shop", "EUR", noon.Add(-time.Hour), "1.250", "1.000")
	spent("shop", "EUR", noon.Add(-24*time.Hour), "2.917", "1.000")
	spent("shop", "USD", noon, "0.000", "0.000")
	spent("other", "EUR", noon, "0.000", "0.000")
	w.cut = true
	w.pass(75 * time.Minute) // 13:30: the receipt of the hour before is not here, and its hour is not this one's
	spent("shop", "EUR", noon.Add(time.Hour), "0.500", "1.000")
	spent("shop", "EUR", noon, "1.500", "1.000")
	w.over = true
	w.pass(time.Minute)
	spent("shop", "EUR", noon, "1.500", "0.000")
	w.cut = false
	w.pass(time.Hour)
	spent("shop", "EUR", noon, "1.500", "0.000")
	if n := len(w.account(w.alice).Items); n != 5 {
		t.Errorf("%d receipts", n)
	}
}

// A provider that says more than was counted here, however much, takes no more out of a budget than was counted.
func TestWhatIsDisputedIsSpentAsItWasCounted(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "1 EUR", "memory": "1 EUR"})
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}, "batch": {"cpu": 3000}})
	w.pass(time.Hour) // 10:20
	lie, _ := new(big.Int).SetString("1"+strings.Repeat("0", 32), 10)
	for _, name := range []string{"cpu", "memory"} {
		w.bob.accounts[w.doc.ID].Meter.Held[name] = lie
	}
	w.closes()
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	if chain, _ := w.file(w.alice); len(chain.Items) != 2 || chain.Items[1].Answer.Verdict != receipt.Disputed || len(chain.Items[1].Receipt.Total) < 20 {
		t.Fatalf("%+v", chain.Items)
	}
	w.shares()
	for range 2 { // as it came, and as it is read
		for namespace, want := range map[string]string{"shop": "1.000", "batch": "3.000", "": "0.000"} {
			if n, _, err := w.alice.Spent(namespace, "EUR", begin.Truncate(hour)); err != nil || n.FloatString(3) != want {
				t.Errorf("%q spent %s, %v; want %s", namespace, n.FloatString(3), err, want)
			}
		}
		w.alice.restarts(w, false)
	}
}

// closes has bob make a receipt now, whatever he may.
func (w *world) closes() {
	w.t.Helper()
	w.bob.mu.Lock()
	defer w.bob.mu.Unlock()
	a := w.bob.accounts[w.doc.ID]
	a.Meter.Granted = nil
	if err := w.bob.close(a, second(w.bob.now.Wall), false); err != nil {
		w.t.Fatal(err)
	}
}

// A provider may make receipts as it likes, also of no time at all: they take the room of one, and are of the hour in which they end.
func TestManyReceiptsOfAnHourAreSpentTogether(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "1 EUR"})
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}})
	w.pass(time.Hour)
	spent := func(since time.Time, want string) {
		t.Helper()
		if n, _, err := w.alice.Spent("shop", "EUR", since); err != nil || n.FloatString(3) != want {
			t.Errorf("spent %s, %v; want %s", n.FloatString(3), err, want)
		}
	}
	ten := begin.Truncate(hour).Add(hour)
	spent(ten, "0.333")
	for range 50 {
		for _, s := range []*side{w.alice, w.bob} {
			s.now.Wall, s.now.Awake = s.now.Wall.Add(10*time.Second), s.now.Awake+10
		}
		w.look(w.bob)
		w.closes()
		w.closes()
	}
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	a := w.alice.accounts[w.doc.ID]
	if n := len(a.chain.Items); n != 101 || len(a.spent) != 2 {
		t.Errorf("%d receipts take the room of %d", n, len(a.spent))
	}
	spent(ten, "0.472") // 20 minutes, which bob's first of them has, and 10 seconds of each after it
	spent(ten.Add(hour), "0.000")
	for _, s := range []*side{w.alice, w.bob} { // both clocks were a year ahead for a while
		s.now.Wall = s.now.Wall.AddDate(1, 0, 0)
	}
	w.pass(2 * time.Hour)
	for _, s := range []*side{w.alice, w.bob} {
		s.now.Wall = s.now.Wall.AddDate(-1, 0, 0)
	}
	w.look(w.alice)
	if last := a.chain.Last().Receipt.To; last.Year() != 2027 {
		t.Fatalf("ends at %s", last)
	}
	for range 2 {
		n, _, err := w.alice.Spent("shop", "EUR", ten)
		if want := big.NewRat(5, 1); err != nil || n.Cmp(want) > 0 {
			t.Errorf("spent %s, %v", n.FloatString(3), err)
		}
		w.alice.restarts(w, false)
	}
	if n, _, err := w.alice.Spent("shop", "EUR", ten); err != nil || len(w.alice.accounts[w.doc.ID].spent) != 2 {
		t.Errorf("%v, %v: %v", n, err, w.alice.accounts[w.doc.ID].spent)
	}
}

// After a restart a budget remembers what it did before, also where there were more receipts than are at hand.
func TestWhatWasSpentIsReadFromTheFile(t *testing.T) {
	w := newWorld(t, map[string]string{"cpu": "1 EUR"})
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}})
	w.pass(time.Hour)
	w.alice.restarts(w, false)
	before, _, err := w.alice.Spent("shop", "EUR", begin.Truncate(hour))
	if err != nil || before.FloatString(3) != "1.000" {
		t.Fatalf("%s, %v", before.FloatString(3), err)
	}
	for range 10 {
		w.closes()
	}
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	w.alice.restarts(w, false)
	w.alice.atHand = 5
	after, _, err := w.alice.Spent("shop", "EUR", begin.Truncate(hour))
	if err != nil || after.Cmp(before) != 0 {
		t.Errorf("spent %s, %v; want what it was before the restart, %s", after.FloatString(3), err, before.FloatString(3))
	}
	if n := w.alice.accounts[w.doc.ID].chain.Items[0].Receipt.Sequence; n == 1 {
		t.Error("all receipts are at hand")
	}
}

// A free contract costs nothing, however much is used.
func TestNothingIsSpentOfWhatIsFree(t *testing.T) {
	w := newWorld(t, nil)
	w.usesBy(map[string]Amounts{"shop": {"cpu": 4000}})
	w.pass(3 * time.Hour)
	if n, perHour, err := w.alice.Spent("shop", "EUR", begin.Truncate(hour)); err != nil || n.Sign() != 0 || perHour.Sign() != 0 {
		t.Errorf("%s, %s, %v", n, perHour, err)
	}
}

// What was used before it was counted by namespace, and what nobody here counted, is nobody's; and what waits for receipts does not grow for ever.
func TestWhatNamespacesUsedIsBounded(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000}) // by nobody
	w.pass(time.Hour)
	if got := namespaces(w.shares()[1]); got != "=2400000/0.013333333" {
		t.Error(got)
	}
	w.cut = true
	w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}})
	w.pass(60 * time.Hour)
	a := w.alice.accounts[w.doc.ID]
	if n := len(a.Parts.Open); n > keptHours {
		t.Errorf("%d hours are kept", n)
	}
	w.alice.now.Wall = w.alice.now.Wall.Add(400 * time.Hour) // she was off
	w.look(w.alice)
	if n := len(a.Parts.Open); n > keptHours {
		t.Errorf("%d hours are kept", n)
	}
	w.cut = false
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	all := w.shares()
	for sequence := int64(3); sequence <= 60; sequence++ {
		if got := namespaces(all[sequence]); got != "shop=3600000/0.02" {
			t.Fatalf("receipt %d: %s", sequence, got)
		}
	}
	w.alice.now.Wall = w.alice.now.Wall.Add(keptFor)
	w.over = true
	w.look(w.alice)
	w.alice.now.Wall = w.alice.now.Wall.Add(keptFor + time.Hour)
	w.look(w.alice)
	if left, _ := os.ReadDir(w.alice.Dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// The power fails in the middle of a line, which has no end then. Where the count was not noted after it the line is written again; else the receipt is
// nobody's. The next ones are whole in both cases, whatever is left of it.
func TestSharesThatWereCut(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(line []byte) int
		noted bool
		first string
	}{
		"before it was noted":      {func(line []byte) int { return len(line) - 9 }, false, "shop=2400000/0.013333333"},
		"after it was noted":       {func(line []byte) int { return len(line) - 9 }, true, "=2400000/0.013333333"},
		"nothing but its end":      {func(line []byte) int { return len(line) - 1 }, true, "shop=2400000/0.013333333"},
		"all but its first letter": {func([]byte) int { return 1 }, false, "shop=2400000/0.013333333"},
		"all":                      {func([]byte) int { return 0 }, false, "shop=2400000/0.013333333"},
	} {
		w := newWorld(t, priced)
		w.usesBy(map[string]Amounts{"shop": {"cpu": 1000}})
		w.pass(40*time.Minute - time.Second)
		if err := w.alice.save(w.alice.accounts[w.doc.ID]); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(filepath.Join(w.alice.Dir, w.doc.ID+stateOf))
		if err != nil {
			t.Fatal(err)
		}
		w.pass(20 * time.Minute)
		path := filepath.Join(w.alice.Dir, w.doc.ID+sharesOf)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(c.left(text))); err != nil {
			t.Fatal(err)
		}
		if !c.noted {
			if err := os.WriteFile(filepath.Join(w.alice.Dir, w.doc.ID+stateOf), before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.alice.restarts(w, true)
		w.pass(time.Hour)
		all := w.shares()
		if one, two := namespaces(all[1]), namespaces(all[2]); one != c.first || !strings.HasPrefix(two, "shop=3600000/") {
			t.Errorf("%s: %s, %s", name, one, two)
		}
	}
}

func TestDivide(t *testing.T) {
	for name, c := range map[string]struct {
		all     int64
		weights map[string]int64
		want    map[string]int64
	}{
		"thirds":       {100, map[string]int64{"a": 1, "b": 1, "c": 1}, map[string]int64{"a": 33, "b": 33, "c": 34}},
		"one of many":  {1, map[string]int64{"a": 1, "b": 1}, map[string]int64{"b": 1}},
		"nothing":      {0, map[string]int64{"a": 1}, nil},
		"nobody's":     {5, nil, map[string]int64{"": 5}},
		"all of one's": {7, map[string]int64{"a": 3}, map[string]int64{"a": 7}},
	} {
		weights := map[string]*big.Int{}
		for k, n := range c.weights {
			weights[k] = big.NewInt(n)
		}
		got := map[string]int64{}
		for k, n := range divide(big.NewInt(c.all), weights) {
			got[k] = n.Int64()
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

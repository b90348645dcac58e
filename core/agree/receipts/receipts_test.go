package receipts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/receipt"
)

// side is a laptop with its own clock and disk.
type side struct {
	*Book
	me   *identity.Identity
	now  Instant
	live time.Time // when set, the clock is that of the program, since then
	told int
}

// world is alice, who consumes from bob.
type world struct {
	t          *testing.T
	alice, bob *side
	doc        contract.Document
	signed     contract.Signed
	used       Amounts
	by         map[string]Amounts // of used, alice's namespaces
	cut        bool
	paid       bool                 // it is noted each minute how far it was counted
	over       bool                 // the contract
	between    func(*Reply)         // changes what bob answers
	ask        func(*Request) error // sees what alice asks
}

var (
	begin   = time.Date(2026, 11, 30, 9, 20, 0, 0, time.UTC)
	granted = Amounts{"cpu": 4000, "memory": 8 << 30, "pods": 20}
)

func newWorld(t *testing.T, prices map[string]string) *world {
	w := &world{t: t, used: Amounts{}}
	for _, s := range []**side{&w.alice, &w.bob} {
		me, err := identity.Load(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		*s = &side{me: me, now: Instant{Wall: begin, Boot: "one", Awake: 1000}}
		(*s).open(t, w, t.TempDir())
	}
	w.sign(1, prices)
	return w
}

func (s *side) open(t *testing.T, w *world, dir string) {
	t.Helper()
	book, err := Open(Config{
		Dir: dir, Identity: s.me, Log: slog.New(slog.DiscardHandler), Now: func() Instant {
			if !s.live.IsZero() {
				return Instant{Wall: time.Now().UTC(), Boot: "one", Awake: int64(time.Since(s.live) / time.Second)}
			}
			return s.now
		},
		Tell: func(_ identity.ID, id string) {
			if s.told++; !s.live.IsZero() {
				go w.alice.Told(id)
			}
		},
		Ask: func(_ context.Context, peer, id string, in Request) (Reply, error) {
			if w.cut {
				return Reply{}, errors.New("no route to bob")
			}
			if w.ask != nil {
				if err := w.ask(&in); err != nil {
					return Reply{}, err
				}
			}
			body, err := json.Marshal(in) // as it comes over the wire
			if err != nil {
				return Reply{}, err
			}
			read, err := ParseRequest(body)
			if err != nil {
				t.Error(err)
			}
			w.bob.mu.Lock()
			w.bob.accounts[in.Contract].asked.SetLimit(1e9)
			w.bob.mu.Unlock()
			out, err := w.bob.Answer(peering.Caller{ID: w.alice.me.ID()}, read)
			if err == nil && w.between != nil {
				w.between(&out)
			}
			if err == nil {
				err = out.Validate()
			}
			return out, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Book = book; !w.paid { // each takes a write to the disk
		s.note = hour
	}
}

// restarts has a side's kithd start anew; after a loss of power in another boot.
func (s *side) restarts(w *world, power bool) {
	if power {
		s.now.Boot, s.now.Awake = s.now.Boot+"+", 5
	}
	s.open(w.t, w, s.Dir)
}

// sign makes a revision of the contract.
func (w *world) sign(revision int64, prices map[string]string) {
	w.t.Helper()
	party := func(name string, s *side) contract.Party {
		return contract.Party{ID: s.me.ID(), Name: name, Key: s.me.Public()}
	}
	w.doc = contract.Document{
		Version: contract.Version, ID: "abcdefgh12345678", Revision: revision, Consumer: party("alice", w.alice), Provider: party("bob", w.bob),
		Terms:     contract.Terms{Resources: map[string]string{"cpu": "4", "memory": "8Gi", "pods": "20"}, PodSecurity: contract.Baseline, Prices: prices},
		NotBefore: begin.Add(-10 * time.Minute), NotAfter: begin.Add(30 * 24 * time.Hour), Created: begin,
	}
	w.doc.Version = w.doc.DocumentVersion()
	var err error
	if w.signed, err = contract.New(w.doc); err != nil {
		w.t.Fatal(err)
	}
	for role, s := range map[contract.Role]*side{contract.Consumer: w.alice, contract.Provider: w.bob} {
		if err := w.signed.SignAs(role, s.me); err != nil {
			w.t.Fatal(err)
		}
	}
}

// look has a side observe what there is now.
func (w *world) look(s *side) []Line {
	w.t.Helper()
	var lines []Line
	if !w.over {
		lines = []Line{{Signed: w.signed, Document: w.doc, Provides: s == w.bob, Peer: "other", Granted: granted, Used: w.used, By: w.by}}
	}
	if err := s.Observe(lines); err != nil {
		w.t.Fatal(err)
	}
	return lines
}

// pass lets time go by for both, who look when something is due.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.bob.now.Wall.Add(d); w.bob.now.Wall.Before(end); {
		next := w.bob.Next(w.look(w.bob))
		w.look(w.alice)
		due, _ := w.alice.Due()
		for _, id := range due {
			_ = w.alice.Fetch(w.t.Context(), id)
		}
		step := end.Sub(w.bob.now.Wall)
		if _, again := w.alice.Due(); !again.IsZero() {
			step = min(step, max(time.Second, again.Sub(w.alice.now.Wall)))
		}
		if until := next.Sub(w.bob.now.Wall); !next.IsZero() && until < step {
			step = until
		}
		for _, s := range []*side{w.alice, w.bob} {
			s.now.Wall, s.now.Awake = s.now.Wall.Add(step), s.now.Awake+int64(step/time.Second)
		}
	}
	w.look(w.bob)
	w.look(w.alice)
}

// uses has pods request so much from now on.
func (w *world) uses(used Amounts) {
	w.used = used
	w.look(w.alice)
	w.look(w.bob)
}

// file is what a side exports, checked as on any machine.
func (w *world) file(s *side) (*receipt.Chain, string) {
	w.t.Helper()
	var out bytes.Buffer
	if err := s.Export(w.doc.ID, &out); err != nil {
		w.t.Fatal(err)
	}
	chain, err := receipt.ReadFile(bytes.NewReader(out.Bytes()))
	if err != nil {
		w.t.Fatal(err)
	}
	return chain, out.String()
}

// total is what all receipts of a chain say that was used of a resource.
func total(c *receipt.Chain, resource string) *big.Int {
	sum := new(big.Int)
	for _, item := range c.Items {
		if n, ok := new(big.Int).SetString(item.Receipt.Used[resource], 10); ok {
			sum.Add(sum, n)
		}
	}
	return sum
}

var priced = map[string]string{"cpu": "0.02 EUR", "memory": "0.005 EUR"}

func TestADayOfUse(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1500, "memory": 2 << 30, "pods": 3})
	w.pass(5 * time.Hour)
	w.cut = true
	w.pass(4 * time.Hour)
	w.bob.restarts(w, false)
	w.pass(90 * time.Minute)
	w.alice.restarts(w, true) // she was off; her pods went on
	w.pass(3 * time.Hour)
	w.cut = false
	w.uses(Amounts{"cpu": 250})
	w.pass(10*time.Hour + 30*time.Minute)
	w.over = true
	w.pass(time.Minute)
	bobs, his := w.file(w.bob)
	alices, hers := w.file(w.alice)
	if len(bobs.Items) != 25 || len(alices.Items) != 25 || !alices.Last().Receipt.Last {
		t.Fatalf("bob has %d receipts, alice %d", len(bobs.Items), len(alices.Items))
	}
	for i, item := range alices.Items {
		if item.Answer == nil || item.Answer.Verdict != receipt.Agreed || bobs.Items[i].Answer == nil || bobs.Items[i].Hash != item.Hash {
			t.Errorf("receipt %d: %+v here, %+v there", item.Receipt.Sequence, item.Answer, bobs.Items[i].Answer)
		}
	}
	want := big.NewInt(1500*int64(13.5*3600) + 250*int64(10.5*3600))
	if got := total(alices, "cpu"); got.Cmp(want) != 0 {
		t.Errorf("%s milli-core-seconds, want %s", got, want)
	}
	if first := bobs.Items[0].Receipt; first.Due["cpu"] != "0.02" || first.Due["memory"] != "0.006666666" || first.Total != "0.026666666" || first.Currency != "EUR" {
		t.Errorf("40 minutes of 1.5 cores and 2 GiB come to %+v", first)
	}
	if len(his) == 0 || len(hers) == 0 || w.bob.told == 0 {
		t.Error("nothing was exported, or told")
	}
	if due, _ := w.alice.Due(); len(due) > 0 {
		t.Errorf("%v are asked for though all is there", due)
	}
}

func TestWhatALossOfPowerCosts(t *testing.T) {
	w := newWorld(t, priced)
	w.paid, w.bob.note = true, checkpoint
	w.uses(Amounts{"cpu": 1000})
	w.pass(30*time.Minute + 50*time.Second)
	w.bob.restarts(w, true)
	w.look(w.bob)
	held, ok := new(big.Int).SetString(w.account(w.bob).Used["cpu"], 10)
	if lost := int64(30*60+50) - held.Int64()/1000; !ok || lost < 0 || lost > 60 {
		t.Errorf("%d seconds were lost", lost)
	}
}

func (w *world) account(s *side) Account {
	w.t.Helper()
	all, err := s.Accounts(time.Time{})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

// A provider that sleeps gives nothing, and counts nothing; its consumer, who cannot know, does not dispute less.
func TestSleepIsNotCounted(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.pass(40 * time.Minute)
	for _, s := range []*side{w.alice, w.bob} {
		s.now.Wall = s.now.Wall.Add(8 * time.Hour)
	}
	w.alice.now.Awake += 8 * 3600
	w.pass(2*time.Hour + 5*time.Minute)
	chain, _ := w.file(w.alice)
	if got := total(chain, "cpu").Int64() / 1000; got != 40*60+2*3600 {
		t.Errorf("%d seconds, want what bob was awake", got)
	}
	for _, item := range chain.Items {
		if item.Answer == nil || item.Answer.Verdict != receipt.Agreed {
			t.Errorf("receipt %d: %+v", item.Receipt.Sequence, item.Answer)
		}
	}
}

func TestAProviderThatCountsMore(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.pass(time.Hour)
	w.bob.accounts[w.doc.ID].Meter.Held.plus(Amounts{"cpu": 500}, 3600) // half a core that nobody asked for
	w.pass(time.Hour)
	w.pass(time.Hour)
	for name, s := range map[string]*side{"alice": w.alice, "bob": w.bob} {
		chain, _ := w.file(s)
		var verdicts []string
		for _, item := range chain.Items {
			verdicts = append(verdicts, string(item.Answer.Verdict))
		}
		if strings.Join(verdicts, " ") != "agreed disputed agreed" {
			t.Fatalf("%s: %v", name, verdicts)
		}
		if own := chain.Items[1].Answer.Used["cpu"]; own == "" || own == chain.Items[1].Receipt.Used["cpu"] {
			t.Errorf("%s: alice counted %q", name, own)
		}
	}
}

// A tolerance is granted once: a provider that always takes a little more is found.
func TestALittleMoreEachTime(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	for range 6 {
		w.bob.accounts[w.doc.ID].Meter.Held.plus(Amounts{"cpu": 1000}, 50)
		w.pass(time.Hour)
	}
	chain, _ := w.file(w.alice)
	disputed := 0
	for _, item := range chain.Items {
		if item.Answer.Verdict == receipt.Disputed {
			disputed++
		}
	}
	if disputed == 0 {
		t.Error("five minutes in six hours were agreed to")
	}
}

func TestAnotherRevisionClosesAReceipt(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.pass(20 * time.Minute)
	w.sign(2, map[string]string{"cpu": "0.04 EUR"})
	w.pass(2 * time.Hour)
	chain, _ := w.file(w.alice)
	if len(chain.Items) != 3 || chain.Items[0].Receipt.Revision != 1 || chain.Items[1].Receipt.Revision != 2 || chain.Items[1].Receipt.Due["cpu"] != "0.013333333" {
		t.Errorf("%+v", chain.Items)
	}
}

func TestWhatAProviderMaySend(t *testing.T) {
	resign := func(w *world, e *receipt.Entry, change func(*receipt.Receipt)) {
		r, err := receipt.Parse(e.Receipt.Document)
		if err != nil {
			w.t.Fatal(err)
		}
		change(&r)
		r.Due, r.Total, r.Currency, _ = receipt.Due(r.Used, r.Prices)
		s, err := receipt.Sign(r, w.bob.me)
		if err != nil {
			w.t.Fatal(err)
		}
		e.Receipt = &s
	}
	receipts := func(out *Reply) (at []*receipt.Entry) {
		for i := range out.Entries {
			if out.Entries[i].Receipt != nil {
				at = append(at, &out.Entries[i])
			}
		}
		return at
	}
	for name, c := range map[string]struct {
		lies func(*world, *Reply)
		says string
	}{
		"one left out": {func(w *world, out *Reply) {
			for i := range out.Entries {
				if out.Entries[i].Receipt != nil {
					out.Entries = append(out.Entries[:i+1], out.Entries[i+2:]...)
					return
				}
			}
		}, "is missing: the next there is has number"},
		"twice": {func(w *world, out *Reply) {
			if all := receipts(out); len(all) > 1 {
				out.Entries = append(out.Entries, *all[0])
			}
		}, "comes again, or out of order"},
		"changed": {func(w *world, out *Reply) {
			for _, e := range receipts(out) {
				e.Receipt.Document = bytes.Replace(e.Receipt.Document, []byte(`"contract":"abc`), []byte(`"contract":"abd`), 1)
			}
		}, "is forged"},
		"dearer than was signed": {func(w *world, out *Reply) {
			for _, e := range receipts(out) {
				resign(w, e, func(r *receipt.Receipt) { r.Prices = map[string]string{"cpu": "9 EUR"} })
			}
		}, "has other prices than revision 1 of the contract"},
		"of a time to come": {func(w *world, out *Reply) {
			for _, e := range receipts(out) {
				resign(w, e, func(r *receipt.Receipt) { r.To = r.To.Add(5 * time.Hour) })
			}
		}, "which is to come"},
		"of a revision that was not signed": {func(w *world, out *Reply) {
			for _, e := range receipts(out) {
				resign(w, e, func(r *receipt.Receipt) { r.Revision = 7 })
			}
		}, "is under revision 7 of the contract, which is missing"},
		"the consumer's word": {func(w *world, out *Reply) {
			if all := receipts(out); len(all) > 0 {
				out.Entries = append(out.Entries, receipt.Entry{Answer: all[0].Receipt})
			}
		}, "which are the consumer's to give"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, priced)
			w.uses(Amounts{"cpu": 1000})
			w.cut = true
			w.pass(3 * time.Hour)
			w.cut, w.between = false, func(out *Reply) { c.lies(w, out) }
			err := w.alice.Fetch(t.Context(), w.doc.ID)
			if fault, is := errors.AsType[*receipt.Fault](err); !is || !strings.Contains(fault.Error(), c.says) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			if said := w.account(w.alice).Fault; !strings.Contains(said, c.says) {
				t.Errorf("it is shown as %q", said)
			}
			w.between = nil // the truth mends it
			if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
				t.Fatal(err)
			}
			if chain, _ := w.file(w.alice); len(chain.Items) != 3 || w.account(w.alice).Fault != "" {
				t.Errorf("%d receipts, %q", len(chain.Items), w.account(w.alice).Fault)
			}
		})
	}
}

func TestWhoMayAskForReceipts(t *testing.T) {
	w := newWorld(t, priced)
	w.pass(time.Hour)
	mallory, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.bob.Answer(peering.Caller{ID: mallory.ID()}, Request{Contract: w.doc.ID}); !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		t.Errorf("mallory: %v", err)
	}
	if _, err := w.bob.Answer(peering.Caller{ID: w.alice.me.ID()}, Request{Contract: "0000000000000000"}); !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		t.Errorf("another contract: %v", err)
	}
	forged, err := receipt.SignAnswer(receipt.Answer{Version: receipt.AnswerVersion, Contract: w.doc.ID, Sequence: 1, Receipt: w.bob.accounts[w.doc.ID].chain.Items[0].Hash, Verdict: receipt.Agreed}, mallory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.bob.Answer(peering.Caller{ID: w.alice.me.ID()}, Request{Contract: w.doc.ID, Answers: []receipt.Signed{forged}}); !errors.Is(err, &peering.Problem{Code: peering.CodeBadRequest}) {
		t.Errorf("a forged answer: %v", err)
	}
}

// After weeks apart all comes, in several requests.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 10})
	w.cut = true
	w.pass(100 * time.Hour)
	w.cut = false
	asked := 0
	w.ask = func(*Request) error { asked++; return nil }
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	if chain, _ := w.file(w.bob); len(chain.Items) != 100 || chain.Last().Answer == nil || asked < 4 || asked > 12 {
		t.Errorf("%d receipts in %d requests", len(chain.Items), asked)
	}
}

// The answer got lost with the connection, and the power with the line that was being written.
func TestWhatWasCutIsDoneAgain(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.cut = true
	w.pass(2 * time.Hour)
	w.cut = false
	state := filepath.Join(w.alice.Dir, w.doc.ID+stateOf)
	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	w.ask = func(in *Request) error {
		if len(in.Answers) > 0 {
			return fmt.Errorf("the connection was cut")
		}
		return nil
	}
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err == nil {
		t.Fatal("it was not cut")
	}
	w.ask = nil
	path := filepath.Join(w.alice.Dir, w.doc.ID+linesOf)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-20], 0o600); err != nil { // her last answer
		t.Fatal(err)
	}
	if err := os.WriteFile(state, before, 0o600); err != nil { // is written after that
		t.Fatal(err)
	}
	w.alice.restarts(w, true)
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*side{w.alice, w.bob} {
		if chain, _ := w.file(s); len(chain.Items) != 2 || chain.Items[0].Answer == nil || chain.Items[1].Answer == nil {
			t.Errorf("%+v", chain.Items)
		}
	}
}

// Somebody wrote into the file: what stands before that holds, and the rest comes again.
func TestAFileThatWasChanged(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.pass(3 * time.Hour)
	path := filepath.Join(w.alice.Dir, w.doc.ID+linesOf)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[3] = []byte("{}\n")
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	w.alice.restarts(w, false)
	if err := w.alice.Fetch(t.Context(), w.doc.ID); err != nil {
		t.Fatal(err)
	}
	if chain, _ := w.file(w.alice); len(chain.Items) != 3 {
		t.Errorf("%d receipts", len(chain.Items))
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
}

func TestOldReceiptsGo(t *testing.T) {
	w := newWorld(t, nil)
	w.look(w.bob)
	a := w.bob.accounts[w.doc.ID]
	w.bob.keep = 20
	for range 41 {
		if err := w.bob.close(a, a.Meter.Since.Add(hour), false); err != nil {
			t.Fatal(err)
		}
	}
	chain, _ := w.file(w.bob)
	if n := len(chain.Items); n != 20 || chain.Last().Receipt.Sequence != 41 {
		t.Errorf("%d receipts, the last is %d", n, chain.Last().Receipt.Sequence)
	}
	w.bob.restarts(w, false)
	w.look(w.bob)
	if err := w.bob.close(w.bob.accounts[w.doc.ID], a.Meter.Since.Add(2*hour), false); err != nil {
		t.Error(err)
	}
}

// What cannot be written is not lost: it is in the next receipt that can.
func TestAReceiptThatCannotBeKept(t *testing.T) {
	w := newWorld(t, priced)
	w.uses(Amounts{"cpu": 1000})
	w.pass(30 * time.Minute)
	path := filepath.Join(w.bob.Dir, w.doc.ID+linesOf)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.bob.now.Wall, w.bob.now.Awake = w.bob.now.Wall.Add(15*time.Minute), w.bob.now.Awake+15*60
	if err := w.bob.Observe([]Line{{Signed: w.signed, Document: w.doc, Provides: true, Peer: "other", Granted: granted, Used: w.used}}); err == nil {
		t.Fatal("it was written")
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.look(w.bob)
	w.over = true
	w.look(w.bob)
	w.bob.restarts(w, true)
	w.look(w.bob)
	if chain, _ := w.file(w.bob); len(chain.Items) != 2 || total(chain, "cpu").Int64() != 45*60*1000 {
		t.Errorf("%+v", chain.Items)
	}
}

func TestEndedContractsAreForgotten(t *testing.T) {
	w := newWorld(t, priced)
	w.pass(time.Hour)
	w.over = true
	w.look(w.bob)
	w.bob.now.Wall = w.bob.now.Wall.Add(keptFor + time.Hour)
	w.look(w.bob)
	if left, _ := os.ReadDir(w.bob.Dir); len(left) > 0 || len(w.bob.accounts) > 0 {
		t.Errorf("%v are left", left)
	}
}

// By themselves both look at the clock and at what changes: each hour has its receipt, and the end has one.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, priced)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var mu sync.Mutex
		news := make(chan struct{})
		for _, s := range []*side{w.alice, w.bob} {
			s.live = time.Now()
			running.Go(func() {
				s.Run(ctx, func(context.Context) ([]Line, error) {
					mu.Lock()
					defer mu.Unlock()
					if w.over {
						return nil, nil
					}
					return []Line{{Signed: w.signed, Document: w.doc, Provides: s == w.bob, Peer: "other", Granted: granted, Used: Amounts{"cpu": 2000}}}, nil
				}, func() <-chan struct{} {
					mu.Lock()
					defer mu.Unlock()
					return news
				})
			})
		}
		time.Sleep(2*time.Hour + 20*time.Minute)
		mu.Lock()
		w.over = true
		close(news)
		news = make(chan struct{})
		mu.Unlock()
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		chain, _ := w.file(w.alice)
		if len(chain.Items) != 3 || !chain.Last().Receipt.Last {
			t.Fatalf("%d receipts", len(chain.Items))
		}
		for _, item := range chain.Items {
			if item.Answer == nil || item.Answer.Verdict != receipt.Agreed {
				t.Errorf("%+v", item)
			}
		}
		if got := total(chain, "cpu").Int64() / 2000; got < 8395 || got > 8405 {
			t.Errorf("%d seconds", got)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"contract":"abcdefgh12345678","after":3,"answers":[{"document":"e30=","signature":"AAAA"}]}`))
	f.Add([]byte(`{"contract":"abcdefgh12345678","after":1e9}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if in, err := ParseRequest(body); err == nil && (len(in.Answers) > mostAtOnce || contract.CheckID(in.Contract) != nil) {
			t.Errorf("%+v", in)
		}
	})
}

package receipts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"kith.dev/core/base/notify"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/receipt"
)

// Line is a contract in force, and what is requested under it now.
type Line struct {
	Signed   contract.Signed
	Document contract.Document
	Provides bool   // this cluster does
	Peer     string // the name of the other one here
	Granted  Amounts
	Used     Amounts
	By       map[string]Amounts // of a consumer: what each namespace of this cluster uses
}

// Config is what a Book needs.
type Config struct {
	Dir      string // is made when it is not there
	Identity *identity.Identity
	Now      func() Instant
	// Tell lets a consumer know that there is a receipt of a contract to fetch. A hint only.
	Tell func(consumer identity.ID, contract string)
	// Ask sends a request to the provider of that name, whose ID must be that one.
	Ask func(ctx context.Context, peer, id string, in Request) (Reply, error)
	// Carried is how many bytes passed between a peer's guests here and their home, where this cluster provides, or between guests there and this one,
	// since some moment. nil: nobody counts that.
	Carried func(peerID string, provides bool) uint64
	Log     *slog.Logger
}

// Book has the counts and receipts of all contracts.
type Book struct {
	Config

	mu       sync.Mutex
	accounts map[string]*account // by contract
	pulls    sync.Mutex          // one at a time
	pokes    chan struct{}       // a provider told of a receipt
	keep     int64               // keptReceipts, but in tests
	atHand   int                 // inMemory, but in tests
	note     time.Duration       // checkpoint, but in tests
	moved    notify.Broadcast
}

// Changed gives a channel that is closed when something else is counted from now on, or a receipt came.
func (b *Book) Changed() <-chan struct{} { return b.moved.Wait() }

// Open reads what was counted before.
func Open(cfg Config) (*Book, error) {
	b := &Book{Config: cfg, accounts: map[string]*account{}, pokes: make(chan struct{}, 1), keep: keptReceipts, atHand: inMemory, note: checkpoint}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep receipts: %w", err)
	}
	ids, err := b.kept()
	if err != nil {
		return nil, fmt.Errorf("read the receipts that are kept: %w", err)
	}
	for _, id := range ids {
		a, err := b.load(id)
		if err != nil { // the rest is no worse for it
			b.Log.Error("what a contract has used cannot be read", "contract", id, "err", err)
			continue
		}
		b.accounts[id] = a
	}
	return b, nil
}

// hour is the interval of receipts; its bounds are the hours of UTC.
const hour = time.Hour

// Observe counts until now, and says what is in force from now on. A contract that is not among the lines any more has ended.
func (b *Book) Observe(lines []Line) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	var errs []error
	there := map[string]bool{}
	for _, line := range lines {
		there[line.Document.ID] = true
		if err := b.observe(now, line); err != nil {
			errs = append(errs, err)
		}
	}
	for id, a := range b.accounts {
		if there[id] || !a.Ended.IsZero() {
			continue
		}
		if err := b.end(a, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, b.forget(now.Wall))...)
}

func (b *Book) observe(now Instant, line Line) error {
	a := b.accounts[line.Document.ID]
	if a == nil {
		other := line.Document.Provider.ID
		if line.Provides {
			other = line.Document.Consumer.ID
		}
		a = &account{id: line.Document.ID, Provides: line.Provides, PeerID: other.String(), Meter: newMeter(now), asked: newLimiter()}
		b.accounts[a.id] = a
		a.carried = b.carriedNow(a) // of before it was in force
	}
	if !a.Ended.IsZero() { // the last receipt is closed
		return nil
	}
	if err := b.open(a); err != nil {
		return err
	}
	b.count(a, now)
	if err := b.closeHour(a, now); err != nil {
		return err
	}
	if a.Meter.Revision != 0 && a.Meter.Revision != line.Document.Revision {
		if err := b.close(a, second(now.Wall), false); err != nil { // one receipt is under one revision
			return err
		}
	}
	if !a.chain.Knows(line.Document.Revision) {
		if err := b.add(a, receipt.Entry{Contract: &line.Signed}); err != nil {
			return err
		}
	}
	_, a.Traffic = line.Document.Prices[contract.Traffic]
	renamed := a.Peer != line.Peer
	a.Peer = line.Peer
	other := !maps.EqualFunc(a.Parts.Now, line.By, maps.Equal[Amounts, Amounts])
	if a.Parts.Now = line.By; line.Provides {
		a.Parts.Now, other = nil, false
	}
	if a.Meter.set(line.Document.Revision, line.Granted, line.Used) || other || renamed || b.stale(a, line) {
		return b.save(a)
	}
	return nil
}

// checkpoint is how often a provider notes how far it counted while somebody pays for it: what a loss of power takes at most.
const checkpoint = time.Minute

// stale reports whether the count is to be noted, though nothing changed.
func (b *Book) stale(a *account, line Line) bool {
	since := a.Meter.At.Wall.Sub(a.saved.Wall)
	return since >= hour || since < 0 || noted(line) && since >= b.note
}

// noted reports whether how far it was counted is noted each checkpoint: at the consumer only where traffic has a price, which it cannot know of a time when
// it did not count.
func noted(line Line) bool {
	_, traffic := line.Document.Prices[contract.Traffic]
	return payable(line) && (line.Provides || traffic)
}

func payable(line Line) bool {
	for name := range line.Document.Prices {
		if line.Used[name] > 0 || name == contract.Traffic && line.Used[pods] > 0 {
			return true
		}
	}
	return false
}

// Next says when to observe again at the latest, although nothing changes.
func (b *Book) Next(lines []Line) time.Time {
	if len(lines) == 0 {
		return time.Time{}
	}
	now := b.Now().Wall
	next := now.Truncate(hour).Add(hour)
	if slices.ContainsFunc(lines, noted) && now.Add(b.note).Before(next) {
		next = now.Add(b.note)
	}
	return next
}

// closeHour closes the receipt of the hour that is over, if one is.
func (b *Book) closeHour(a *account, now Instant) error {
	if over := now.Wall.UTC().Truncate(hour); over.After(a.Meter.Since) {
		return b.close(a, over, false)
	}
	return nil
}

// end counts until now, and closes the last receipt.
func (b *Book) end(a *account, now Instant) error {
	if err := b.open(a); err != nil {
		return err
	}
	if last := a.chain.Last(); last == nil || !last.Receipt.Last { // it is closed when the power failed before that was noted
		b.count(a, now)
		if err := b.closeHour(a, now); err != nil {
			return err
		}
		if err := b.close(a, second(now.Wall), true); err != nil {
			return err
		}
	}
	a.Meter.Used, a.Parts.Now, a.Ended = nil, nil, now.Wall.UTC() // what was granted bounds what receipts may say
	return b.save(a)
}

// close makes a receipt of what was counted since the last one. Only providers do.
func (b *Book) close(a *account, to time.Time, last bool) error {
	if !a.Provides || a.Meter.Revision == 0 {
		return nil
	}
	signed, known := a.chain.Revision(a.Meter.Revision)
	if !known {
		return fmt.Errorf("contract %s: revision %d is not among the receipts", a.id, a.Meter.Revision)
	}
	doc, err := contract.Parse(signed.Document)
	if err != nil {
		return err
	}
	if to.Before(a.Meter.Since) { // the wall clock was set back
		to = a.Meter.Since
	}
	r := receipt.Receipt{
		Version: receipt.Version, Contract: a.id, Revision: doc.Revision, Sequence: a.Sequence + 1, Consumer: doc.Consumer.ID, Provider: doc.Provider.ID,
		From: a.Meter.Since, To: to, Prices: doc.Prices, Last: last,
	}
	if newest := a.chain.Last(); newest != nil {
		r.Previous = newest.Hash
	}
	before := a.Meter.Peak
	r.Reserved, r.Used = a.Meter.take(to)
	if err := b.issue(a, r); err != nil { // a full disk, for example: it stays in the count
		a.Meter.Since, a.Meter.Peak = r.From, before
		a.Meter.Reserved.plusAll(r.Reserved)
		a.Meter.Held.plusAll(r.Used)
		return err
	}
	a.Sequence = r.Sequence
	if err := b.save(a); err != nil {
		return err
	}
	b.Tell(doc.Consumer.ID, a.id)
	return nil
}

// issue signs and keeps a receipt.
func (b *Book) issue(a *account, r receipt.Receipt) (err error) {
	if r.Due, r.Total, r.Currency, err = receipt.Due(r.Used, r.Prices); err != nil {
		return err
	}
	s, err := receipt.Sign(r, b.Identity)
	if err != nil {
		return err
	}
	return b.add(a, receipt.Entry{Receipt: &s})
}

// Account is what is known of a contract's receipts.
type Account struct {
	Contract, Peer, PeerID string
	Provides               bool
	Ended                  time.Time // zero while it is in force
	Fault                  string    // why a receipt of the provider was not taken
	// Open is what was counted since the last receipt.
	Since          time.Time
	Reserved, Used receipt.Sums
	Prices         map[string]string
	Items          []receipt.Item
}

// Accounts are those of all contracts, with the receipts that end after since; what is open was counted until the last change.
func (b *Book) Accounts(since time.Time) ([]Account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	var all []Account
	for _, a := range b.accounts {
		if !a.Ended.IsZero() && a.Ended.Before(since) {
			continue
		}
		if err := b.open(a); err != nil {
			return nil, err
		}
		out := Account{Contract: a.id, Peer: a.Peer, PeerID: a.PeerID, Provides: a.Provides, Ended: a.Ended, Fault: a.Fault, Since: a.Meter.Since}
		var err error
		if out.Items, err = b.items(a.id, since); err != nil {
			return nil, err
		}
		if a.Ended.IsZero() {
			b.count(a, now)
			out.Prices = a.pricesNow()
		}
		out.Reserved, out.Used = a.Meter.Reserved.words(), a.Meter.Held.words()
		all = append(all, out)
	}
	slices.SortFunc(all, func(x, y Account) int {
		return cmp.Or(cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Contract, y.Contract))
	})
	return all, nil
}

// items are the receipts of a file that end after since, as they were checked when they came.
func (b *Book) items(id string, since time.Time) (items []receipt.Item, err error) {
	err = b.lines(id, func(e receipt.Entry, sequence int64, _ []byte) bool {
		switch {
		case e.Receipt != nil:
			if r, err := receipt.Parse(e.Receipt.Document); err == nil && r.To.After(since) {
				items = append(items, receipt.Item{Receipt: r, Hash: e.Receipt.Hash()})
			}
		case e.Answer != nil:
			for i := len(items) - 1; i >= 0; i-- {
				if items[i].Receipt.Sequence != sequence {
					continue
				}
				if a, err := receipt.ParseAnswer(e.Answer.Document); err == nil {
					items[i].Answer = &a
				}
				break
			}
		}
		return true
	})
	return items, err
}

// Export writes the file of a contract as `kith receipt verify` reads it; fs.ErrNotExist when there is none.
func (b *Book) Export(id string, to io.Writer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.accounts[id] == nil {
		return fs.ErrNotExist
	}
	return b.lines(id, func(_ receipt.Entry, _ int64, line []byte) bool {
		_, err := to.Write(append(slices.Clone(line), '\n'))
		return err == nil
	})
}

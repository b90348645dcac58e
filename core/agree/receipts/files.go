package receipts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/base/durable"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// How much is kept. A file that has twice as many is reduced to the newest keptReceipts: an hour each, 100 days.
const (
	keptReceipts = 2400
	// inMemory is how many receipts of a contract are at hand: what a consumer that was away for longer says to older ones is not taken.
	inMemory = 1000
	// keptFor is how long the files of a contract that ended stay, and keptEnded how many, the newest.
	keptFor   = 400 * 24 * time.Hour
	keptEnded = 256
)

// Names of the two files of a contract.
const (
	linesOf = ".receipts"
	stateOf = ".state"
)

// account is a contract as it is kept.
type account struct {
	Provides bool   `json:"provides"`
	Peer     string `json:"peer"`   // its name here
	PeerID   string `json:"peerId"` // its cluster ID
	Meter    meter  `json:"meter"`
	// Sequence is that of the last receipt that Meter's sums are without: after a loss of power the file may be ahead.
	Sequence int64 `json:"sequence"`
	// Ended is when the contract was over; the provider's last receipt is closed then.
	Ended time.Time `json:"ended,omitzero"`
	// Fault is why a receipt that came was not taken.
	Fault string `json:"fault,omitempty"`
	// Traffic says that it has a price.
	Traffic bool `json:"traffic,omitempty"`
	// Parts is of a consumer, by its own namespaces.
	Parts parts `json:"parts,omitzero"`

	id    string
	chain *receipt.Chain // the newest of the file; nil until it was read
	first int64          // the number of the first receipt in the file
	saved Instant        // when it was written last
	// pull is when to ask the provider next, and how long to wait after that.
	pull      time.Time
	pause     time.Duration
	delivered bool                             // the provider has all answers, and had no more receipts
	asked     *rate.Limiter                    // by the consumer
	carried   uint64                           // bytes, when it was counted last
	spent     map[spending]map[string]*big.Rat // by namespaces, in receipts; nil until somebody asked
}

// How often a consumer may ask for the receipts of a contract. Each time the file is read.
const (
	askedRate  = 1
	askedBurst = 20
)

func newLimiter() *rate.Limiter { return rate.NewLimiter(askedRate, askedBurst) }

// pods is the resource without which there is no traffic.
const pods = "pods"

// count adds what was held until now, and what passed by the tunnel while there were pods, if that has a price.
func (b *Book) count(a *account, now Instant) {
	a.Parts.count(a.Meter.At, now)
	a.Meter.count(now, a.Provides)
	n := b.carriedNow(a)
	if n < a.carried { // it is counted anew
		a.carried = 0
	}
	if a.Traffic && a.Meter.Used[pods] > 0 && n > a.carried {
		a.Meter.Held.plus(Amounts{contract.Traffic: int64(n - a.carried)}, 1)
		if !a.Provides {
			a.Parts.carry(int64(n-a.carried), now)
		}
	}
	a.carried = n
}

func (b *Book) carriedNow(a *account) uint64 {
	if b.Carried == nil {
		return 0
	}
	return b.Carried(a.PeerID, a.Provides)
}

// settle takes a receipt that was judged out of what is counted.
func (b *Book) settle(a *account, r receipt.Receipt, said receipt.Answer, now Instant) {
	a.Meter.settle(r, said.Verdict, now, &a.Parts)
	b.share(a, r, said, now.Wall)
}

func (b *Book) path(id, of string) string { return filepath.Join(b.Dir, id+of) }

// load reads the files of a contract; fs.ErrNotExist without any.
func (b *Book) load(id string) (*account, error) {
	text, err := os.ReadFile(b.path(id, stateOf))
	if err != nil {
		return nil, err
	}
	a := &account{id: id, Meter: newMeter(Instant{}), asked: newLimiter()}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("%s: %w", b.path(id, stateOf), err)
	}
	return a, nil
}

// open reads the receipts of an account, if that was not done.
func (b *Book) open(a *account) (err error) {
	if a.chain != nil {
		return nil
	}
	chain, err := b.readLines(a.id)
	if err != nil {
		return err
	}
	if a.chain = chain; chain.Last() == nil {
		return nil
	}
	a.first = chain.Items[0].Receipt.Sequence
	chain.Trim(b.atHand)
	for _, item := range chain.Items { // what the power failed before it was noted beside the count
		switch {
		case item.Receipt.Sequence <= a.Sequence:
			continue
		case a.Provides:
			a.Meter.Reserved, a.Meter.Held, a.Meter.Since = sums{}, sums{}, item.Receipt.To
		case item.Answer == nil: // it is answered when the provider is asked next
			return nil
		default:
			b.settle(a, item.Receipt, *item.Answer, a.Meter.At)
		}
		a.Sequence = item.Receipt.Sequence
	}
	return nil
}

// readLines reads the receipts of a contract. A line that was not written whole, at the end, is taken off; should anything else be wrong the file is put
// aside, and what can be read of it is gone on with.
func (b *Book) readLines(id string) (*receipt.Chain, error) {
	path := b.path(id, linesOf)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &receipt.Chain{}, nil
	} else if err != nil {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	chain, err := receipt.ReadFile(bytes.NewReader(whole))
	fault, broken := errors.AsType[*receipt.Fault](err)
	if broken && fault.Line > 0 {
		b.Log.Error("receipts were changed on the disk", "contract", id, "err", fault)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, err
		}
		whole = bytes.Join(bytes.SplitAfter(whole, []byte("\n"))[:fault.Line-1], nil)
	}
	if len(whole) < len(text) {
		return chain, durable.WriteFile(path, whole, 0o600)
	}
	return chain, nil
}

// save notes where the count stands.
func (b *Book) save(a *account) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(b.path(a.id, stateOf), text, 0o600); err != nil {
		return fmt.Errorf("note what contract %s has used: %w", a.id, err)
	}
	a.saved = a.Meter.At
	b.moved.Notify()
	return nil
}

// add takes an entry into the chain and appends it to the file; it is on the disk when this returns.
func (b *Book) add(a *account, e receipt.Entry) error {
	if err := a.chain.Add(e); err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := appendLine(b.path(a.id, linesOf), append(line, '\n')); err != nil {
		a.chain = nil // the file has the word
		return fmt.Errorf("keep a receipt of contract %s: %w", a.id, err)
	}
	if last := a.chain.Last(); e.Receipt != nil && a.first == 0 {
		a.first = last.Receipt.Sequence
	} else if last != nil && last.Receipt.Sequence-a.first >= 2*b.keep {
		return b.reduce(a)
	}
	return durable.SyncDir(b.Dir)
}

// appendLine adds a line to a file; it is on the disk when this returns, or nothing of it is in the file. What the power left of the line before it stays
// one of its own.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	was, err := f.Seek(0, io.SeekEnd)
	if last := []byte{'\n'}; err == nil && was > 0 {
		if _, err = f.ReadAt(last, was-1); last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if err == nil {
		_, err = f.Write(line)
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		err = errors.Join(err, f.Truncate(was)) // a part of a line would spoil the next one
	}
	return errors.Join(err, f.Close())
}

// reduce leaves the newest receipts of a file, and the contracts.
func (b *Book) reduce(a *account) error {
	from := a.chain.Last().Receipt.Sequence - b.keep
	var kept bytes.Buffer
	err := b.lines(a.id, func(e receipt.Entry, sequence int64, line []byte) bool {
		if e.Contract != nil || sequence > from {
			kept.Write(append(line, '\n'))
		}
		return true
	})
	if err == nil {
		err = durable.WriteFile(b.path(a.id, linesOf), kept.Bytes(), 0o600)
	}
	if err != nil {
		return err
	}
	if a.first = from + 1; a.Provides {
		return nil
	}
	return b.reduceShares(a, from)
}

// lines calls do with each line of a file, and the number of the receipt that it is, or is about; until do says no.
func (b *Book) lines(id string, do func(e receipt.Entry, sequence int64, line []byte) bool) error {
	f, err := os.Open(b.path(id, linesOf))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, receipt.MaxLine)
	for in.Scan() {
		e, err := receipt.ParseEntry(in.Bytes())
		if err != nil {
			return err
		}
		var numbered struct {
			Sequence int64 `json:"sequence"`
		}
		for _, signed := range []*receipt.Signed{e.Receipt, e.Answer} {
			if signed == nil {
				continue
			}
			if err := json.Unmarshal(signed.Document, &numbered); err != nil { // it was checked when it came
				return err
			}
		}
		if !do(e, numbered.Sequence, in.Bytes()) {
			return nil
		}
	}
	return in.Err()
}

// kept are the IDs of the contracts that there are files of.
func (b *Book) kept() (ids []string, err error) {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if id, is := strings.CutSuffix(e.Name(), stateOf); is && contract.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// forget removes the files of contracts that ended long ago, or of which there are too many.
func (b *Book) forget(now time.Time) error {
	var ended []*account
	for _, a := range b.accounts {
		if !a.Ended.IsZero() {
			ended = append(ended, a)
		}
	}
	slices.SortFunc(ended, func(x, y *account) int { return y.Ended.Compare(x.Ended) })
	for i, a := range ended {
		if i < keptEnded && now.Sub(a.Ended) < keptFor {
			continue
		}
		for _, of := range []string{linesOf, stateOf, sharesOf, linesOf + ".damaged"} {
			if err := durable.Remove(b.path(a.id, of)); err != nil {
				return err
			}
		}
		delete(b.accounts, a.id)
	}
	return nil
}

package receipt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/wire"
)

// Entry is a line of a file of receipts: one of the three. A revision of the contract stands before the receipts under it, an answer behind its receipt.
type Entry struct {
	Contract *contract.Signed `json:"contract,omitempty"`
	Receipt  *Signed          `json:"receipt,omitempty"`
	Answer   *Signed          `json:"answer,omitempty"`
}

// MaxLine bounds a line of a file: a contract of 64 KiB, in base64, and its signatures.
const MaxLine = 128 << 10

// maxEntries bounds a file, so that no file keeps a reader busy for ever.
const maxEntries = 100_000

var (
	entryShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Entry]())
	entryBound = wire.Bound{Factor: 12, Slack: 64 << 10}
)

// ParseEntry reads a line of a file.
func ParseEntry(line []byte) (e Entry, err error) {
	if err := entryShape.Check(line, entryBound); err != nil {
		return Entry{}, err
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, errors.New("is not JSON of that form")
	}
	return e, e.Validate()
}

// Validate says whether it is one of the three.
func (e Entry) Validate() error {
	n := 0
	for _, there := range []bool{e.Contract != nil, e.Receipt != nil, e.Answer != nil} {
		if there {
			n++
		}
	}
	if n != 1 {
		return errors.New("is none of a contract, a receipt and an answer, or several of them")
	}
	return nil
}

// Item is a receipt of a chain, with what the consumer said to it; nil while that is nothing.
type Item struct {
	Receipt Receipt
	Answer  *Answer
	Hash    string
}

// Chain is what is known of the receipts of a contract. The zero value takes the first entry.
type Chain struct {
	// Consumer and Provider are those of the contract.
	Consumer, Provider contract.Party
	ID                 string // of the contract
	Items              []Item
	prices             map[int64]map[string]string // of the contract's revisions
	revisions          map[int64]contract.Signed
}

// Fault says what is wrong with a chain, beginning at a receipt: it was forged, or it, or one before it, is missing.
type Fault struct {
	Line     int   // of the file, from 1; 0 without one
	Sequence int64 // of the receipt; 0 when it is none
	Why      string
}

func (f *Fault) Error() string {
	where := ""
	if f.Line > 0 {
		where = fmt.Sprintf("line %d, ", f.Line)
	}
	if f.Sequence > 0 {
		return fmt.Sprintf("%sreceipt %d: %s", where, f.Sequence, f.Why)
	}
	return where + f.Why
}

// Last is the newest receipt; nil without one.
func (c *Chain) Last() *Item {
	if len(c.Items) == 0 {
		return nil
	}
	return &c.Items[len(c.Items)-1]
}

// Find is the receipt of that number; nil without one.
func (c *Chain) Find(sequence int64) *Item {
	if len(c.Items) == 0 {
		return nil
	}
	if i := sequence - c.Items[0].Receipt.Sequence; i >= 0 && i < int64(len(c.Items)) {
		return &c.Items[i]
	}
	return nil
}

// Knows reports whether a revision of the contract is among the entries.
func (c *Chain) Knows(revision int64) bool { _, known := c.prices[revision]; return known }

// Revision is what was signed of a revision.
func (c *Chain) Revision(revision int64) (contract.Signed, bool) {
	s, known := c.revisions[revision]
	return s, known
}

// Trim leaves the newest items alone.
func (c *Chain) Trim(most int) {
	if n := len(c.Items); n > most {
		c.Items = append([]Item(nil), c.Items[n-most:]...)
	}
}

// Add checks an entry against those before it, and takes it in; what it does not take it leaves out. The error is a *Fault.
func (c *Chain) Add(e Entry) error {
	switch {
	case e.Validate() != nil:
		return &Fault{Why: e.Validate().Error()}
	case e.Contract != nil:
		return c.addContract(*e.Contract)
	case e.Receipt != nil:
		return c.addReceipt(*e.Receipt)
	}
	return c.addAnswer(*e.Answer)
}

func (c *Chain) addContract(s contract.Signed) error {
	if err := s.Verify(); err != nil {
		return &Fault{Why: err.Error()}
	}
	doc, err := contract.Parse(s.Document)
	if err != nil {
		return &Fault{Why: err.Error()}
	}
	if c.ID == "" {
		c.ID, c.Consumer, c.Provider = doc.ID, doc.Consumer, doc.Provider
		c.prices, c.revisions = map[int64]map[string]string{}, map[int64]contract.Signed{}
	}
	if doc.ID != c.ID || doc.Consumer.ID != c.Consumer.ID || doc.Provider.ID != c.Provider.ID {
		return &Fault{Why: fmt.Sprintf("contract %s is not a revision of %s, between the same clusters", doc.ID, c.ID)}
	}
	if had, known := c.prices[doc.Revision]; known && !maps.Equal(had, doc.Prices) {
		return &Fault{Why: fmt.Sprintf("contract %s: there are two of revision %d, with other prices", doc.ID, doc.Revision)}
	}
	c.prices[doc.Revision], c.revisions[doc.Revision] = doc.Prices, s
	return nil
}

func (c *Chain) addReceipt(s Signed) error {
	if c.ID == "" {
		return &Fault{Why: "a receipt stands before the contract that it is about"}
	}
	r, err := s.Verify(c.Provider)
	next := int64(0)
	last := c.Last()
	if last != nil {
		next = last.Receipt.Sequence + 1
	}
	bad := func(format string, args ...any) error {
		sequence := r.Sequence
		if sequence == 0 {
			sequence = next
		}
		return &Fault{Sequence: sequence, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case err != nil:
		return bad("is forged: %v", err)
	case r.Contract != c.ID || r.Consumer != c.Consumer.ID || r.Provider != c.Provider.ID:
		return bad("is about another contract")
	case !c.Knows(r.Revision):
		return bad("is under revision %d of the contract, which is missing", r.Revision)
	case !maps.Equal(r.Prices, c.prices[r.Revision]):
		return bad("has other prices than revision %d of the contract", r.Revision)
	case last == nil:
	case last.Receipt.Last:
		return bad("comes after the last of the contract, receipt %d", last.Receipt.Sequence)
	case r.Sequence > next:
		return &Fault{Sequence: next, Why: fmt.Sprintf("is missing: the next there is has number %d", r.Sequence)}
	case r.Sequence < next:
		return bad("comes again, or out of order: after number %d", last.Receipt.Sequence)
	case r.Previous != last.Hash:
		return bad("does not follow receipt %d as it is here: one of the two was replaced", last.Receipt.Sequence)
	case r.From.Before(last.Receipt.To):
		return bad("begins before receipt %d ends", last.Receipt.Sequence)
	case r.Revision < last.Receipt.Revision:
		return bad("is under an older revision of the contract than receipt %d", last.Receipt.Sequence)
	}
	c.Items = append(c.Items, Item{Receipt: r, Hash: s.Hash()})
	return nil
}

func (c *Chain) addAnswer(s Signed) error {
	a, err := s.VerifyAnswer(c.Consumer)
	if err != nil {
		return &Fault{Sequence: a.Sequence, Why: "the consumer's answer is forged: " + err.Error()}
	}
	item := c.Find(a.Sequence)
	switch {
	case item == nil:
		return &Fault{Sequence: a.Sequence, Why: "is missing: there is only the consumer's answer to it"}
	case a.Contract != c.ID || a.Receipt != item.Hash:
		return &Fault{Sequence: a.Sequence, Why: "is another one than the consumer answered to"}
	case item.Answer != nil && item.Answer.Verdict != a.Verdict:
		return &Fault{Sequence: a.Sequence, Why: "has two answers of the consumer that differ"}
	}
	item.Answer = &a
	return nil
}

// ReadFile reads a file of receipts and checks each line of it. The error is a *Fault, of the first line that is wrong, or of reading; the chain is
// what comes before.
func ReadFile(from io.Reader) (*Chain, error) {
	c := &Chain{}
	in := bufio.NewScanner(from)
	in.Buffer(nil, MaxLine)
	line := 0
	for in.Scan() {
		if line++; line > maxEntries {
			return c, fmt.Errorf("more than %d lines", maxEntries)
		}
		e, err := ParseEntry(in.Bytes())
		if err == nil {
			err = c.Add(e)
		}
		if err != nil {
			fault, ok := errors.AsType[*Fault](err)
			if !ok {
				fault = &Fault{Why: err.Error()}
			}
			fault.Line = line
			return c, fault
		}
	}
	if err := in.Err(); err != nil {
		return c, &Fault{Line: line + 1, Why: err.Error()}
	}
	if c.ID == "" {
		return c, &Fault{Why: "there is no contract in it"}
	}
	return c, nil
}

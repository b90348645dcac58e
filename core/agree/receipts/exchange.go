package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
	"kith.dev/core/trust/wire"
)

// Path is the route of the peer API by which a consumer fetches receipts and answers them.
const Path = "/kith/v2/receipts"

// Bounds of one request. More is asked for again.
const (
	mostAtOnce = 32
	mostBytes  = 40 << 10 // of a reply's entries, in JSON, unless one of them alone is larger: Client.Call takes 64 KiB
	mostRounds = 256      // of one fetching: more than a file has
	// MaxRequest is how large the body of a request may be.
	MaxRequest = 128 << 10
)

// Request is what a consumer asks the provider of a contract.
type Request struct {
	Contract string           `json:"contract"`
	After    int64            `json:"after"`             // the number of the newest receipt that it has
	Answers  []receipt.Signed `json:"answers,omitempty"` // to receipts that it has
}

// Validate bounds it.
func (r *Request) Validate() error {
	if err := contract.CheckID(r.Contract); err != nil {
		return err
	}
	if r.After < 0 || len(r.Answers) > mostAtOnce {
		return fmt.Errorf("after %d, %d answers: at most %d are taken at once", r.After, len(r.Answers), mostAtOnce)
	}
	return nil
}

// Reply is what the provider has after that: receipts, each revision of the contract before those under it.
type Reply struct {
	Entries  []receipt.Entry `json:"entries,omitempty"`
	More     bool            `json:"more,omitempty"`
	Answered int64           `json:"answered"` // up to which receipt it has answers
}

// Validate bounds it.
func (r *Reply) Validate() error {
	if len(r.Entries) > 2*mostAtOnce {
		return fmt.Errorf("%d entries, at most %d are taken at once", len(r.Entries), 2*mostAtOnce)
	}
	for _, e := range r.Entries {
		if err := e.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Answer serves a consumer. What others have with this cluster, and what is not known, is the same to it.
func (b *Book) Answer(caller peering.Caller, in Request) (out Reply, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[in.Contract]
	if a == nil || !a.Provides || a.PeerID != caller.ID.String() {
		return out, peering.Refuse(peering.CodeNotFound, "there are no receipts of such a contract with the caller", "")
	}
	if !a.asked.Allow() {
		return out, peering.Refuse(peering.CodeRateLimited, "the receipts were asked for too often", "wait a few seconds")
	}
	if err := b.open(a); err != nil {
		return out, err
	}
	for _, s := range in.Answers {
		answer, err := s.VerifyAnswer(a.chain.Consumer)
		if err != nil {
			return out, peering.Refuse(peering.CodeBadRequest, wire.Line(err.Error(), 256), "")
		}
		if item := a.chain.Find(answer.Sequence); item == nil || item.Answer != nil {
			continue // too old, or it came twice
		}
		if err := b.add(a, receipt.Entry{Answer: &s}); err != nil {
			if fault, ok := errors.AsType[*receipt.Fault](err); ok {
				return out, peering.Refuse(peering.CodeBadRequest, wire.Line(fault.Error(), 256), "")
			}
			return out, err
		}
		if answer.Verdict == receipt.Disputed {
			b.Log.Warn("the consumer disputes a receipt", "peer", a.Peer, "contract", a.id, "receipt", answer.Sequence)
		}
	}
	for i, item := range a.chain.Items {
		if i == 0 {
			out.Answered = item.Receipt.Sequence - 1 // what is older is not waited for
		}
		if item.Answer == nil {
			break
		}
		out.Answered = item.Receipt.Sequence
	}
	if last := a.chain.Last(); last == nil || last.Receipt.Sequence <= in.After {
		return out, nil
	}
	size, receipts := 0, 0
	var signed []receipt.Entry // revisions that no receipt followed yet
	err = b.lines(a.id, func(e receipt.Entry, sequence int64, line []byte) bool {
		if e.Contract != nil {
			signed = append(signed[:0], e) // one receipt is under one revision, and there may be none under one
			return true
		}
		if e.Receipt == nil || sequence <= in.After {
			return true
		}
		cost := len(line)
		for _, revision := range signed {
			cost += len(revision.Contract.Document) * 3 / 2
		}
		if receipts == mostAtOnce || receipts > 0 && size+cost > mostBytes {
			out.More = true
			return false
		}
		out.Entries = append(append(out.Entries, signed...), e)
		signed = signed[:0]
		size += cost
		receipts++
		return true
	})
	return out, err
}

// How soon a provider is asked again while the last receipt of a contract that ended is not there, at first and at most, and for how long.
const (
	pullFirst = 2 * time.Second
	pullMost  = hour
	pullFor   = 30 * 24 * time.Hour
)

// Due are the contracts of which receipts should be fetched now, and when there will be such again; zero for never. It is so a little after each hour,
// and when a contract ended.
func (b *Book) Due() (ids []string, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now().Wall
	for id, a := range b.accounts {
		if a.Provides || b.complete(a) || !a.Ended.IsZero() && now.Sub(a.Ended) > pullFor {
			continue
		}
		if a.pull.IsZero() || !a.Ended.IsZero() && a.pause == 0 { // since this program started, or since it ended
			a.pull, a.pause = now.Add(pullFirst), pullFirst
		}
		if !a.pull.After(now) {
			ids = append(ids, id)
			continue
		}
		if next.IsZero() || a.pull.Before(next) {
			next = a.pull
		}
	}
	return ids, next
}

// complete reports whether a consumer has all that will ever come.
func (b *Book) complete(a *account) bool {
	return !a.Ended.IsZero() && a.delivered && a.chain != nil && a.chain.Last() != nil && a.chain.Last().Receipt.Last
}

// later says when to ask for receipts of a contract next.
func (b *Book) later(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, now := b.accounts[id], b.Now().Wall
	switch {
	case a == nil:
	case a.Ended.IsZero():
		a.pull, a.pause = now.Truncate(hour).Add(hour+time.Minute), 0
	default:
		a.pause = min(max(2*a.pause, pullFirst), pullMost)
		a.pull = now.Add(a.pause)
	}
}

// Fetch asks the provider of a contract for the receipts that are not here, checks them, and answers.
func (b *Book) Fetch(ctx context.Context, id string) error {
	b.pulls.Lock()
	defer b.pulls.Unlock()
	defer b.later(id)
	b.mu.Lock()
	a := b.accounts[id]
	if a == nil || a.Provides {
		b.mu.Unlock()
		return nil
	}
	peer, peerID := a.Peer, a.PeerID
	b.mu.Unlock()
	var answers []receipt.Signed
	for range mostRounds {
		in := Request{Contract: id, Answers: answers}
		b.mu.Lock()
		err := b.open(a)
		if err == nil && a.chain.Last() != nil {
			in.After = a.chain.Last().Receipt.Sequence
		}
		b.mu.Unlock()
		if err != nil {
			return err
		}
		out, err := b.Ask(ctx, peer, peerID, in)
		if err != nil {
			return err
		}
		if err := b.take(a, out.Entries); err != nil {
			return err
		}
		if answers, err = b.unsent(a, out.Answered); err != nil {
			return err
		}
		if len(answers) == 0 && !out.More {
			return b.delivered(a)
		}
	}
	return fmt.Errorf("contract %s: its provider always has more receipts", id)
}

// delivered notes that nothing is left to fetch or to answer.
func (b *Book) delivered(a *account) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.delivered = true; a.Fault == "" {
		return nil
	}
	a.Fault = "" // what the provider says now is whole
	return b.save(a)
}

// take checks and keeps what a provider sent, and answers each receipt. The error is a *receipt.Fault when the provider is to blame.
func (b *Book) take(a *account, entries []receipt.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		err := b.takeOne(a, e)
		fault, theirs := errors.AsType[*receipt.Fault](err)
		if theirs && a.Fault != fault.Error() {
			a.Fault = fault.Error()
			b.Log.Warn("a receipt was not taken", "peer", a.Peer, "contract", a.id, "why", a.Fault)
			err = errors.Join(fault, b.save(a))
		}
		if err != nil {
			return err
		}
	}
	a.delivered = a.delivered && len(entries) == 0
	return nil
}

func (b *Book) takeOne(a *account, e receipt.Entry) error {
	if e.Answer != nil {
		return &receipt.Fault{Why: "the provider sends answers, which are the consumer's to give"}
	}
	now := b.Now()
	if e.Contract != nil {
		doc, err := contract.Parse(e.Contract.Document)
		if err != nil {
			return &receipt.Fault{Why: err.Error()}
		}
		if doc.ID != a.id {
			return &receipt.Fault{Why: "the provider sends another contract than the one that was asked about"}
		}
		if a.chain.Knows(doc.Revision) {
			return nil
		}
		return b.add(a, e)
	}
	r, err := receipt.Parse(e.Receipt.Document)
	if err != nil {
		return &receipt.Fault{Why: err.Error()}
	}
	if r.To.After(now.Wall.Add(clockSkew)) {
		return &receipt.Fault{Sequence: r.Sequence, Why: fmt.Sprintf("ends at %s, which is to come: compare the clocks of both", r.To.Format(time.RFC3339))}
	}
	if err := b.add(a, e); err != nil {
		return err
	}
	return b.answer(a, *a.chain.Last())
}

// answer judges a receipt, and keeps and settles what is said to it.
func (b *Book) answer(a *account, to receipt.Item) error {
	now := b.Now()
	if a.Ended.IsZero() {
		b.count(a, now)
	}
	said := receipt.Answer{Version: receipt.AnswerVersion, Contract: a.id, Sequence: to.Receipt.Sequence, Receipt: to.Hash, Verdict: a.Meter.judge(to.Receipt.Used)}
	if said.Verdict == receipt.Disputed {
		said.Used = a.Meter.Held.words()
		b.Log.Warn("a receipt says more than was counted here", "peer", a.Peer, "contract", a.id, "receipt", said.Sequence)
	}
	s, err := receipt.SignAnswer(said, b.Identity)
	if err != nil {
		return err
	}
	if err := b.add(a, receipt.Entry{Answer: &s}); err != nil {
		return err
	}
	b.settle(a, to.Receipt, said, now)
	a.Sequence = to.Receipt.Sequence
	return b.save(a)
}

// unsent are answers that the provider does not have, the oldest first. A receipt that the power failed before it was answered is answered now.
func (b *Book) unsent(a *account, answered int64) (list []receipt.Signed, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, item := range a.chain.Items {
		if item.Answer == nil && item.Receipt.Sequence > a.Sequence {
			if err := b.answer(a, item); err != nil {
				return nil, err
			}
		}
	}
	if last := a.chain.Last(); last == nil || last.Receipt.Sequence <= answered {
		return nil, nil
	}
	err = b.lines(a.id, func(e receipt.Entry, sequence int64, _ []byte) bool {
		if e.Answer != nil && sequence > answered {
			list = append(list, *e.Answer)
		}
		return len(list) < mostAtOnce
	})
	return list, err
}

var (
	types        = &wire.Types{Fold: true}
	requestShape = types.Of(reflect.TypeFor[Request]())
)

// ParseRequest reads a consumer's request.
func ParseRequest(body []byte) (in Request, err error) {
	if err := requestShape.Check(body, wire.Bound{Factor: 12, Slack: 64 << 10}); err != nil {
		return in, err
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, errors.New("is not JSON of that form")
	}
	return in, in.Validate()
}

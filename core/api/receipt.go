package api

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Account is what was counted under one contract, in receipts (docs/prices.md).
type Account struct {
	Contract  string    `json:"contract"` // its ID
	Peer      string    `json:"peer"`
	PeerID    string    `json:"peerId"`
	Direction Direction `json:"direction"` // incoming: of the peer's pods here
	Ended     time.Time `json:"ended,omitzero"`
	// Fault is why a receipt of the provider was not taken; "" while all were.
	Fault string `json:"fault,omitempty"`
	// Receipts are closed, the oldest first. Open is what was counted since, with no number and no verdict.
	Receipts List[Receipt] `json:"receipts"`
	Open     *Receipt      `json:"open,omitempty"`
}

// Receipt is what was held under a contract in an interval, and what that comes to.
type Receipt struct {
	Sequence int64     `json:"sequence,omitempty"`
	Revision int64     `json:"revision,omitempty"` // of the contract
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	// Reserved and Used are amounts times seconds, as whole numbers: thousandths of a core of cpu, bytes of memory and storage, numbers of all else.
	Reserved map[string]string `json:"reserved"`
	Used     map[string]string `json:"used"`
	Prices   map[string]string `json:"prices,omitempty"`
	Due      map[string]string `json:"due,omitempty"`
	Total    string            `json:"total"`
	Currency string            `json:"currency,omitempty"`
	Verdict  ReceiptVerdict    `json:"verdict,omitempty"`
	Counted  map[string]string `json:"counted,omitempty"` // with a dispute, what the consumer counted of Used
	Last     bool              `json:"last,omitempty"`    // of the contract
	// Shares, when they are asked for, are what namespaces of this cluster used of Used, as it counted by itself: nobody signs them.
	Shares List[ReceiptShare] `json:"shares,omitempty"`
}

// ReceiptShare is what a namespace of this cluster has of a receipt.
type ReceiptShare struct {
	Namespace string            `json:"namespace,omitempty"` // "" for what was not counted here
	Used      map[string]string `json:"used,omitempty"`
	Due       map[string]string `json:"due,omitempty"`
	Total     string            `json:"total"`
}

// ReceiptVerdict is what the consumer said to a receipt; "" while that is nothing.
type ReceiptVerdict string

// The verdicts.
const (
	ReceiptAgreed   ReceiptVerdict = "agreed"
	ReceiptDisputed ReceiptVerdict = "disputed"
)

// ReceiptFile are the receipts of a contract as they were signed, with the contract: the lines of a file that `kith receipt verify` checks anywhere.
type ReceiptFile struct {
	Contract string                `json:"contract"`
	Lines    List[json.RawMessage] `json:"lines"`
}

// ReceiptOptions are the query of the call that lists receipts.
type ReceiptOptions struct {
	Since      time.Time // those that end after it; zero: all
	Namespaces bool      // with the shares of this cluster's namespaces
}

// Query is what ParseReceiptOptions reads.
func (o ReceiptOptions) Query() url.Values {
	q := url.Values{}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339))
	}
	if o.Namespaces {
		q.Set("namespaces", "true")
	}
	return q
}

// ParseReceiptOptions reads them.
func ParseReceiptOptions(q url.Values) (o ReceiptOptions, err error) {
	if text := q.Get("namespaces"); text != "" {
		if o.Namespaces, err = strconv.ParseBool(text); err != nil {
			return o, Invalid("namespaces", text, "true or false")
		}
	}
	text := q.Get("since")
	if text == "" {
		return o, nil
	}
	if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
		return o, Invalid("since", text, "a moment such as 2026-11-30T00:00:00Z")
	}
	return o, nil
}

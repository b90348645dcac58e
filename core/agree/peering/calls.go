package peering

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

const (
	callTimeout = 15 * time.Second // an ordinary call, dialling included
	pollTime    = 50 * time.Second // what the server holds a long poll
	pollSlack   = 20 * time.Second // what a client waits beyond it
	pollPause   = time.Second      // the least time between two polls
)

// helloPath is where every version says which versions it speaks.
const helloPath = "/kith/v1/hello"

// Asked is the result of Ask: a request that the peer has received.
type Asked struct {
	RequestID string
	// Code is the six-digit pairing code, which the peer's owner sees too. Compare: the peer says that its owner is shown it. That is a reason
	// to show it here too, but false is never a reason not to.
	Code     string
	Compare  bool
	Expires  time.Time
	PeerID   identity.ID
	PeerKey  ed25519.PublicKey
	PeerName string // a hint
}

// BrokenOffError says that an attempt ended after this side's nonce was sent and no nonce, or a wrong one, came back. Do not repeat it
// automatically: each attempt lets the peer try another code, so only the owner may start one (see identity.Commit).
type BrokenOffError struct{ Err error }

func (e *BrokenOffError) Error() string { return "the pairing was broken off: " + e.Err.Error() }
func (e *BrokenOffError) Unwrap() error { return e.Err }

// Hello asks the peer who it is. A peer that speaks another version of the protocol is a *Problem with CodeVersion.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	if err := c.Call(ctx, http.MethodGet, helloPath, nil, &h); err != nil {
		return Hello{}, err
	}
	return h, c.checkHello(&h)
}

func (c *Client) checkHello(h *Hello) error {
	if !h.Speaks() {
		return &Problem{Code: CodeVersion, Message: otherVersion(h.Name, h.Protocol, Protocol), Do: sameVersion}
	}
	if id, _ := c.Peer(); h.ID != id {
		return fmt.Errorf("peer says it is %s, its key is that of %s", h.ID, id)
	}
	return nil
}

const sameVersion = "bring both to the same version of Kith"

// otherVersion is the sentence for the one of the two that asked.
func otherVersion(peer string, theirs []string, ours string) string {
	return fmt.Sprintf("%s speaks %s, this Kith speaks %s", peer, strings.Join(theirs, ", "), ours)
}

// Ask sends a request to the peer; Outcome gives its answer. compare says that this side's owner is shown the code. before is called
// once, just before this side's nonce is sent; its error ends the attempt. After that every error is a *BrokenOffError.
func (c *Client) Ask(ctx context.Context, q Question, compare bool, before func() error) (Asked, error) {
	hello, err := c.Hello(ctx)
	if err != nil {
		return Asked{}, err
	}
	self := c.config.Identity.ID()
	peer, key := c.Peer() // fixed since Hello: all connections go to this key or fail
	var opened Opened
	if err := c.Call(ctx, http.MethodPost, "/kith/v2/requests", &Opening{}, &opened); err != nil {
		return Asked{}, err
	}
	if err := before(); err != nil {
		return Asked{}, err
	}
	nonce := identity.NewNonce()
	var revealed Revealed
	asking := &Asking{Nonce: nonce[:], Question: q, Compare: compare}
	if err := c.Call(ctx, http.MethodPost, "/kith/v2/requests/"+opened.ID+"/question", asking, &revealed); err != nil {
		return Asked{}, &BrokenOffError{err}
	}
	theirs := identity.Nonce(revealed.Nonce)
	if err := identity.VerifyCommit([32]byte(opened.Commitment), theirs, self, peer); err != nil {
		return Asked{}, &BrokenOffError{err}
	}
	return Asked{
		RequestID: revealed.ID,
		Code:      identity.Code(self, peer, nonce, theirs),
		Compare:   revealed.Compare,
		Expires:   revealed.Expires,
		PeerID:    peer, PeerKey: key, PeerName: hello.Name,
	}, nil
}

// Outcome waits for the answer to a request. It long-polls until the state is no longer pending, the connection breaks, or ctx ends: then the
// state is pending and the error ctx's.
func (c *Client) Outcome(ctx context.Context, requestID string) (Outcome, error) {
	if err := checkRequestID(requestID); err != nil {
		return Outcome{}, err
	}
	pending := Outcome{State: OutcomePending}
	for {
		begin := time.Now()
		var o Outcome
		err := c.call(ctx, pollTime+pollSlack, http.MethodGet, "/kith/v2/requests/"+requestID, nil, &o)
		if ctx.Err() != nil && err != nil {
			return pending, ctx.Err()
		}
		if err != nil || o.State != OutcomePending {
			return o, err
		}
		select { // the least pause between two polls, whatever the peer does
		case <-ctx.Done():
			return pending, ctx.Err()
		case <-time.After(pollPause - time.Since(begin)):
		}
	}
}

// Withdraw withdraws a request; one that does not exist any more is no error. mismatch tells the peer's owner that the codes, or keys, differed
// here; peers with an older Kith ignore it.
func (c *Client) Withdraw(ctx context.Context, requestID string, mismatch bool) error {
	if err := checkRequestID(requestID); err != nil {
		return err
	}
	path := "/kith/v2/requests/" + requestID
	if mismatch {
		path += "?mismatch=true"
	}
	return c.Call(ctx, http.MethodDelete, path, nil, nil)
}

// Sign sends a contract that this side has signed as consumer to the peer for its signature. The result is verified: the same document with
// both signatures.
func (c *Client) Sign(ctx context.Context, s contract.Signed) (contract.Signed, error) {
	var out signed
	if err := c.Call(ctx, http.MethodPost, "/kith/v2/contracts", &signed{s}, &out); err != nil {
		return contract.Signed{}, err
	}
	if !bytes.Equal(out.Document, s.Document) || !bytes.Equal(out.ConsumerSignature, s.ConsumerSignature) {
		return contract.Signed{}, errors.New("contract: the peer sent back another one than it was sent")
	}
	if err := out.Verify(); err != nil {
		return contract.Signed{}, fmt.Errorf("what the peer countersigned: %w", err)
	}
	return out.Signed, nil
}

// Contracts lists what the peer holds to be in force between the two.
func (c *Client) Contracts(ctx context.Context) ([]ContractRef, error) {
	var out refs
	err := c.Call(ctx, http.MethodGet, "/kith/v2/contracts", nil, &out)
	return out, err
}

// End ends a contract; that it had ended is no error.
func (c *Client) End(ctx context.Context, contractID string) error {
	if err := contract.CheckID(contractID); err != nil {
		return err
	}
	return c.Call(ctx, http.MethodDelete, "/kith/v2/contracts/"+contractID, nil, nil)
}

// Link sends this side of the link and returns the peer's.
func (c *Client) Link(ctx context.Context, ours Link) (Link, error) {
	if err := ours.Validate(); err != nil {
		return Link{}, fmt.Errorf("own link: %w", err)
	}
	var theirs Link
	err := c.Call(ctx, http.MethodPut, "/kith/v2/link", &ours, &theirs)
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == CodeBadRequest { // a link that is valid here: the peer looks for another
		return Link{}, Refuse(CodeVersion, fmt.Sprintf("%s; it says: %s", errOtherPlan.Message, p.Message), errOtherPlan.Do)
	}
	return theirs, err
}

// Call does one request with JSON, for routes others add to the server: path begins with "/" and is escaped; in may
// be nil; out may be nil, and if it has Validate() error, that is asked. At most 64 KiB come back (128 with a
// contract), within 15 s or the time ctx gives, whichever is less.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, callTimeout, method, path, in, out)
}

func (c *Client) call(ctx context.Context, limit time.Duration, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.BaseURL()+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failure(ctx, err)
	}
	defer resp.Body.Close()
	if err := readAnswer(resp, out); err != nil {
		return c.failure(ctx, fmt.Errorf("%s %s: %w", method, strings.SplitN(path, "?", 2)[0], err))
	}
	return nil
}

var errNoAnswer = errors.New("no answer in time")

// failure takes the http package's words for the request off an error of the connection.
func (c *Client) failure(ctx context.Context, err error) error {
	var problem *Problem
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &problem):
		return err
	case errors.As(err, &unreachable):
		return unreachable
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return &UnreachableError{Failures: []AddressError{{c.Address(), errNoAnswer}}}
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return fmt.Errorf("peer at %s: %w", c.Address(), err)
}

// readAnswer takes a success into out, and anything else as a *Problem.
func readAnswer(resp *http.Response, out any) error {
	if resp.StatusCode >= 300 {
		return readProblem(resp)
	}
	if out == nil {
		return nil
	}
	into, ok := out.(message)
	if !ok {
		into = &unchecked{out}
	}
	err := decode(resp.Header.Get("Content-Type"), resp.Body, into)
	if problem, ok := errors.AsType[*Problem](err); ok { // ours about its answer, not its about our request
		return fmt.Errorf("the peer's answer cannot be used: %s", problem.Message)
	}
	return err
}

// unchecked decodes into what has no Validate.
type unchecked struct{ into any }

func (u *unchecked) Validate() error                 { return nil }
func (u *unchecked) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, u.into) }

func readProblem(resp *http.Response) error {
	p := new(Problem)
	if err := decode(resp.Header.Get("Content-Type"), resp.Body, p); err != nil {
		return fmt.Errorf("the peer answers %s, and not as a Kith does", resp.Status)
	}
	return p
}

const supplyPath = "/kith/v2/supply"

// WouldGive asks what a request would be granted now. A peer with a Kith older than this call answers CodeNotFound.
func (c *Client) WouldGive(ctx context.Context) (out Supply, err error) {
	err = c.Call(ctx, http.MethodGet, supplyPath, nil, &out)
	return out, err
}

// tetherPath is about the tether between the caller, a laptop, and the cluster that is called.
const tetherPath = "/kith/v2/tether"

// Tether asks the peer whether it runs this laptop, or would accept to. If its Kith is older than tethers the error is a *Problem with
// CodeVersion.
func (c *Client) Tether(ctx context.Context) (Tether, error) {
	t, err := c.tether(ctx, http.MethodGet)
	return t, older(err)
}

// older turns CodeNotFound into CodeVersion: for this route it means that the peer's Kith does not have it.
func older(err error) error {
	if errors.Is(err, &Problem{Code: CodeNotFound}) {
		return &Problem{Code: CodeVersion, Message: "its Kith is older than this one and runs no laptops", Do: "update Kith there"}
	}
	return err
}

// BeginTether asks the peer to run this laptop as its node; see Handler.
func (c *Client) BeginTether(ctx context.Context) (Tether, error) {
	return c.tether(ctx, http.MethodPut)
}

func (c *Client) tether(ctx context.Context, method string) (out Tether, err error) {
	err = c.Call(ctx, method, tetherPath, nil, &out)
	return out, err
}

// EndTether asks the peer, which runs this laptop, to drain it and end the tether; see Handler.
func (c *Client) EndTether(ctx context.Context) error {
	return c.Call(ctx, http.MethodDelete, tetherPath, nil, nil)
}

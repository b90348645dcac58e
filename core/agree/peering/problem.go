package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"kith.dev/core/trust/wire"
)

// Code is the stable word of a Problem.
type Code string

// The codes. A daemon that does not know one treats it by its HTTP status.
const (
	CodeBadRequest  Code = "bad-request"  // what was sent cannot be meant
	CodeTooLarge    Code = "too-large"    // what was sent is over a bound
	CodeRateLimited Code = "rate-limited" // too often, or too much at once; later it may pass
	CodeForbidden   Code = "forbidden"    // the caller is known, and still may not do this
	CodeNotFound    Code = "not-found"    // no such request, contract, route
	CodeConflict    Code = "conflict"     // the state does not permit it
	CodeNotTethered Code = "not-tethered" // the one who was asked is a laptop that is not tethered to the asker, or no longer
	CodeNoContract  Code = "no-contract"  // no contract with the caller is in force
	CodeDeclined    Code = "declined"     // the owner, or a policy, said no
	CodeExpired     Code = "expired"      // too late
	CodeVersion     Code = "version"      // the two speak no common version of the protocol
	CodeUnavailable Code = "unavailable"  // going down, or its cluster does not answer; later it may pass
	CodeInternal    Code = "internal"     // a defect; the other side's log has more
)

var status = map[Code]int{
	CodeBadRequest:  http.StatusBadRequest,
	CodeTooLarge:    http.StatusRequestEntityTooLarge,
	CodeRateLimited: http.StatusTooManyRequests,
	CodeForbidden:   http.StatusForbidden,
	CodeNotFound:    http.StatusNotFound,
	CodeConflict:    http.StatusConflict,
	CodeNotTethered: http.StatusForbidden,
	CodeNoContract:  http.StatusForbidden,
	CodeDeclined:    http.StatusForbidden,
	CodeExpired:     http.StatusGone,
	CodeVersion:     http.StatusNotImplemented,
	CodeUnavailable: http.StatusServiceUnavailable,
	CodeInternal:    http.StatusInternalServerError,
}

// Problem is the body of an answer that is no success (in the spirit of RFC 9457), and the Go error for it on
// both sides: a Handler returns one to have it sent, a Client returns the one it received.
type Problem struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`      // what failed, on what, why
	Do      string `json:"do,omitempty"` // what the one who asked can do about it
}

// Refuse makes a Problem; do may be empty.
func Refuse(code Code, message, do string) *Problem {
	return &Problem{Code: code, Message: message, Do: do}
}

// MediaProblem is the content type of a Problem.
const MediaProblem = "application/problem+json"

func (p *Problem) Error() string {
	if p.Do != "" {
		return p.Message + " (" + p.Do + ")"
	}
	return p.Message
}

// Is makes errors.Is(err, &Problem{Code: CodeNoContract}) true for every problem of that code.
func (p *Problem) Is(target error) bool {
	t, ok := target.(*Problem)
	return ok && t.Message == "" && t.Code == p.Code
}

// HTTPStatus is the status that carries the problem; 500 for a code that is not known.
func (p *Problem) HTTPStatus() int {
	if s, ok := status[p.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Validate bounds a problem that a peer sent, so that it can be shown and logged.
func (p *Problem) Validate() error {
	if p.Code == "" || len(p.Code) > 32 || !wire.Printable(string(p.Code)) {
		return fmt.Errorf("code: %.40q is none", p.Code)
	}
	if p.Message == "" {
		return errors.New("message: is missing")
	}
	p.Message, p.Do = wire.Line(p.Message, 512), wire.Line(p.Do, 512)
	return nil
}

// WriteProblem answers with err: as it is when it is, or wraps, a *Problem; a nameless CodeInternal for any
// other error, whose text may hold what is none of the peer's business.
func WriteProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", MediaProblem)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.HTTPStatus())
	json.NewEncoder(w).Encode(p)
}

func problemOf(err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{Code: CodeUnavailable, Message: "the answer took too long", Do: "try again later"}
	}
	return &Problem{Code: CodeInternal, Message: "something failed here; the log says what"}
}

package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
)

// Code is the stable word of an error. Scripts may match on it; people read Message, Reason and Do.
type Code string

// The codes. Each has one HTTP status and one exit code of kith, see the table below.
const (
	CodeInternal        Code = "internal"        // a defect, or something kithd did not expect
	CodeInvalid         Code = "invalid"         // what was asked cannot be meant; Field says where
	CodeUnavailable     Code = "unavailable"     // no daemon answers at the socket
	CodeForbidden       Code = "forbidden"       // the caller is neither root nor in the group kith
	CodeNotFound        Code = "notFound"        // no such peer, request, contract, namespace
	CodeConflict        Code = "conflict"        // it exists already, or the state does not permit it
	CodeNotReady        Code = "notReady"        // the engine is starting or failed; try again later
	CodePeerUnreachable Code = "peerUnreachable" // the other cluster does not answer
	CodeDeclined        Code = "declined"        // the other owner, or a policy, said no
	CodeExpired         Code = "expired"         // nobody answered the request in time
	CodeConfirm         Code = "confirm"         // the other owner accepted; this one has to confirm before anything is signed
	CodeTimeout         Code = "timeout"         // it did not end within the time the caller gave
	CodeUnsupported     Code = "unsupported"     // this kithd or this engine cannot do it
)

// codes gives the HTTP status and the exit code of each Code.
var codes = map[Code]struct{ http, exit int }{
	CodeInternal:        {http.StatusInternalServerError, ExitFailure},
	CodeInvalid:         {http.StatusBadRequest, ExitUsage},
	CodeUnavailable:     {http.StatusServiceUnavailable, ExitNoDaemon},
	CodeForbidden:       {http.StatusForbidden, ExitForbidden},
	CodeNotFound:        {http.StatusNotFound, ExitNotFound},
	CodeConflict:        {http.StatusConflict, ExitFailure},
	CodeNotReady:        {http.StatusServiceUnavailable, ExitFailure},
	CodePeerUnreachable: {http.StatusBadGateway, ExitFailure},
	CodeDeclined:        {http.StatusConflict, ExitDeclined},
	CodeExpired:         {http.StatusGone, ExitDeclined},
	CodeConfirm:         {http.StatusConflict, ExitConfirm},
	CodeTimeout:         {http.StatusGatewayTimeout, ExitTimeout},
	CodeUnsupported:     {http.StatusNotImplemented, ExitFailure},
}

// Exit codes of kith (`kith help exit-codes`).
const (
	ExitOK        = 0
	ExitFailure   = 1
	ExitUsage     = 2
	ExitNoDaemon  = 3
	ExitForbidden = 4
	ExitNotFound  = 5
	ExitDeclined  = 6
	ExitTimeout   = 7
	ExitConfirm   = 8
)

// HTTPStatus is the status that carries an error of this code; 500 for a word that is not known.
func (c Code) HTTPStatus() int {
	return cmp.Or(codes[c].http, http.StatusInternalServerError)
}

// ExitCode is what kith exits with on an error of this code; 1 for a word that is not known.
func (c Code) ExitCode() int {
	return cmp.Or(codes[c].exit, ExitFailure)
}

// Error is what every failing call answers: what failed, on what, why, what to do. On the wire it is the value of
// the key "error": {"error": {"code": "notFound", "message": "no peer named bbo", "do": "kith peers lists them"}}.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`          // what failed, on what
	Reason  string `json:"reason,omitempty"` // why
	Do      string `json:"do,omitempty"`     // what the reader can do about it
	Field   string `json:"field,omitempty"`  // the input that is wrong, for CodeInvalid
}

// Error implements error: one line with all of it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	if e.Do != "" {
		b.WriteString(" (" + e.Do + ")")
	}
	return b.String()
}

// Is makes errors.Is(err, &Error{Code: CodeNotFound}) true for every error of that code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// Invalid is the error for a value that field cannot have; allowed says what it can.
func Invalid(field, value, allowed string) *Error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s: %q is not allowed", field, value), Reason: "it must be " + allowed, Field: field}
}

// NotFound is the error for a thing that does not exist; kind is a noun ("peer"), list the command that lists them.
func NotFound(kind, name, list string) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("no %s %q here", kind, name), Do: fmt.Sprintf("`%s` lists what there is", list)}
}

package api

import "time"

// AwakeOptions is the body of the call that keeps this machine awake, or lets it sleep again. One of the three must be said; with the first two it is
// whichever comes first.
type AwakeOptions struct {
	UntilGuestsEnd bool     `json:"untilGuestsEnd,omitempty"`
	For            Duration `json:"for,omitzero"` // MostAwake at most
	Off            bool     `json:"off,omitempty"`
}

// LeastAwake and MostAwake bound how long a machine is kept awake by one call.
const (
	LeastAwake = Duration(time.Minute)
	MostAwake  = Duration(24 * time.Hour)
)

// Check says what is wrong with the options.
func (o AwakeOptions) Check() error {
	switch {
	case o.Off && (o.UntilGuestsEnd || o.For != 0):
		return &Error{Code: CodeInvalid, Message: "it can be kept awake, or let sleep, not both", Field: "off"}
	case !o.Off && !o.UntilGuestsEnd && o.For == 0:
		return &Error{Code: CodeInvalid, Message: "nothing says how long it is to be kept awake", Reason: "one of untilGuestsEnd, for and off must be there"}
	case o.For != 0 && (o.For < LeastAwake || o.For > MostAwake):
		return Invalid("for", time.Duration(o.For).String(), "a length of time from 1m to 24h, such as 2h")
	}
	return nil
}

// Awake says whether this machine is kept awake, by its owner's word.
type Awake struct {
	Kept           bool      `json:"kept"`
	Since          time.Time `json:"since,omitzero"`
	Until          time.Time `json:"until,omitzero"`           // at the latest
	UntilGuestsEnd bool      `json:"untilGuestsEnd,omitempty"` // and no longer than that
}

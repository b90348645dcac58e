package api

import (
	"cmp"
	"time"
)

// The modes. In between, a switch is under way: Status.Tether says at which step.
const (
	Autonomous  Mode = "Autonomous" // the local API server and scheduler decide
	Tethering   Mode = "Tethering"
	Tethered    Mode = "Tethered" // the company's cluster decides
	Untethering Mode = "Untethering"
)

// Tether is how the mode stands while it is not Autonomous.
type Tether struct {
	Peer  string    `json:"peer"`           // the company, as it is called here
	Step  string    `json:"step"`           // of the switch, a word: see core/mode
	Why   string    `json:"why,omitempty"`  // one sentence: what it waits for, or what is wrong
	Since time.Time `json:"since,omitzero"` // the time of the last change of mode or step
	// DownSince is when the company could not be reached any more; zero while it answers.
	DownSince time.Time `json:"downSince,omitzero"`
	// Until is when this laptop takes back control by itself, if the company does not answer before; zero: never.
	Until time.Time `json:"until,omitzero"`
	// User is who the users of this laptop are at the company; Namespaces where they may work, "team-a (edit)".
	User       string       `json:"user,omitempty"`
	Namespaces List[string] `json:"namespaces"`
	Code       string       `json:"code,omitempty"` // six digits to compare, while the company's owner is asked
}

// steps are those of a switch, in words that go on from "tethering to corp: ".
var steps = map[string]string{
	"asking": "asking whether it runs this laptop", "stopping": "stopping what decides here", "draining": "ending your pods",
	"joining": "joining its cluster", "leading": "leading kubectl there", "leaving": "waiting until it has taken away what it runs here",
	"ending": "ending the contract", "starting": "starting what decides here", "returning": "leading kubectl home",
}

// Doing says in words at which step a switch is, and what it waits for.
func (t *Tether) Doing() string {
	words := cmp.Or(steps[t.Step], t.Step)
	switch {
	case t.Why == "":
		return words
	case words == "":
		return t.Why
	}
	return words + ": " + t.Why
}

// LocalWorkloads is what becomes of the pods that run here when the laptop is tethered.
type LocalWorkloads string

// The choices.
const (
	KeepWorkloads  LocalWorkloads = "keep"  // they run on, and what they request is not the company's
	DrainWorkloads LocalWorkloads = "drain" // they are ended first; what makes them makes them again after the tether
)

// TetherOptions are those of a switch to Tethered.
type TetherOptions struct {
	Peer           string         `json:"peer"`                     // as PathAsk names it
	LocalWorkloads LocalWorkloads `json:"localWorkloads,omitempty"` // empty: keep
	Code           string         `json:"code,omitempty"`           // confirms beforehand, as PeerAsk
	ID             string         `json:"id,omitempty"`
}

// Check says what is wrong with the options: nil or an *Error.
func (o *TetherOptions) Check() error {
	switch o.LocalWorkloads {
	case "", KeepWorkloads, DrainWorkloads:
		return nil
	}
	return Invalid("localWorkloads", string(o.LocalWorkloads), "keep or drain")
}

// TetherCheck is what a switch to Tethered would mean, and what stands in its way.
type TetherCheck struct {
	Peer     string        `json:"peer"`
	Blockers List[Problem] `json:"blockers"` // what is in the way and what to do about each; none: it can be done
	Effects  List[string]  `json:"effects"`  // what would happen, in sentences, for the owner to read before he says yes
}

// TetherRole is what a cluster is in a tether.
type TetherRole string

// The roles.
const (
	Laptop  TetherRole = "laptop"  // the other runs it
	Company TetherRole = "company" // it runs the other
)

// PeerTether is how a tether with a peer stands.
type PeerTether struct {
	Role  TetherRole `json:"role"`           // of this cluster
	Step  string     `json:"step"`           // a word: of a laptop see core/mode; of a company accepted, joining, tethered, lost or ending
	Why   string     `json:"why,omitempty"`  // one sentence
	Since time.Time  `json:"since,omitzero"` // the time of the last change of step
}

// UntetherOptions are those of a switch back to Autonomous.
type UntetherOptions struct {
	Force   bool          `json:"force,omitempty"`   // do not wait for the company to take away what it runs here
	Timeout time.Duration `json:"timeout,omitempty"` // how long to wait for that, in nanoseconds; 0: two minutes, or three seconds while it does not answer
}

// Check says what is wrong with the options: nil or an *Error.
func (o *UntetherOptions) Check() error {
	if o.Timeout < 0 || o.Timeout > maxUntether {
		return Invalid("timeout", o.Timeout.String(), "a time up to 24h; 0 is the usual one")
	}
	return nil
}

// maxUntether bounds how long a switch back may wait: a laptop that waits longer is in nobody's hands.
const maxUntether = 24 * time.Hour

package mode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/durable"
	"kith.dev/core/trust/identity"
)

const (
	journalVersion = 1
	maxJournal     = 64 << 10 // bytes
	maxNamed       = 64       // namespaces, and guests that were cut, which a journal names
)

// journal is the state of a switch or a tether, written to the disk before a step begins; without one the laptop is autonomous. It is
// immutable: a new one replaces it.
type journal struct {
	Version int       `json:"version"`
	Goal    api.Mode  `json:"goal"`  // Tethered or Autonomous
	Step    step      `json:"step"`  // that is begun, or is about to be
	Since   time.Time `json:"since"` // of the step

	Peer    string `json:"peer"`    // the company, by name
	ID      string `json:"id"`      // of it
	Attempt int64  `json:"attempt"` // Peer.spec.request.attempt of this tether; tells one tether from another

	LocalWorkloads api.LocalWorkloads `json:"localWorkloads,omitempty"`
	Confirmed      bool               `json:"confirmed,omitempty"` // the owner gave the company's ID: there is no code to compare
	Former         string             `json:"former,omitempty"`    // revision of the contract with the company that was in force before
	Held           bool               `json:"held,omitempty"`      // the front door has led to the company since this switch

	User       string    `json:"user,omitempty"`       // name under which the company's API server knows this laptop's users
	Namespaces []string  `json:"namespaces,omitempty"` // "team-a (edit)"
	Down       time.Time `json:"down,omitzero"`        // since when the company does not answer

	Why     string        `json:"why,omitempty"`     // why the laptop is being untethered, unless its owner wanted it
	Problem api.Code      `json:"problem,omitempty"` // with Why
	Do      string        `json:"do,omitempty"`      // with Why
	Force   bool          `json:"force,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // nanoseconds that leaving may take; 0: the default, which depends on whether the company answers
	Cut     []string      `json:"cut,omitempty"`     // guests, "team-a/web-0", that ran when their contract was ended here
	CutMore int           `json:"cutMore,omitempty"` // how many more there were
}

// to gives the journal for another step.
func (j *journal) to(s step) *journal {
	next := *j
	next.Step, next.Since = s, now()
	return &next
}

// back gives the journal for the first step of untethering.
func (j *journal) back() *journal {
	next := j.to(stages[j.Step].back)
	next.Goal = api.Autonomous
	return next
}

// now is the wall clock time: the monotonic clock of time.Now stands still while the laptop sleeps.
func now() time.Time { return time.Now().Round(0) }

// parseJournal reads one journal and nothing else.
func parseJournal(data []byte) (*journal, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if version.Version > journalVersion {
		return nil, fmt.Errorf("a newer Kith wrote it: its version is %d, and this Kith knows %d", version.Version, journalVersion)
	}
	j := &journal{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(j); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is damaged: there is more in it than one object")
	}
	return j, j.check()
}

func (j *journal) check() error {
	stage, known := stages[j.Step]
	_, err := identity.ParseID(j.ID)
	switch {
	case j.Version != journalVersion:
		return fmt.Errorf("it is damaged: version %d", j.Version)
	case !known:
		return fmt.Errorf("it is damaged: there is no step %.40q", j.Step)
	case j.Goal != api.Tethered && j.Goal != api.Autonomous, stage.goal() != j.Goal:
		return fmt.Errorf("it is damaged: the step %s does not lead to %.40q", j.Step, j.Goal)
	case j.Peer == "" || err != nil:
		return errors.New("it is damaged: it does not say with whom")
	case len(j.Namespaces) > maxNamed || len(j.Cut) > maxNamed:
		return errors.New("it is damaged: it names too much")
	}
	return nil
}

// readJournal gives nil when there is none.
func readJournal(path string) (*journal, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read whether this laptop is tethered: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err == nil && len(data) > maxJournal {
		err = errors.New("it is damaged: it is too long")
	}
	var j *journal
	if err == nil {
		j, err = parseJournal(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether this laptop is tethered, in %s: %w (kithd does not guess who decides here: bring the file back from a "+
			"backup, or the newer Kith; or move it away, and this laptop is autonomous when kithd starts: then `kith unpeer` the company)", path, err)
	}
	return j, nil
}

// writeJournal is atomic and on the disk when it returns: the loss of power leaves the former journal or the whole new one. nil removes it.
func writeJournal(path string, j *journal) error {
	if j == nil {
		return durable.Remove(path)
	}
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'), 0o600)
}

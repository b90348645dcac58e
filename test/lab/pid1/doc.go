// Package pid1 is the first process of a lab laptop: what firmware, kernel and systemd are to a real one. It makes the
// laptop's view of the machine (mounts, cgroups, host name), reaps orphans, and keeps kithd running. `kith-lab init`
// is its only caller; test/lab starts that in fresh namespaces and talks to it by two pipes and a socket.
//
// It must never change anything outside its own namespaces, nor run a second program besides the daemon: each exit
// status it reaps is the daemon's or an orphan's.
package pid1

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"kith.dev/test/lab/cgroups"
)

// Spec says what laptop to be. test/lab writes it as JSON to the file SpecFile in State.
type Spec struct {
	Lab  string `json:"lab"`
	Name string `json:"name"`
	// State is the laptop's directory of run-time state on the machine; inside the laptop it is /run/lab.
	State string `json:"state"`
	// Disk is the laptop's directory of everything that survives a power loss; empty for the LAN itself, which has none.
	Disk string `json:"disk,omitempty"`
	// Bin is the directory of Kith's binaries; it keeps its path inside.
	Bin string `json:"bin,omitempty"`
	// Daemon is the command to keep running; empty for none.
	Daemon []string `json:"daemon,omitempty"`
	// Env is the daemon's environment, KEY=value.
	Env    []string      `json:"env,omitempty"`
	Cgroup cgroups.Group `json:"cgroup"`
}

// Files of the state directory.
const (
	SpecFile   = "spec.json"
	StatusFile = "status.json"
	SocketFile = "init.sock"
	LogFile    = "init.log"
)

// Inside is where a laptop sees its state directory.
const Inside = "/run/lab"

// DaemonLog is the daemon's log inside the laptop, what the journal is to a real one.
const DaemonLog = "/var/log/kith/kithd.log"

// DaemonState is what the supervisor does with the daemon.
type DaemonState string

// The states of the daemon.
const (
	DaemonNone     DaemonState = "none"    // the laptop has no daemon
	DaemonRunning  DaemonState = "running" //
	DaemonWaiting  DaemonState = "waiting" // it died and is started again after RestartAfter
	DaemonStopping DaemonState = "stopping"
	DaemonStopped  DaemonState = "stopped" // on request; stays so
)

// Status is written to StatusFile at every change.
type Status struct {
	Up     time.Time   `json:"up"`
	Daemon DaemonState `json:"daemon"`
	// PID is the daemon's number inside the laptop.
	PID      int       `json:"pid,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Restarts int       `json:"restarts"`
	LastExit string    `json:"lastExit,omitempty"`
}

// The pipes to the process that starts the laptop, as file descriptors of init.
const (
	goFD     = 3 // closed unread: the starter died; one byte: network is plugged in, go on
	reportFD = 4 // one line: "ok", or why not
)

func readSpec(path string) (Spec, error) {
	var s Spec
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read laptop spec %s: %w", path, err)
	}
	return s, nil
}

package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// CheckState is the outcome of a check.
type CheckState string

// The outcomes.
const (
	CheckOK      CheckState = "ok"
	CheckWarning CheckState = "warning" // something will not work as well as it could, or not for long
	CheckFail    CheckState = "fail"    // something does not work
)

// The areas that checks are about.
const (
	AreaDaemon    = "daemon"    // does kithd run
	AreaEngine    = "engine"    // the local Kubernetes
	AreaPorts     = "ports"     // who listens where
	AreaAddresses = "addresses" // ranges of addresses and the networks around
	AreaNetwork   = "network"   // the LAN: multicast, MTU, DNS, firewalls
	AreaKernel    = "kernel"    // what the kernel must have and do
	AreaDisk      = "disk"
	AreaPeer      = "peer" // the way to a peer, end to end
)

// Finding is one thing that kith doctor looked at. What, why and what to do are sentences for people; scripts go by Area,
// Name and Peer, which are stable.
type Finding struct {
	Area  string     `json:"area"`
	Peer  string     `json:"peer,omitempty"` // its name, in AreaPeer
	Name  string     `json:"name"`           // "api-server", "handshake"
	State CheckState `json:"state"`
	What  string     `json:"what"`          // what was found
	Why   string     `json:"why,omitempty"` // the error, or what follows from it
	Do    string     `json:"do,omitempty"`
	// Fix is what kithd does about it when it is asked to (PathDoctorFix), as the commands that somebody else would type. Empty: it is not
	// safe to be done for the owner, who has to decide, or who set it up so.
	Fix []string `json:"fix,omitempty"`
}

// EnvAgentLease is the variable of the environment by which a program knows that it is in the container of a node's agent (`kithd node`), where no
// kithd listens: NAMESPACE/NAME of the Lease whose holder is the kithd that works. EnvAgentNode is the node. The chart sets both.
const (
	EnvAgentLease = "KITH_AGENT_LEASE"
	EnvAgentNode  = "NODE_NAME"
)

// DoctorFix says what is to be mended: names of findings, which are looked for anew. What is done about each is kithd's to know.
type DoctorFix struct {
	Findings []string `json:"findings"`
	// Shown are the commands that the owner was shown and said yes to. When others have become necessary since, nothing is done about that
	// finding. Nothing in it is ever carried out because it is here; without it, whatever the checks say now is done.
	Shown []string `json:"shown,omitempty"`
}

// FixOf asks for what is safe to be mended of what was found, by the commands that it says.
func FixOf(found []Finding) DoctorFix {
	fix := DoctorFix{Findings: Fixable(found)}
	for _, f := range found {
		fix.Shown = append(fix.Shown, f.Fix...)
	}
	return fix
}

// MaxFixes bounds the findings of one DoctorFix.
const MaxFixes = 64

// Check gives an error when f names nothing, or what cannot be the name of a finding.
func (f DoctorFix) Check() error {
	if len(f.Findings) == 0 || len(f.Findings) > MaxFixes {
		return Invalid("findings", strings.Join(f.Findings[:min(len(f.Findings), MaxFixes)], ","), fmt.Sprintf("1 to %d names of findings", MaxFixes))
	}
	for _, name := range f.Findings {
		if !findingName.MatchString(name) {
			return Invalid("findings", name, "names of findings, as `kith doctor -o json` has them")
		}
	}
	if len(f.Shown) > maxShown {
		return Invalid("shown", fmt.Sprintf("%d commands", len(f.Shown)), fmt.Sprintf("up to %d commands", maxShown))
	}
	return nil
}

const maxShown = 16 * MaxFixes

var findingName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// Fixed is what was done about one finding.
type Fixed struct {
	Finding Finding  `json:"finding"`         // as it was found
	Did     []string `json:"did"`             // the commands that were carried out
	Error   string   `json:"error,omitempty"` // why one of them failed; those after it were left out
	Now     Finding  `json:"now"`             // the same check again, afterwards
}

// Mended reports whether the check finds nothing any more.
func (f Fixed) Mended() bool { return f.Error == "" && f.Now.State == CheckOK }

// Fixable are the names of the findings that can be mended.
func Fixable(all []Finding) (names []string) {
	for _, f := range all {
		if len(f.Fix) > 0 && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

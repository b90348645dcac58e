// Package doctor looks for what keeps Kith from working, one check after the other, and says of each what it found,
// why, and what to do about it.
//
// The checks of the machine (socket, ports, ranges, LAN, kernel, disk) need nobody: kithd runs them, and the command line does when no
// kithd answers. Those of a peer go its whole way, from its name's addresses to a ping through the tunnel; the daemon
// gives what it knows and holds. Checks look and never change anything, end within seconds, and each failure names
// the step that failed.
//
// A check says whether what it found is safe to be mended for the owner, and by which commands. Machine.Mend carries those out, kithd
// alone calls it, with names: no command ever comes from outside of a check. What the owner set up otherwise is not mended.
package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/config"
)

// Machine is this machine, as Kith is configured on it.
type Machine struct {
	config.Config
	Guests map[string][]netip.Prefix // ranges agreed on with the peers of these names, for the guests of each side at the other
	PID    int                       // of the kithd that asks; 0 when none runs
}

// Groups are the checks of the machine.
func (m Machine) Groups() []Group {
	return []Group{m.socket, m.ports, m.addresses, m.network, m.kernel, m.disk}
}

// Group is checks that are made one after the other. It reports each as soon as it is known, and ends soon after ctx does.
type Group func(ctx context.Context, report func(api.Finding))

const (
	atOnce = 8
	// patience bounds a group: all its checks together.
	patience = 45 * time.Second
)

// Run makes the checks of all groups, several groups at a time, and reports them in the groups' order, from this
// goroutine. It returns them all.
func Run(ctx context.Context, report func(api.Finding), groups ...Group) []api.Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	found := make([]chan api.Finding, len(groups))
	turn := make(chan struct{}, atOnce)
	for i := range groups {
		found[i] = make(chan api.Finding, 64)
	}
	go func() {
		for i, group := range groups {
			turn <- struct{}{}
			go func() {
				defer func() { close(found[i]); <-turn }()
				bounded, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				group(bounded, func(c api.Finding) { found[i] <- c })
			}()
		}
	}()
	var all []api.Finding
	for _, checks := range found {
		for c := range checks {
			report(c)
			all = append(all, c)
		}
	}
	return all
}

// about makes checks of one area, and of one peer.
type about struct{ area, peer string }

func (a about) ok(name, format string, args ...any) api.Finding {
	return api.Finding{Area: a.area, Peer: a.peer, Name: name, State: api.CheckOK, What: fmt.Sprintf(format, args...)}
}

func (a about) warn(name, what, why, do string) api.Finding {
	return api.Finding{Area: a.area, Peer: a.peer, Name: name, State: api.CheckWarning, What: what, Why: why, Do: do}
}

func (a about) fail(name, what, why, do string) api.Finding {
	return api.Finding{Area: a.area, Peer: a.peer, Name: name, State: api.CheckFail, What: what, Why: why, Do: do}
}

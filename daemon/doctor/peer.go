package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/trust/identity"
)

// Peer is a peer to look at, with what the daemon knows and holds of it.
type Peer struct {
	Name      string
	ID        identity.ID
	Me        *identity.Identity
	Addresses []string // host:port, best first
	By        string   // who passes the connection on that there is: a common peer, or the peer itself, when it called back; "" when it was dialled

	Contracts []peering.ContractRef // in force here
	Unread    error                 // why those are not known; nil: they are
	// Theirs asks the peer which contracts it holds to be in force.
	Theirs func(context.Context) ([]peering.ContractRef, error)

	NoNetwork bool // by the contract there is no tunnel
	HasTunnel bool // the gateway knows it
	Tunnel    Tunnel
	Port      uint16 // UDP, of WireGuard here
	// Ping sends a packet of so many bytes (0: the least) through the tunnel and waits for it to come back.
	Ping func(ctx context.Context, bytes int) (time.Duration, error)

	// Node reads the virtual node; nil when this cluster gets nothing from the peer.
	Node func(context.Context) (Node, error)
}

// Tunnel is the state of WireGuard towards a peer.
type Tunnel struct {
	Up            bool
	LastHandshake time.Time // zero: never since the gateway started
	Why           string    // it is not up
	Endpoint      string
	Way           api.Tunnel // by which way packets go, and why by no better one
	MTU           int
}

// Check is the group of the peer's checks: its way from outside to inside, each step as far as the one before it allows.
func (p Peer) Check(ctx context.Context, report func(api.Finding)) {
	in := about{area: api.AreaPeer, peer: p.Name}
	answers := p.reach(ctx, in, report)
	p.contracts(ctx, in, answers, report)
	if len(p.Contracts) == 0 && (p.Unread == nil || !p.HasTunnel) {
		return
	}
	p.tunnel(ctx, in, report)
	if p.Node == nil {
		return
	}
	switch n, err := bounded(ctx, p.Node); {
	case err != nil:
		report(in.fail("node", "the node of "+p.Name+" cannot be read", err.Error(), "`kith peers "+p.Name+"` says how far the relation is"))
	case !n.Ready:
		report(in.fail("node", "node "+n.Name+" is not Ready: no pod goes there", n.Why, "mend what is said of "+p.Name+" above"))
	default:
		report(in.ok("node", "node %s is Ready", n.Name))
	}
}

// reach tries all addresses, and tells of the one that led farthest.
func (p Peer) reach(ctx context.Context, in about, report func(api.Finding)) (answers bool) {
	if len(p.Addresses) == 0 && p.By != "" {
		report(p.passedOn(in, "no address of it is known"))
		return true
	}
	if len(p.Addresses) == 0 {
		report(in.fail("address", "no address of "+p.Name+" is known", "it is not on this network, and none was typed in", "`kith peer add HOST:PORT` tells one"))
		return false
	}
	probes := make([]peering.Probe, min(len(p.Addresses), atOnce))
	done := make(chan struct{})
	for i := range probes {
		go func() {
			probes[i] = peering.ProbeAddress(ctx, p.Me, p.ID, p.Addresses[i])
			done <- struct{}{}
		}()
	}
	for range probes {
		<-done
	}
	best := slices.MaxFunc(probes, func(a, b peering.Probe) int { return rank(a.Failed) - rank(b.Failed) })
	why := ""
	if best.Err != nil {
		why = reasons(probes)
	}
	if p.By != "" && best.Failed != peering.StepDone {
		report(p.passedOn(in, why))
		return true
	}
	for _, s := range steps {
		if best.Failed == s.step {
			failed, do := s.failed, s.do(p, best)
			if brokenOff(best.Err) {
				failed, do = "%s at %s breaks the connection off", "it holds back who asks it very often: wait a minute; if it stays so, see the log of kithd there"
			}
			report(in.fail(s.name, fmt.Sprintf(failed, p.Name, best.Address), why, do))
			return false
		}
		report(in.ok(s.name, "%s", s.passed(p, best)))
	}
	if best.HasClock {
		report(p.clock(in, best.Clock))
	}
	return true
}

// passedOn tells how a peer is reached that cannot be dialled.
func (p Peer) passedOn(in about, why string) api.Finding {
	if p.By == p.Name {
		return in.ok("way", "%s cannot be dialled (%s), and calls back", p.Name, why)
	}
	return in.ok("way", "%s cannot be dialled (%s): %s passes the connection on, and reads nothing of it", p.Name, why, p.By)
}

// brokenOff reports whether the other side took the connection and ended it without a word. Its reset may come before this side has seen that
// it took it.
func brokenOff(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reasons are those of all addresses.
func reasons(probes []peering.Probe) string {
	var all []string
	for _, p := range probes {
		all = append(all, p.Address+": "+p.Why())
	}
	return strings.Join(all, "; ")
}

// The clocks may differ by ten minutes until a contract is refused (core/agree/relations).
const (
	clockFail = 10 * time.Minute
	clockWarn = 30 * time.Second
)

func (p Peer) clock(in about, ahead time.Duration) api.Finding {
	do := "have both machines set their clocks by the network: timedatectl set-ntp true"
	switch sync, known := synchronised(); {
	case known && !sync:
		do += "; this one is not set by the network now"
	case known:
		do += "; this one is set by the network now"
	}
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	what := fmt.Sprintf("the clock of %s is %s %s this one", p.Name, ahead.Abs().Round(time.Second), way)
	switch off := ahead.Abs(); {
	case off > clockFail:
		return in.fail("clock", what, "contracts would seem to begin in the future or to be over", do)
	case off > clockWarn:
		return in.warn("clock", what, "from 10 minutes on, contracts are refused", do)
	}
	return in.ok("clock", "the clocks of %s and this machine agree", p.Name)
}

// contracts compares which contracts both hold to be in force.
func (p Peer) contracts(ctx context.Context, in about, answers bool, report func(api.Finding)) {
	if !answers {
		for _, c := range p.Contracts {
			report(in.warn("contract", fmt.Sprintf("contract %s is in force here; whether it is at %s is not known", c.ID, p.Name), p.Name+" cannot be asked", "mend what is said of "+p.Name+" above"))
		}
		return
	}
	theirs, err := bounded(ctx, p.Theirs)
	if err != nil {
		if len(p.Contracts) > 0 {
			report(in.fail("contract", p.Name+" does not say which contracts are in force", err.Error(), "see its log, and whether its Kubernetes is ready: kith status there"))
		}
		return
	}
	if p.Unread != nil {
		for _, t := range theirs {
			report(in.warn("contract", fmt.Sprintf("contract %s is in force at %s; whether it is here is not known", t.ID, p.Name), p.Unread.Error(), "mend what is said of this laptop's Kubernetes"))
		}
		return
	}
	if len(p.Contracts) == 0 && len(theirs) == 0 {
		report(in.ok("contract", "there is no contract with %s", p.Name))
	}
	find := func(list []peering.ContractRef, id string) (peering.ContractRef, bool) {
		i := slices.IndexFunc(list, func(c peering.ContractRef) bool { return c.ID == id })
		if i < 0 {
			return peering.ContractRef{}, false
		}
		return list[i], true
	}
	for _, c := range p.Contracts {
		switch t, known := find(theirs, c.ID); {
		case !known:
			report(in.fail("contract", fmt.Sprintf("contract %s is in force here and not at %s", c.ID, p.Name), "it ended there while the two could not speak", "it ends here within a minute; if not, kith unpeer "+p.Name))
		case t.Revision != c.Revision:
			report(in.warn("contract", fmt.Sprintf("contract %s is of revision %d here and %d at %s", c.ID, c.Revision, t.Revision, p.Name), "a change did not arrive", "kith unpeer "+p.Name+", and ask again"))
		default:
			report(in.ok("contract", "contract %s, revision %d, is in force on both sides; this cluster is the %s", c.ID, c.Revision, c.Role))
		}
	}
	for _, t := range theirs {
		if _, known := find(p.Contracts, t.ID); !known {
			report(in.warn("contract", fmt.Sprintf("contract %s is in force at %s and not here", t.ID, p.Name), "it ended here while the two could not speak", "it ends there when the two compare their books again"))
		}
	}
}

func (p Peer) tunnel(ctx context.Context, in about, report func(api.Finding)) {
	open := fmt.Sprintf("let UDP through on both sides: port %d here", p.Port)
	if p.Tunnel.Endpoint != "" {
		open += ", " + p.Tunnel.Endpoint + " there"
	}
	switch {
	case p.NoNetwork:
		report(in.ok("handshake", "there is no tunnel to %s, by the contract", p.Name))
		return
	case !p.HasTunnel:
		report(in.fail("handshake", "there is no tunnel to "+p.Name, "the two did not exchange keys and addresses yet", "they do when "+p.Name+" answers"))
		return
	case p.Tunnel.LastHandshake.IsZero():
		report(in.fail("handshake", "the tunnel to "+p.Name+" never came up", "no handshake since the gateway started", open))
	case !p.Tunnel.Up:
		report(in.fail("handshake", "the tunnel to "+p.Name+" is down", p.Tunnel.Why, open))
	case p.Tunnel.Way.Way == api.TunnelCarried:
		report(in.ok("handshake", "the tunnel to %s is %s: %s; the last handshake was %s ago; it would be faster if you %s",
			p.Name, p.Tunnel.Way.Says(), p.Tunnel.Way.Reason, time.Since(p.Tunnel.LastHandshake).Round(time.Second), open))
	default:
		report(in.ok("handshake", "the last handshake of the tunnel was %s ago, with %s: %s", time.Since(p.Tunnel.LastHandshake).Round(time.Second), p.Tunnel.Endpoint,
			cmp.Or(p.Tunnel.Way.Says(), string(api.TunnelDirect))))
	}
	rtt, err := bounded(ctx, func(ctx context.Context) (time.Duration, error) { return p.Ping(ctx, 0) })
	if err != nil {
		report(in.fail("ping", p.Name+" does not answer through the tunnel", err.Error(), open))
		return
	}
	report(in.ok("ping", "%s answers through the tunnel in %s", p.Name, short(rtt)))
	if _, err := bounded(ctx, func(ctx context.Context) (time.Duration, error) { return p.Ping(ctx, p.Tunnel.MTU) }); err != nil {
		report(in.warn("mtu", fmt.Sprintf("packets of %d bytes do not pass the tunnel to %s", p.Tunnel.MTU, p.Name), err.Error()+
			": something on the way takes smaller ones only, and does not say so", "lower the MTU of this machine's network device"))
		return
	}
	report(in.ok("mtu", "packets of %d bytes pass the tunnel", p.Tunnel.MTU))
}

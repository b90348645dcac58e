package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
)

// steps are those of a peering.Probe, as they are told.
var steps = []struct {
	step   peering.Step
	name   string
	failed string // of %s the peer, %s the address
	do     func(Peer, peering.Probe) string
	passed func(Peer, peering.Probe) string
}{
	{peering.StepResolve, "address", "the name in %s's address %s is not found",
		func(Peer, peering.Probe) string { return "is it spelled right, and does DNS work here?" },
		func(p Peer, at peering.Probe) string {
			text := fmt.Sprintf("%s is known at %s", p.Name, at.Address)
			if _, err := netip.ParseAddrPort(at.Address); err != nil {
				text += ", which is " + join(at.Resolved)
			}
			return text
		}},
	{peering.StepConnect, "connect", "no TCP connection to %s at %s comes about",
		func(p Peer, at peering.Probe) string {
			if errors.Is(at.Err, syscall.ECONNREFUSED) {
				return "is kithd running there?"
			}
			return "is " + p.Name + " switched on and on this network, and does its firewall let the port through?"
		},
		func(_ Peer, at peering.Probe) string {
			return fmt.Sprintf("TCP connects to %s in %s", at.Address, short(at.TCP))
		}},
	{peering.StepKey, "key", "the one who answers for %s at %s is not it",
		func(p Peer, at peering.Probe) string {
			var mismatch *identity.MismatchError
			if errors.As(at.Err, &mismatch) {
				return "ask its owner: with a new laptop, or a new installation, `kith forget " + p.Name + "` and ask anew; else somebody is between the two"
			}
			return "what listens there is no Kith, or does not get through"
		},
		func(p Peer, _ peering.Probe) string { return "it has the key of " + p.Name + ", " + p.ID.Short() }},
	{peering.StepHello, "protocol", "%s at %s does not speak as this Kith does",
		func(_ Peer, at peering.Probe) string {
			if errors.Is(at.Err, &peering.Problem{Code: peering.CodeVersion}) {
				return "bring both to the same version of Kith"
			}
			return "see the log of kithd there"
		},
		func(_ Peer, at peering.Probe) string {
			return fmt.Sprintf("it speaks %s, as kithd %s", peering.Protocol, at.Hello.Version)
		}},
}

// rank is how far a step is.
func rank(s peering.Step) int {
	order := []peering.Step{peering.StepResolve, peering.StepConnect, peering.StepKey, peering.StepHello, peering.StepDone}
	return slices.Index(order, s)
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

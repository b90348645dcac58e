package provider

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire"
)

const (
	// maxPending bounds the questions that may wait for the owner's answer at once.
	maxPending = 64
	// maxRequests bounds the PeeringRequests here, with those that were answered and not cleared away yet.
	maxRequests = 2 * maxPending
)

// asker is a PeeringRequest as one of those that share the room there is.
type asker struct {
	request *v1alpha1.PeeringRequest
	from    netip.Prefix // see wire.Neighbourhood
	known   bool         // the owner accepted its key once
	pending bool
}

// displaced says which pending requests are dropped for a new one, and whether there is room for it at all. If there are too many, the oldest
// request of the address with the most requests is dropped; if that is the new request's own address, the new one gets no more room. So a caller
// with few addresses, under however many keys, only displaces itself. A known key's request is never dropped for a stranger's.
func displaced(all []asker, newcomer asker) (out []*v1alpha1.PeeringRequest, ok bool) {
	oldestFirst := slices.SortedStableFunc(slices.Values(all), func(a, b asker) int {
		return a.request.CreationTimestamp.Compare(b.request.CreationTimestamp.Time)
	})
	pending := 0
	from := map[netip.Prefix]int{}
	for _, a := range oldestFirst {
		if a.pending {
			pending++
			if !a.known {
				from[a.from]++
			}
		}
	}
	for kept := len(all); kept >= maxRequests; kept-- { // answered: at most its asker hears "expired" instead
		i := slices.IndexFunc(oldestFirst, func(a asker) bool { return !a.pending && !a.known })
		if i < 0 {
			break
		}
		out = append(out, oldestFirst[i].request)
		oldestFirst = slices.Delete(oldestFirst, i, i+1)
	}
	for ; pending >= maxPending; pending-- { // more than once when somebody else made requests
		most := 0
		for _, n := range from {
			most = max(most, n)
		}
		if most == 0 || !newcomer.known && from[newcomer.from] >= most {
			return nil, false
		}
		i := slices.IndexFunc(oldestFirst, func(a asker) bool { return a.pending && !a.known && from[a.from] == most })
		out = append(out, oldestFirst[i].request)
		from[oldestFirst[i].from]--
		oldestFirst = slices.Delete(oldestFirst, i, i+1)
	}
	return out, true
}

// makeRoom takes away the older questions of the caller, and those that it may displace. The caller holds p.asking.
func (p *Provider) makeRoom(ctx context.Context, caller peering.Caller) error {
	now := p.Client.Now()
	known := map[string]bool{}
	for _, peer := range now.Peers {
		known[peer.Spec.ID] = sharing.Accepted(peer)
	}
	var all []asker
	var over []*v1alpha1.PeeringRequest
	for _, r := range now.Requests {
		if r.Spec.PeerID == caller.ID.String() {
			over = append(over, r)
			continue
		}
		all = append(all, asker{request: r, from: wire.Neighbourhood(addressOf(r)), known: known[r.Spec.PeerID], pending: Pending(r)})
	}
	gone, ok := displaced(all, asker{from: wire.Neighbourhood(caller.Addr.Addr()), known: known[caller.ID.String()]})
	if !ok {
		return peering.Refuse(peering.CodeRateLimited, "too many requests wait for an answer here already", "try again later")
	}
	for _, r := range gone {
		p.Log.Info("request gave way to a newer one", "peer", r.Spec.PeerName, "id", r.Spec.PeerID, "request", r.Name, "addr", r.Spec.Address)
	}
	for _, r := range append(over, gone...) {
		if err := client.IgnoreNotFound(p.Client.Delete(ctx, r)); err != nil {
			return fmt.Errorf("make room for the request: %w", err)
		}
	}
	return nil
}

// addressOf is where a request came from; the zero Addr when that is not known.
func addressOf(r *v1alpha1.PeeringRequest) netip.Addr {
	if at, err := netip.ParseAddrPort(r.Spec.Address); err == nil {
		return at.Addr()
	}
	addr, _ := netip.ParseAddr(r.Spec.Address)
	return addr
}

// from is where a caller is, as a request keeps it.
func from(caller peering.Caller) string {
	if addr := caller.Addr.Addr(); addr.IsValid() {
		return addr.Unmap().String()
	}
	return ""
}

// maxPorts of a peer's own telling are kept.
const maxPorts = 2

// reachableAt are the endpoints of an asker that this cluster may dial: the address that it came from, at the ports that it
// tells. An address of its telling could be anybody's: a router's, a service's that listens on this machine alone.
func reachableAt(from netip.Addr, told []string) []string {
	var at []string
	if !from.IsValid() {
		return nil
	}
	for _, endpoint := range told {
		port, ok := portOf(endpoint)
		if e := netip.AddrPortFrom(from.Unmap(), port).String(); ok && len(at) < maxPorts && !slices.Contains(at, e) {
			at = append(at, e)
		}
	}
	return at
}

func portOf(endpoint string) (uint16, bool) {
	_, text, err := net.SplitHostPort(endpoint)
	port, bad := strconv.ParseUint(text, 10, 16)
	return uint16(port), err == nil && bad == nil && port > 0
}

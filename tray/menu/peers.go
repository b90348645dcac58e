package menu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kith.dev/core/api"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// peers lists who is known, each with a submenu: what there is with it, and what can be done.
func (b *builder) peers() {
	b.line("peers")
	all := slices.Clone(b.Snapshot.Peers)
	if len(all) == 0 {
		b.say("peers", "No peers nearby")
	}
	slices.SortStableFunc(all, func(x, y api.Peer) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name)), strings.Compare(x.ID, y.ID))
	})
	shown, others := split(all, shownPeers)
	for _, p := range shown {
		b.peer(p)
	}
	if len(others) == 0 {
		return
	}
	b.submenu("peers/more", fmt.Sprintf("%d more peers", len(others)), func(b *builder) {
		n := min(len(others), mostPeers)
		for _, p := range others[:n] {
			if b.Shallow {
				b.flat(p)
			} else {
				b.peer(p)
			}
		}
		if rest := len(others) - n; rest > 0 {
			b.say("peers/rest", fmt.Sprintf("… and %d more: kith peers", rest))
		}
	})
}

// rank puts first who matters: those that wait for this owner, those that are used, those that use this cluster, those that could be asked.
func rank(p api.Peer) int {
	switch {
	case p.Confirm != nil:
		return 0
	case active(p.Outgoing) || p.Outgoing == api.StateRequested:
		return 1
	case active(p.Incoming) || p.Incoming == api.StateRequested:
		return 2
	case p.Reachable:
		return 3
	}
	return 4
}

// active tells whether there is a contract.
func active(s api.State) bool {
	switch s {
	case api.StateContracted, api.StateConnected, api.StateUnreachable, api.StateEnding:
		return true
	}
	return false
}

// stands says how it stands with a peer: "bob ▸ you use 0.3 of 0.8 CPU ◂ uses you: 7 pods".
func (b *builder) stands(p api.Peer) string {
	who := words.Name(p.Name)
	switch out, in := b.outgoing(p), b.incoming(p); {
	case b.Doing[p.ID] != "":
		return join(who, words.Text(b.Doing[p.ID])+"…")
	case out == "" && in == "":
		return join(who, between(p))
	default:
		return who + prefixed(" ▸ ", out) + prefixed(" ◂ ", in)
	}
}

// flat has what can be done below a line, not in a submenu.
func (b *builder) flat(p api.Peer) {
	b.say("peer/"+p.ID, b.stands(p))
	below := &builder{State: b.State}
	below.deeds(p)
	below.top(p)
	for _, i := range below.items {
		i.Label = "    " + i.Label
		b.add(i)
	}
}

// peer is a line with a submenu.
func (b *builder) peer(p api.Peer) {
	b.submenu("peer/"+p.ID, b.stands(p), func(b *builder) {
		b.deeds(p)
		b.line("peer/" + p.ID)
		b.say("id/"+p.ID, "Cluster "+words.Name(p.ShortID))
		if active(p.Outgoing) && len(p.Offered) > 0 {
			b.say("uses/"+p.ID, "You use "+words.Uses(p.Used, p.Offered))
		}
		if p.Pods.Abroad > 0 {
			b.say("abroad/"+p.ID, count(p.Pods.Abroad, "pod of yours runs there", "pods of yours run there"))
		}
		b.top(p)
	})
}

// top shows what pods use, where there may be any.
func (b *builder) top(p api.Peer) {
	if active(p.Outgoing) || active(p.Incoming) {
		b.click("top/"+p.ID, "See what pods use…", SeeTop, p.ID)
	}
}

// deeds are what the owner can do about a peer.
func (b *builder) deeds(p api.Peer) {
	who := words.Name(p.Name)
	if b.Doing[p.ID] != "" || !b.decides() { // nothing is asked, given or ended beside a tether
		return
	}
	switch {
	case p.Outgoing == api.StateRequested:
		b.click("withdraw/"+p.ID, "Withdraw the request", Withdraw, p.ID)
	case active(p.Outgoing) && len(p.Asked) > 0:
		b.click("withdraw/"+p.ID, "Withdraw the request for "+words.Text(api.Change(p.Offered, p.Asked, nil)), Withdraw, p.ID)
	case active(p.Outgoing), !p.Reachable:
	case p.Gives != nil && p.Gives.State == api.GivesSome:
		b.click("ask/"+p.ID, "Ask "+who+" for "+words.Amounts(p.Gives.Resources), Ask, p.ID)
	default:
		b.click("ask/"+p.ID, "Ask "+who+" for what it gives", Ask, p.ID)
	}
	b.tether(p)
	if held(p.Outgoing) || held(p.Incoming) {
		b.click("end/"+p.ID, "Unpeer "+who+"…", End, p.ID)
	}
}

// held reports whether there is a contract that nobody is ending.
func held(s api.State) bool { return active(s) && s != api.StateEnding }

// outgoing says what this cluster has from the peer.
func (b *builder) outgoing(p api.Peer) string {
	if p.Confirm != nil {
		return join("accepted, waits for you", until(p.Confirm.Expires))
	}
	switch p.Outgoing {
	case api.StateConnected:
		use := "you use it"
		if granted := p.Offered[api.CPU]; granted != "" {
			use = "you use " + words.Uses(api.Resources{api.CPU: p.Used[api.CPU]}, api.Resources{api.CPU: granted})
		}
		if runs(p) {
			use = join("run from here", pods(p))
		}
		if !p.Tunnel.Up && p.Network != api.NetworkNone {
			return join(use, "its tunnel is down")
		}
		return use
	case api.StateRequested:
		return join("waits for its owner", prefixed("code ", words.Code(p.Code)))
	case api.StateContracted:
		return "contract signed, the link is being made"
	case api.StateUnreachable:
		if runs(p) {
			return join("run from here, cannot be reached", pods(p))
		}
		return join("cannot be reached", pods(p))
	case api.StateEnding:
		return join("ending", pods(p))
	case api.StateDeclined:
		return cmp.Or(words.Text(p.Why), "declined")
	case api.StateExpired:
		return cmp.Or(words.Text(p.Why), "not answered in time")
	}
	return ""
}

// between says of a peer with which there is nothing what there could be.
func between(p api.Peer) string {
	switch {
	case !p.Reachable:
		return "does not answer"
	case p.Gives == nil:
		return "nearby"
	case p.Gives.State == api.GivesSome:
		return "would give " + words.Amounts(p.Gives.Resources)
	case p.Gives.State == api.GivesPaused:
		return "gives nothing now"
	}
	return "gives nothing"
}

// runs reports whether the peer is a laptop that this cluster runs.
func runs(p api.Peer) bool { return p.Tether != nil && p.Tether.Role == api.Company }

// runsThis reports whether the peer is the company that runs this laptop.
func runsThis(p api.Peer) bool { return p.Tether != nil && p.Tether.Role == api.Laptop }

func pods(p api.Peer) string { return some(p.Pods.Abroad, "pod there", "pods there") }

// incoming says what the peer has from this cluster.
func (b *builder) incoming(p api.Peer) string {
	switch p.Incoming {
	case api.StateRequested:
		if question.Compares(b.Snapshot, p) {
			return join("accepted here", "its owner compares the code "+words.Code(p.Code))
		}
		if slices.ContainsFunc(b.Snapshot.Requests, func(r api.Request) bool { return r.PeerID == p.ID && r.Direction == api.Incoming && r.Tether }) {
			return "asks this cluster to run it"
		}
		return "asks for resources"
	case api.StateConnected, api.StateContracted:
		if runsThis(p) {
			return "runs this laptop: " + guests(p)
		}
		return "uses you: " + guests(p)
	case api.StateUnreachable:
		if runsThis(p) {
			return "runs this laptop, cannot be reached"
		}
		return "used you, cannot be reached"
	case api.StateEnding:
		return "its pods here are leaving"
	}
	return ""
}

func guests(p api.Peer) string { return count(p.Pods.Guests, "pod", "pods") }

package menu

import (
	"cmp"
	"slices"
	"strings"

	"kith.dev/core/api"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// peers lists who is known; a click peers or unpeers.
func (b *builder) peers() {
	b.line("peers")
	all := slices.Clone(b.Snapshot.Peers)
	if len(all) == 0 {
		b.say("peers", "No peers nearby")
	}
	slices.SortStableFunc(all, func(x, y api.Peer) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name)), strings.Compare(x.ID, y.ID))
	})
	shown, hidden := fold(all, shownPeers, mostPeers, b.Open == FoldPeers)
	for _, p := range shown {
		b.peer(p)
	}
	b.more(FoldPeers, len(shown), len(all), hidden, "peer", "peers")
	if c := b.Snapshot.Status.Counts; c.PodsAbroad+c.Guests > 0 {
		b.say("pods", join(count(c.PodsAbroad, "pod abroad", "pods abroad"), count(c.Guests, "guest here", "guests here")))
	}
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

func (b *builder) peer(p api.Peer) {
	who := words.Name(p.Name)
	item := Item{ID: "peer/" + p.ID, Mark: Check, On: active(p.Outgoing), Label: join(who, b.outgoing(p), b.incoming(p))}
	item.Action = b.clickOn(p)
	item.Disabled = item.Action.Verb == Nothing
	b.add(item)
	if p.Confirm != nil && b.Doing[p.ID] == "" {
		b.click("confirm/"+p.ID, "    "+confirm(who, p.Confirm), Confirm, p.ID)
	}
	if active(p.Outgoing) && len(p.Asked) > 0 && b.Doing[p.ID] == "" {
		b.click("withdraw/"+p.ID, "    Withdraw the request for "+words.Text(api.Change(p.Offered, p.Asked, nil)), Withdraw, p.ID)
	}
	if !b.autonomous() {
		return
	}
	if b.Sure == p.ID && item.Action.Verb != Ask || b.Sure == p.ID && active(p.Incoming) {
		b.click("sure/"+p.ID, "    Really unpeer "+who+"? "+consequences(p), End, p.ID)
		b.click("keep/"+p.ID, "    Keep "+who, KeepPeer, p.ID)
		return
	}
	if item.Action.Verb == Ask && active(p.Incoming) && p.Incoming != api.StateEnding {
		b.click("end/"+p.ID, "    Stop sharing with "+who, leave(p), p.ID)
	}
}

// clickOn is what a click on a peer does.
func (b *builder) clickOn(p api.Peer) Action {
	switch {
	case b.Doing[p.ID] != "" || !b.usable():
		return Action{}
	case !b.autonomous(): // nothing is asked, given or ended beside the tether
		return Action{}
	case p.Outgoing == api.StateRequested:
		return Action{Withdraw, p.ID}
	case p.Outgoing == api.StateEnding:
		return Action{}
	case active(p.Outgoing):
		return Action{leave(p), p.ID}
	case !p.Reachable:
		return Action{}
	}
	return Action{Ask, p.ID}
}

// leave asks first when pods would have to move.
func leave(p api.Peer) Verb {
	if p.Pods.Abroad+p.Pods.Guests > 0 {
		return MaybeEnd
	}
	return End
}

func consequences(p api.Peer) string {
	home, leaves := some(p.Pods.Abroad, "pod moves home", "pods move home"), some(p.Pods.Guests, "guest leaves", "guests leave")
	if home != "" && leaves != "" {
		return home + ", " + leaves
	}
	return cmp.Or(home, leaves, "no pods are there now")
}

// outgoing says what this cluster has from the peer.
func (b *builder) outgoing(p api.Peer) string {
	if doing := b.Doing[p.ID]; doing != "" {
		return words.Text(doing) + "…"
	}
	withdraws := "a click withdraws"
	if !b.autonomous() {
		withdraws = ""
	}
	if p.Confirm != nil {
		return join("accepted, waits for you", until(p.Confirm.Expires), withdraws)
	}
	switch p.Outgoing {
	case api.StateConnected:
		if runs(p) {
			return join("run from here", words.Amounts(p.Offered), pods(p))
		}
		if !p.Tunnel.Up {
			return join("connected, its tunnel is down", pods(p))
		}
		return join("connected", words.Amounts(p.Offered), pods(p))
	case api.StateRequested:
		return join("waits for its owner", prefixed("code ", words.Code(p.Code)), withdraws)
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
	switch {
	case active(p.Incoming) || p.Incoming == api.StateRequested:
		return ""
	case !p.Reachable:
		return "does not answer"
	case len(p.Offered) > 0:
		return "offers " + words.Amounts(p.Offered)
	}
	return "nearby"
}

// confirm says what the owner is to look at before anything is signed.
func confirm(who string, c *api.Confirmation) string {
	if c.Code == "" {
		return "See the terms of " + who + "…"
	}
	return "Compare the code with " + who + "… " + words.Code(c.Code)
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
			return join("runs this laptop", some(p.Pods.Guests, "guest here", "guests here"))
		}
		return join("uses this laptop", some(p.Pods.Guests, "guest here", "guests here"))
	case api.StateUnreachable:
		if runsThis(p) {
			return "runs this laptop, cannot be reached"
		}
		return "used this laptop, cannot be reached"
	case api.StateEnding:
		return "its guests are leaving"
	}
	return ""
}

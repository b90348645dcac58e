package notice

import (
	"maps"
	"strings"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// sameFact is how long after one event another one of the same kind and peer is the same fact: a peer that leaves ends the contracts
// of both directions.
const sameFact = 30 * time.Second

// events tells what only the daemon's events say. What came before the first snapshot is old.
func (d *diff) events() {
	d.next.said = maps.Clone(d.old.said)
	if d.next.said == nil {
		d.next.said = map[string]time.Time{}
	}
	maps.DeleteFunc(d.next.said, func(_ string, at time.Time) bool { return d.Now.Sub(at) > sameFact })
	for _, e := range d.Events {
		if e.Seq <= d.next.seq {
			continue
		}
		d.next.seq = e.Seq
		if d.old.observed {
			d.event(e)
		}
	}
}

func (d *diff) event(e api.Event) {
	who := words.Name(e.Peer)
	switch e.Type {
	case api.EventRequestAnswered:
		d.answered(e, who)
	case api.EventContractSigned:
		d.signed(e, who)
	case api.EventPeeringEnded:
		if !e.ByPeer || !d.first("ended/"+e.Peer) {
			return
		}
		body := "Its pods here have ended."
		if e.Direction == api.Outgoing {
			body = "What ran there starts again where there is room."
		}
		d.tell(who, Notice{Key: "ended/" + e.Peer, Kind: Ended, Title: who + " ended the contract", Body: body, Icon: icon.Alone})
	case api.EventTetherMade:
		d.tether(TetherMade, "Tethered", e)
	case api.EventTetherLost:
		d.tether(TetherLost, "The company's cluster cannot be reached", e)
	case api.EventTetherEnded:
		d.tether(TetherEnded, "Untethered", e)
	}
}

// answered tells what became of a request, unless this machine's owner is the one who answered.
func (d *diff) answered(e api.Event, who string) {
	switch {
	case e.Direction == api.Incoming && e.State == api.StateContracted:
		d.next.said["answered/"+e.Peer] = d.Now
	case e.Direction == api.Incoming && e.State == api.StateExpired:
		d.tell(who, Notice{
			Key: "lapsed/" + e.Peer, Kind: Expired, Title: "The request of " + who + " has lapsed", Body: "Nobody answered it here in time.", Icon: icon.Alone,
		})
	case e.Direction == api.Outgoing && e.State == api.StateExpired:
		d.tell(who, Notice{Key: "asked/" + e.Peer, Kind: Expired, Title: who + " did not answer", Body: reason(e), Icon: icon.Alone})
	case e.Direction == api.Outgoing && e.State == api.StateDeclined && strings.HasPrefix(e.Message, "the request to "): // taken back here
		d.tell(who, Notice{
			Key: "asked/" + e.Peer, Kind: Declined, Title: "The request to " + who + " was taken back", Body: lines("Nothing was signed.", reason(e)), Icon: icon.Problem,
		})
	case e.Direction == api.Outgoing && e.State == api.StateDeclined:
		d.tell(who, Notice{Key: "asked/" + e.Peer, Kind: Declined, Title: who + " declined your request", Body: reason(e), Icon: icon.Alone})
	}
}

// signed tells that a peer said yes, or that a policy here said yes to a peer.
func (d *diff) signed(e api.Event, who string) {
	if e.Direction == api.Outgoing {
		d.tell(who, Notice{Key: "asked/" + e.Peer, Kind: Accepted, Title: who + " accepted your request", Body: without(e), Icon: icon.Peered})
		return
	}
	if d.first("answered/" + e.Peer) {
		d.tell(who, Notice{
			Key: "uses/" + e.Peer, Kind: Accepted, Title: who + " was accepted by your sharing policy", Body: without(e), Icon: icon.Offering,
		})
	}
}

func (d *diff) tether(kind Kind, title string, e api.Event) {
	n := Notice{Key: "tether", Kind: kind, Title: title, Body: sentence(e.Message), Icon: icon.Tethered, Urgent: kind == TetherLost}
	switch kind {
	case TetherLost:
		n.Icon = icon.Problem
	case TetherEnded:
		n.Icon = icon.Alone
	}
	d.tell(title, n)
}

// first tells whether a fact is a new one, and notes it.
func (d *diff) first(fact string) bool {
	at, said := d.next.said[fact]
	d.next.said[fact] = d.Now
	return !said || d.Now.Sub(at) > sameFact
}

// without is what an event says, without the peer's name that the title has: "bob grants cpu 2" is "Grants cpu 2."
func without(e api.Event) string { return sentence(strings.TrimPrefix(e.Message, e.Peer+" ")) }

// reason is what an event gives as the reason, after what the title says: "the owner of bob declined: not today".
func reason(e api.Event) string {
	_, why, _ := strings.Cut(e.Message, ": ")
	return sentence(why)
}

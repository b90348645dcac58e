package notice

import (
	"maps"
	"slices"
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
	case api.EventLowering:
		d.lowering(e, who)
	case api.EventWoken:
		d.tell(who, Notice{Key: "woken/" + e.Peer, Kind: Ended, Title: "This laptop was woken by the network", Body: words.Text(e.Message), Icon: icon.Alone})
	case api.EventPeeringEnded:
		if !e.ByPeer || d.bound(e.Peer) || !d.first("ended/"+e.Peer) {
			return
		}
		body := "Its pods here have ended."
		if e.Direction == api.Outgoing {
			body = "What ran there starts again where there is room."
		}
		d.tell(who, Notice{Key: "ended/" + e.Peer, Kind: Ended, Title: who + " ended the contract", Body: body, Icon: icon.Alone})
	case api.EventStoodStill:
		d.stoodStill(e)
	case api.EventMaySleep:
		d.maySleep(e)
	case api.EventTetherMade, api.EventTetherLost, api.EventTetherEnded:
		d.tether(e, who)
	case api.EventLaptopTethered:
		d.tell(who, Notice{Key: "laptop/" + e.Peer, Kind: Accepted, Title: who + " is tethered to this cluster", Body: reason(e), Icon: icon.Peered})
	case api.EventLaptopReturned:
		d.tell(who, Notice{Key: "laptop/" + e.Peer, Kind: Ended, Title: who + " is its owner's again", Body: "What ran there starts again where there is room.", Icon: icon.Alone})
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
	case e.Direction == api.Outgoing && e.State == api.StateDeclined && e.Reason == api.ReasonTakenBack:
		d.tell(who, Notice{
			Key: "asked/" + e.Peer, Kind: Declined, Title: "The request to " + who + " was taken back", Body: lines("Nothing was signed.", reason(e)), Icon: icon.Problem,
		})
	case e.Direction == api.Outgoing && e.State == api.StateDeclined:
		d.tell(who, Notice{Key: "asked/" + e.Peer, Kind: Declined, Title: who + " declined your request", Body: reason(e), Icon: icon.Alone})
	}
}

// signed tells that a peer said yes, or that a policy here said yes to a peer.
func (d *diff) signed(e api.Event, who string) {
	if d.bound(e.Peer) || e.Reason == api.ReasonLowered || e.Reason == api.ReasonRenewed { // that was told before, or is as it was
		return
	}
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

// lowering tells that a peer is going to grant less, or does not after all.
func (d *diff) lowering(e api.Event, who string) {
	if e.Direction != api.Outgoing {
		return
	}
	n := Notice{Key: "lowering/" + e.Peer, Kind: Lowering, Title: who + " lowers what it grants", Body: lines(reason(e), "What does not fit there then starts again where there is room."), Icon: icon.Peered}
	if e.Reason == api.ReasonTakenBack {
		n.Title, n.Body = who+" does not lower what it grants", reason(e)
	}
	d.tell(who, n)
}

// tether tells how the tether of this laptop goes on. who is the company.
func (d *diff) tether(e api.Event, who string) {
	n := Notice{Key: "tether"}
	switch {
	case e.Type == api.EventTetherLost:
		n.Kind, n.Title, n.Icon, n.Lasts = TetherLost, who+" cannot be reached, which runs this laptop", icon.Problem, true
		back := "“Untether” in the menu takes this laptop back."
		if t := d.Snapshot.Status.Tether; t != nil && !t.Until.IsZero() {
			back = "This laptop takes itself back at " + t.Until.Local().Format("15:04") + "."
		}
		n.Body = lines("What it runs here runs on.", back)
	case e.Reason == api.ReasonAnswersAgain:
		n.Kind, n.Title, n.Icon, n.Body = TetherMade, who+" answers again", icon.Tethered, "All is as before: its cluster decides what runs here."
	case e.Type == api.EventTetherMade:
		n.Kind, n.Title, n.Icon, n.Body = TetherMade, "Tethered to "+who, icon.Tethered, sentence(e.Message)
	case e.Reason == api.ReasonNotTethered:
		n.Kind, n.Title, n.Icon, n.Body = TetherEnded, "Not tethered to "+who, icon.Alone, reason(e)
	case e.Reason == api.ReasonUntethered:
		n.Kind, n.Title, n.Icon, n.Body = TetherEnded, "Untethered from "+who, icon.Alone, reason(e)
	default:
		n.Kind, n.Title, n.Icon, n.Body = TetherEnded, "Untethered from "+who, icon.Alone, sentence(e.Message)
	}
	d.tell(who, n)
}

const keySlept = "slept"

// stoodStill tells whose pods waited while this laptop slept, where the owner could keep it awake the next time.
func (d *diff) stoodStill(e api.Event) {
	if a := d.Snapshot.Status.Awake; a == nil || a.Kept {
		return
	}
	d.tell("", Notice{
		Key: keySlept, Kind: Slept, Title: "Guests stood still while it slept", Body: sentence(e.Message), Icon: icon.Offering, About: Subject{Awake: true},
	})
}

// maySleep tells that this laptop is kept awake no more, where guests run that its owner wanted it to wait for.
func (d *diff) maySleep(e api.Event) {
	n := Notice{Key: keySlept, Kind: MaySleep, Title: "This laptop may sleep again", Body: reason(e), Icon: icon.Offering}
	switch e.Reason {
	case api.ReasonBatteryLow, api.ReasonNoLogind:
	case api.ReasonTimeIsUp:
		if d.Snapshot.Status.Counts.Guests == 0 {
			return
		}
		n.About = Subject{Awake: true}
	default:
		return
	}
	d.tell("", n)
}

// slept takes back what was said of guests that stood still once there are none, or it is kept awake: its button would have nothing to do.
func (d *diff) slept() {
	a := d.Snapshot.Status.Awake
	could := d.Snapshot.Status.Counts.Guests > 0 && a != nil && !a.Kept
	if d.old.guests && !could {
		d.retract(keySlept)
	}
	d.next.guests = could
}

// bound reports whether one of this cluster and a peer runs the other: what happens between them is told as that of the tether.
func (d *diff) bound(peer string) bool {
	if t := d.Snapshot.Status.Tether; t != nil && t.Peer == peer {
		return true
	}
	return slices.ContainsFunc(d.Snapshot.Peers, func(p api.Peer) bool { return p.Name == peer && p.Tether != nil })
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

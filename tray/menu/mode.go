package menu

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// autonomous reports whether this laptop's own cluster decides.
func (b *builder) autonomous() bool {
	mode := b.Snapshot.Status.Mode
	return mode == api.Autonomous || mode == ""
}

// mode says who decides what this laptop runs, and lets the owner change it.
func (b *builder) mode() {
	b.line("mode")
	s := b.Snapshot.Status
	t := cmp.Or(s.Tether, &api.Tether{})
	who := words.Name(t.Peer)
	switch s.Mode {
	case api.Autonomous, "":
		b.say("mode", "Mode: Autonomous")
		b.tether()
		return
	case api.Tethered:
		b.say("mode", join("Mode: Tethered to "+who, since(t.Since)))
		if !t.DownSince.IsZero() {
			b.say("mode/lost", join("⚠ "+who+" does not answer", since(t.DownSince), "what runs here runs on"))
			if !t.Until.IsZero() {
				b.say("mode/until", "This laptop takes itself back at "+clock(t.Until))
			}
		}
	default:
		b.say("mode", switching(s)+" "+who+": "+words.Text(t.Doing()))
		if t.Code != "" {
			b.say("mode/code", "    "+who+"'s owner must see the code "+words.Code(t.Code))
		}
	}
	switch _, busy := b.Doing[DoingUntether]; {
	case s.Mode == api.Untethering:
	case busy:
		b.say("untether", "Untethering…")
	case s.Mode == api.Tethered:
		b.click("untether", "Untether…", Untether, "")
	default:
		b.click("untether", "Take back…", Untether, "")
	}
}

// The subjects of what is under way with the mode, in State.Doing.
const (
	DoingTether   = "tether"
	DoingUntether = "untether"
)

// switching names a switch that is under way; "" when none is.
func switching(s api.Status) string {
	switch s.Mode {
	case api.Tethering:
		return "Tethering to"
	case api.Untethering:
		return "Untethering from"
	case api.Autonomous, api.Tethered, "":
		return ""
	}
	return words.Text(string(s.Mode)) // of a later daemon
}

// tether offers the clusters that this laptop could be tethered to: those that answer. Which of them run laptops is known when they are
// asked.
func (b *builder) tether() {
	var there []api.Peer
	for _, p := range b.Snapshot.Peers {
		if p.Reachable && p.Tether == nil {
			there = append(there, p)
		}
	}
	slices.SortStableFunc(there, func(x, y api.Peer) int {
		return cmp.Or(strings.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name)), strings.Compare(x.ID, y.ID))
	})
	switch doing := b.Doing[DoingTether]; {
	case b.NoTether:
		b.say("tether", "Tether to a company's cluster (this kithd cannot: update it)")
	case b.Snapshot.Status.Engine.Kind == api.EngineNone:
		b.say("tether", "Tether to a company's cluster (there is no cluster here)")
	case doing != "":
		b.say("tether", words.Text(doing)+"…")
	case len(there) == 0:
		b.say("tether", "Tether to a company's cluster (no peer answers)")
	case !b.usable():
		b.say("tether", "Tether to a company's cluster (the cluster here is not ready)")
	case len(there) == 1:
		b.click("tether/"+there[0].ID, "Tether to "+words.Name(there[0].Name)+"…", Tether, there[0].ID)
	case b.Open != FoldTether:
		b.click("tether", "Tether to…", Open, string(FoldTether))
	default:
		b.click("tether", "Tether to:", Open, string(NoFold))
		for i, p := range there {
			if i == mostPeers {
				b.say("tether/rest", "    … and "+count(len(there)-i, "more: kith tether", "more: kith tether"))
				break
			}
			b.click("tether/"+p.ID, "    Tether to "+words.Name(p.Name)+"…", Tether, p.ID)
		}
	}
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "since " + clock(t)
}

// clock is a time of these days, as people read it off a clock.
func clock(t time.Time) string { return t.Local().Format("Mon 15:04") }

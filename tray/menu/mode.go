package menu

import (
	"cmp"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// autonomous reports whether this laptop's own cluster decides.
func (s State) autonomous() bool {
	mode := s.Snapshot.Status.Mode
	return mode == api.Autonomous || mode == ""
}

// mode says which other cluster decides what this laptop runs, and lets the owner take it back.
func (b *builder) mode() {
	if b.autonomous() {
		return
	}
	b.line("mode")
	s := b.Snapshot.Status
	t := cmp.Or(s.Tether, &api.Tether{})
	who := words.Name(t.Peer)
	if s.Mode == api.Tethered {
		b.say("mode", join("Mode: Tethered to "+who, since(t.Since)))
		if !t.DownSince.IsZero() {
			b.say("mode/lost", join("⚠ "+who+" does not answer", since(t.DownSince), "what runs here runs on"))
			if !t.Until.IsZero() {
				b.say("mode/until", "This laptop takes itself back at "+clock(t.Until))
			}
		}
	} else {
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

// tether offers to tether this laptop to a peer that answers. Whether that runs laptops is known when it is asked.
func (b *builder) tether(p api.Peer) {
	switch doing := b.Doing[DoingTether]; {
	case !p.Reachable || p.Tether != nil || !b.decides():
	case b.NoTether:
		b.say("tether/"+p.ID, "Tether this laptop to it (this kithd cannot: update it)")
	case doing != "":
		b.say("tether/"+p.ID, words.Text(doing)+"…")
	default:
		b.click("tether/"+p.ID, "Tether this laptop to "+words.Name(p.Name)+"…", Tether, p.ID)
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

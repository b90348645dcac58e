package menu

import (
	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// presets are the shares to choose from; the first is off.
var presets = []string{"0%", "25%", "50%", "75%", "100%"}

// sharing lets the owner say how much is offered.
func (b *builder) sharing() {
	b.line("sharing")
	s := b.Snapshot.Status.Sharing
	if s.Share == "" && !nothing(s) {
		b.say("share/custom", "Sharing "+words.Amounts(s.Amounts))
	}
	for _, preset := range presets {
		label := "Share " + percent(preset)
		if preset == "0%" {
			label = "Share nothing"
		}
		b.add(Item{
			ID: "share/" + preset, Label: label, Mark: Radio, On: preset == s.Share || preset == "0%" && nothing(s),
			Disabled: !b.usable(), Action: Action{Share, preset},
		})
	}
	pause := Item{ID: "pause", Label: "Pause sharing: accept nothing new", Mark: Check, On: s.Paused, Disabled: !b.usable(), Action: Action{Verb: Pause}}
	if s.Paused {
		pause.Action.Verb = Resume
	}
	b.add(pause)
}

// mode says who decides what this laptop runs.
func (b *builder) mode() {
	b.line("mode")
	mode := b.Snapshot.Status.Mode
	b.say("mode", "Mode: "+words.Text(string(mode)))
	if mode == api.Autonomous {
		b.say("tether", "Tether to a company's cluster (this kithd cannot yet)")
	} else {
		b.say("untether", "Untether (this kithd cannot yet)")
	}
}

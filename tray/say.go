package tray

import (
	"kith.dev/core/api"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
	"kith.dev/tray/words"
)

// say tells what the tray itself has to say. It may be called from anywhere.
func (t *Tray) say(key, title, body string) {
	t.Notifier.Say(notice.Notice{Key: "tray/" + key, Title: words.Text(title), Body: words.Lines(body)})
}

// once tells whether it is the first time.
func (t *Tray) once(key string) bool {
	first := !t.said[key]
	t.said[key] = true
	return first
}

// sayUnhosted says that the desktop shows no icons, and what works all the same.
func (t *Tray) sayUnhosted() {
	if !t.hosted && t.once("unhosted") {
		t.Log.Warn("no panel shows icons here")
		t.say("unhosted", "This desktop shows no icon of Kith",
			"GNOME needs the extension AppIndicator, other panels a plugin for StatusNotifier items. "+
				"Notifications work without, and so do kith-tray --once and kith.")
	}
}

// sayHere answers a second start.
func (t *Tray) sayHere() {
	body := "Kith's icon is in the panel."
	if !t.hosted {
		body = "This desktop shows no icons: kith-tray --once prints the menu, kith does the rest."
	}
	t.say("here", menu.Head(t.state), body)
}

// sayForbidden says what to do for somebody who may not use kithd.
func (t *Tray) sayForbidden(why *api.Error) {
	if t.once("forbidden") {
		t.say("forbidden", "Kith does not talk to you yet", why.Reason+"\n"+why.Do)
	}
}

func (t *Tray) sayAbout() {
	body := "The laptops around you as one Kubernetes. Tray " + t.Version
	if s := t.state.Snapshot.Status; t.state.Link == menu.Up {
		body += ", kithd " + s.Version
		if s.Engine.Version != "" {
			body += ", Kubernetes " + s.Engine.Version
		}
		body += ".\nThis cluster is " + s.Name + ", " + s.ID
	}
	t.say("about", "Kith", body+".\nApache License 2.0")
}

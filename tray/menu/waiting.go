package menu

import (
	"fmt"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// waiting has what only this owner can answer, requests first, oldest first, and then the codes that other owners compare with this
// screen.
func (b *builder) waiting() {
	all := &builder{State: b.State}
	for _, r := range b.Snapshot.Requests {
		if r.Direction == api.Incoming {
			all.request(r)
		}
	}
	for _, p := range b.Snapshot.Peers {
		all.confirm(p)
	}
	for _, p := range b.Snapshot.Peers {
		if question.Compares(b.Snapshot, p) {
			all.say("compare/"+p.ID, join(words.Name(p.Name)+" was accepted", "its owner compares the code "+words.Code(p.Code)))
		}
	}
	shown, others := split(all.items, shownWaiting)
	b.items = append(b.items, shown...)
	if len(others) == 0 {
		return
	}
	b.submenu("waiting/more", fmt.Sprintf("%d more wait for you", len(others)), func(b *builder) {
		n := min(len(others), mostWaiting)
		b.items = others[:n]
		if rest := len(others) - n; rest > 0 {
			b.say("waiting/rest", fmt.Sprintf("… and %d more: kith requests", rest))
		}
	})
}

// request asks for the owner's answer to a request.
func (b *builder) request(r api.Request) {
	id, who, code := "answer/"+r.ID, words.Name(r.Peer), "its key is known"
	if doing := b.Doing[r.ID]; doing != "" {
		b.say(id, join(who+" asks", words.Text(doing)+"…"))
		return
	}
	if r.Code != "" {
		code = "code " + words.Code(r.Code)
	}
	wants := "would get " + words.Grants(r)
	if r.Tether {
		wants = "this cluster would run it"
	}
	b.click(id, join(who+" asks", wants, code, until(r.Expires))+"…", Answer, r.ID)
}

// confirm asks for the owner's word to what a peer accepted. Nothing is signed before.
func (b *builder) confirm(p api.Peer) {
	c, id, who := p.Confirm, "confirm/"+p.ID, words.Name(p.Name)+" accepted"
	switch doing := b.Doing[p.ID]; {
	case c == nil:
	case doing != "":
		b.say(id, join(who, words.Text(doing)+"…"))
	case c.Code == "":
		b.click(id, join(who, "see its terms", until(c.Expires))+"…", Confirm, p.ID)
	default:
		b.click(id, join(who, "compare the code "+words.Code(c.Code), until(c.Expires))+"…", Confirm, p.ID)
	}
}

func until(expires time.Time) string {
	if expires.IsZero() {
		return ""
	}
	return "until " + expires.Local().Format("15:04")
}

// split gives the first few of a list, and the others. A line that says "1 more" needs as much room as the one itself.
func split[T any](list []T, few int) (shown, others []T) {
	if len(list) <= few+1 {
		return list, nil
	}
	return list[:few], list[few:]
}

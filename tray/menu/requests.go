package menu

import (
	"fmt"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// requests lists who waits for this owner's answer, oldest first.
func (b *builder) requests() {
	var waiting []api.Request
	for _, r := range b.Snapshot.Requests {
		if r.Direction == api.Incoming {
			waiting = append(waiting, r)
		}
	}
	if len(waiting) == 0 {
		return
	}
	b.line("requests")
	shown, hidden := fold(waiting, shownRequests, mostRequests, b.Open == FoldRequests)
	for _, r := range shown {
		b.request(r)
	}
	b.more(FoldRequests, len(shown), len(waiting), hidden, "request", "requests")
}

func (b *builder) request(r api.Request) {
	who := words.Name(r.Peer)
	code, compare := "its key is known", ""
	if r.Code != "" {
		code = "code " + words.Code(r.Code)
		compare = " (" + code + ")"
	}
	wants := who + " would get " + words.Grants(r)
	if r.Tether {
		wants = who + " asks this cluster to run it"
	}
	b.say("request/"+r.ID, join(wants, code, until(r.Expires)))
	if doing := b.Doing[r.ID]; doing != "" {
		b.say("doing/"+r.ID, "    "+words.Text(doing)+"…")
		return
	}
	b.click("accept/"+r.ID, "    Accept "+who+"…"+compare, Accept, r.ID)
	b.click("decline/"+r.ID, "    Decline "+who, Decline, r.ID)
}

func until(expires time.Time) string {
	if expires.IsZero() {
		return ""
	}
	return "until " + expires.Local().Format("15:04")
}

// fold gives what is shown of a list, and how many are not.
func fold[T any](list []T, few, most int, open bool) (shown []T, hidden int) {
	n := min(len(list), few)
	if open {
		n = min(len(list), most)
	}
	if n == len(list)-1 { // the line "1 more" needs as much room as the one itself
		n++
	}
	return list[:n], len(list) - n
}

// more ends a list that was folded, or could be.
func (b *builder) more(fold Fold, shown, all, hidden int, one, many string) {
	id := "more/" + string(fold)
	switch {
	case b.Open == fold && hidden > 0:
		b.say(id+"/rest", fmt.Sprintf("… and %d more: kith %s", hidden, many))
		fallthrough
	case b.Open == fold:
		b.click(id, "Fewer "+many, Open, string(NoFold))
	case hidden > 0:
		b.click(id, fmt.Sprintf("%s…", count(hidden, "more "+one, "more "+many)), Open, string(fold))
	}
}

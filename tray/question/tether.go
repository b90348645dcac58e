package question

import (
	"fmt"
	"strconv"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// maxEffects and maxEffect bound what a window shows of a tether, in sentences and in characters of one.
const maxEffects, maxEffect = 12, 240

// Tether asks whether a company's cluster is to run this laptop, and says what that means. shortID is the company's.
func Tether(check api.TetherCheck, shortID string) Question {
	who := words.Name(check.Peer)
	q := Question{Lead: "Have " + who + "'s cluster run this laptop?", Text: []string{identity(shortID, "")}, Yes: "Tether"}
	for _, effect := range check.Effects[:min(len(check.Effects), maxEffects)] {
		q.Text = append(q.Text, "- "+words.Clean(effect, maxEffect))
	}
	return q
}

// Blocked says what is in the way of a tether and what to do about each, and asks whether to look again.
func Blocked(check api.TetherCheck) Question {
	q := Question{Lead: "This laptop cannot be tethered to " + words.Name(check.Peer) + " yet.", Yes: "Look again"}
	for i, b := range check.Blockers {
		if i == maxEffects {
			q.Text = append(q.Text, fmt.Sprintf("… and %d more: kith tether --check", len(check.Blockers)-i))
			break
		}
		text := "- " + words.Clean(b.What, maxEffect)
		if b.Why != "" {
			text += ": " + words.Clean(b.Why, maxEffect)
		}
		q.Text = append(q.Text, text)
		if b.Do != "" {
			q.Text = append(q.Text, "   "+words.Clean(b.Do, maxEffect))
		}
	}
	return q
}

// Untether asks whether this laptop is to be taken back, and says what happens to what the company runs here.
func Untether(s api.Snapshot) Question {
	t := s.Status.Tether
	if t == nil {
		t = &api.Tether{}
	}
	who, here := words.Name(t.Peer), guests(s.Status.Counts.Guests)
	q := Question{Lead: "Take this laptop back from " + who + "?", Yes: "Untether"}
	switch {
	case s.Status.Mode == api.Tethering:
		q.Lead, q.Yes = "Stop tethering this laptop to "+who+"?", "Take back"
		q.Text = append(q.Text, "What was done so far is undone, and this laptop's own cluster decides.")
		return q
	case !t.DownSince.IsZero() && s.Status.Counts.Guests > 0:
		q.Text = append(q.Text, who+" does not answer. "+here+" that it runs here is cut: it is ended, and "+who+" learns that when it answers again.")
	case !t.DownSince.IsZero():
		q.Text = append(q.Text, who+" does not answer. It learns that it has this laptop no more when it answers again.")
	case s.Status.Counts.Guests > 0:
		q.Text = append(q.Text, who+" is asked to take away what it runs here, "+here+", which starts again elsewhere in its cluster. What is still here after two minutes is ended.")
	}
	q.Text = append(q.Text, "Then this laptop's own cluster decides again, and kubectl leads here. Your own pods run on.")
	return q
}

func guests(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return strconv.Itoa(n) + " pods"
}

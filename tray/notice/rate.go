package notice

import (
	"maps"
	"slices"
	"time"

	"kith.dev/tray/pace"
)

// rate is how often something of a kind may be told: of one subject, such as a peer, and of all. What is beyond waits, the newest of each key, and
// is told when it may be, if it is so then: nothing is lost, and what came and went meanwhile is not told.
type rate struct {
	of  pace.Limit
	all pace.Limit
	// late: it is of no use later, and is left out instead.
	late bool
}

// rates are those of kinds that have one of their own.
var rates = map[Kind]rate{
	// Who asks again is seen in the menu all the same, and the icon asks for attention.
	Request: {of: pace.Limit{Burst: 3, Every: 2 * time.Hour}, all: pace.Limit{Burst: 8, Every: 20 * time.Minute}},
	Confirm: {of: pace.Limit{Burst: 3, Every: 20 * time.Minute}, all: pace.Limit{Burst: 8, Every: 20 * time.Minute}},
	Expired: {of: pace.Limit{Burst: 2, Every: 6 * time.Hour}, all: pace.Limit{Burst: 4, Every: time.Hour}},
	// Where it is not told that a peer is back, that it was away is taken back all the same.
	PeerLost:     {of: pace.Limit{Burst: 2, Every: 2 * time.Hour}, all: pace.Limit{Burst: 2, Every: time.Hour}},
	PeerBack:     {of: pace.Limit{Burst: 1, Every: 4 * time.Hour}, all: pace.Limit{Burst: 2, Every: 2 * time.Hour}, late: true},
	GuestRefused: {of: pace.Limit{Burst: 2, Every: 2 * time.Hour}, all: pace.Limit{Burst: 4, Every: time.Hour}},
	Trouble:      {of: pace.Limit{Burst: 2, Every: 2 * time.Hour}, all: pace.Limit{Burst: 6, Every: time.Hour}},
	// It answers what the owner does.
	Sharing: {of: pace.Limit{Burst: 10, Every: time.Minute}, all: pace.Limit{Burst: 20, Every: time.Minute}},
	// What stood still yesterday is no news.
	Slept: {of: pace.Limit{Burst: 1, Every: 20 * time.Hour}, all: pace.Limit{Burst: 1, Every: 20 * time.Hour}, late: true},
}

// usual is the rate of the others.
var usual = rate{of: pace.Limit{Burst: 3, Every: time.Hour}, all: pace.Limit{Burst: 6, Every: 30 * time.Minute}}

func rateOf(k Kind) rate {
	if r, own := rates[k]; own {
		return r
	}
	return usual
}

// atOnce is the subject of what waits for nothing: the owner looks for it at this moment.
const atOnce = ""

// allKey is the subject of a kind as a whole.
func allKey(k Kind) string { return "all/" + string(k) }

// mostHeld bounds how many of one kind wait. What a peer can cause at will pushes out nothing of another kind.
const mostHeld = 100

// held is a notice that waits until it may be told.
type held struct {
	Notice
	subject, about string
	since          time.Time
}

// due is when something that waits may be told; zero: nothing waits.
func (m State) due(now time.Time) (at time.Time) {
	for _, h := range m.held {
		r := rateOf(h.Kind)
		when := m.pace.When(h.subject, r.of, now)
		if all := m.pace.When(allKey(h.Kind), r.all, now); all.After(when) {
			when = all
		}
		at = sooner(at, when)
	}
	return at
}

// sooner is the earlier of two moments; zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wanted gives what is to be told by now, in the order in which it came: what waited, and what is new. Some of it still has to wait.
func (d *diff) wanted(settings Settings) []held {
	d.next.held, d.next.lost = maps.Clone(d.old.held), maps.Clone(d.old.lost)
	if d.next.held == nil {
		d.next.held, d.next.lost = map[string]held{}, map[string]bool{}
	}
	for _, key := range d.plan.Retract {
		delete(d.next.held, key)
		delete(d.next.lost, key)
	}
	for _, key := range d.passed {
		delete(d.next.held, key)
	}
	for _, n := range d.plan.Show {
		if d.believed(n) {
			delete(d.next.held, n.Key)
			continue
		}
		if n.Kind == PeerBack {
			d.over = append(d.over, n.Key)
		}
		if !settings.Shows(n.Kind) {
			d.told(n)
			if n.Kind == PeerBack {
				d.retract(n.Key)
			}
			continue
		}
		d.next.held[n.Key] = held{Notice: n, subject: d.subject(n), about: d.about[n.Key], since: d.Now}
	}
	var list []held
	for key, h := range d.next.held {
		if !settings.Shows(h.Kind) {
			delete(d.next.held, key)
			continue
		}
		list = append(list, h)
	}
	order := map[string]int{} // of those that are new
	for i, n := range d.plan.Show {
		order[n.Key] = i
	}
	slices.SortFunc(list, func(a, b held) int {
		if !a.since.Equal(b.since) {
			return a.since.Compare(b.since)
		}
		return order[a.Key] - order[b.Key]
	})
	count := map[Kind]int{}
	for _, h := range slices.Backward(list) { // the newest stay
		if count[h.Kind]++; count[h.Kind] > mostHeld {
			delete(d.next.held, h.Key)
		}
	}
	return slices.DeleteFunc(list, func(h held) bool { return count[h.Kind] > mostHeld && !d.waits(h.Key) })
}

// subject is what a notice counts for. Kinds count each for itself: that a question lapsed must not hold back the yes to the next one.
func (d *diff) subject(n Notice) string {
	of, said := d.of[n.Key]
	switch {
	case !said:
		of = n.Key
	case of == atOnce:
		return atOnce
	}
	return string(n.Kind) + "/" + of
}

// believed reports whether the user knows already what a notice says: that a peer is away, or that it is there. What was held back does not count.
func (d *diff) believed(n Notice) bool {
	switch n.Kind {
	case PeerLost:
		return d.next.lost[n.Key]
	case PeerBack:
		return !d.next.lost[n.Key]
	}
	return false
}

// waits reports whether a notice of that key is held back.
func (d *diff) waits(key string) bool {
	_, is := d.next.held[key]
	return is
}

// told notes what the user knows from now on.
func (d *diff) told(n Notice) {
	switch n.Kind {
	case PeerLost:
		d.next.lost[n.Key] = true
	case PeerBack:
		delete(d.next.lost, n.Key)
	}
}

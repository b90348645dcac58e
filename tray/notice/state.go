package notice

import (
	"maps"
	"slices"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/core/base/places"
	"kith.dev/tray/pace"
)

const (
	// gonePatience is how long the daemon may be away before it is worth a word: an upgrade takes seconds.
	gonePatience = 10 * time.Second
	// lostPatience is how long a peer may be away before that is worth a word: its daemon may be starting anew. For one of which that was told within
	// lostAgain, it is longPatience: it comes and goes.
	lostPatience = 5 * time.Second
	longPatience = 15 * time.Minute
	lostAgain    = 8 * time.Hour
	// troubleAgain is how long a trouble that went and came back is not told again.
	troubleAgain = 10 * time.Minute
	// calm is how long after the daemon came back the peers may be unreachable: it has to find them first.
	calm = 30 * time.Second
)

// Input is what the tray knows at one moment.
type Input struct {
	Now      time.Time
	Snapshot api.Snapshot
	Gone     bool        // no daemon answers; Snapshot has nothing
	Events   []api.Event // those that came since the last Input
}

// State is what was seen so far. It is a value: Next leaves the old one alone.
type State struct {
	observed  bool                // there was a status to compare with
	started   bool                // and lists out of the cluster
	ready     bool                // there are such lists now
	peers     map[string]relation // by ID
	requests  map[string]pending  // pending ones of peers, by ID
	confirms  map[string]string   // what peers accepted and this owner has to confirm, by their IDs
	compares  map[string]string   // codes that owners of peers, by their IDs, compare with this screen
	refused   map[string]bool     // guests, by namespace/name
	policies  map[string]api.Policy
	troubles  map[string]trouble
	goneSince time.Time
	calmUntil time.Time // peers are not compared before
	guests    bool      // run here, and it could be kept awake for them
	seq       uint64    // of the last event
	said      map[string]time.Time
	recent    map[Kind]burst
	pace      pace.Pace       // how much was told of what
	held      map[string]held // what waits until it may be told, by its key
	lost      map[string]bool // keys of peers of which the user was told that they are away
}

// pending is what makes a request another one than before: a peer that asks again may have the same ID.
type pending struct {
	peer, code string
	grants     string // what a yes gives
}

// relation is what was last seen of a peer.
type relation struct {
	good bool // a contract was in force, and the peer there
	lost bool // it could not be reached
	told bool // and the user knows
	// since is when it was lost; zero when it was before the tray started.
	since time.Time
	// last is when that was told last.
	last time.Time
}

// waits tells whether the user is to know, if it lasts.
func (r relation) waits() bool { return r.lost && !r.told && !r.since.IsZero() }

// due is until when it must last for that.
func (r relation) due() time.Time {
	if !r.last.IsZero() && r.since.Sub(r.last) < lostAgain {
		return r.since.Add(longPatience)
	}
	return r.since.Add(lostPatience)
}

// trouble is something wrong with the daemon.
type trouble struct {
	now  bool
	told time.Time
}

// Next gives what is to be told, and what to remember.
func (m State) Next(in Input, settings Settings) (State, Plan) {
	d := diff{Input: in, old: m, next: m, about: map[string]string{}, of: map[string]string{}}
	d.next.troubles = maps.Clone(m.troubles)
	if d.next.troubles == nil {
		d.next.troubles = map[string]trouble{}
	}
	switch {
	case in.Gone:
		d.gone()
	default:
		d.back()
		d.troubled()
		d.next.ready = ready(in.Snapshot.Status.Engine)
		if d.next.ready { // else the lists are empty, and what they miss is still there
			d.requests()
			d.confirms()
			d.compares()
			d.guests()
			d.policies()
			d.slept()
			if !d.Now.Before(d.next.calmUntil) {
				d.peers()
			}
			d.next.started = true
		}
	}
	d.events()
	return d.group(settings)
}

// ready tells whether what comes out of the cluster is in the snapshot.
func ready(e api.Engine) bool {
	return e.State == api.EngineReady || e.State == api.EngineDegraded || e.State == api.EngineAsleep
}

// diff compares what is with what was.
type diff struct {
	Input
	old, next State
	plan      Plan
	about     map[string]string // what a notice is about, by its key: a word for a list of several
	over      []string          // keys of what is over, and has something in its place
	passed    []string          // keys of what need not be told any more where it still waits; what is on the screen stays
	of        map[string]string // what it counts for, by its key; where nothing is said, for itself
}

func (d *diff) tell(about string, n Notice) {
	d.about[n.Key] = about
	d.plan.Show = append(d.plan.Show, n)
}

// tellOf is tell of one of many things of the same peer, which count together.
func (d *diff) tellOf(subject, about string, n Notice) {
	d.of[n.Key] = subject
	d.tell(about, n)
}

func (d *diff) retract(keys ...string) { d.plan.Retract = append(d.plan.Retract, keys...) }

const keyDaemon = "daemon"

func (d *diff) gone() {
	if d.next.goneSince.IsZero() {
		d.next.goneSince = d.Now
	}
	t := d.old.troubles[keyDaemon]
	if d.old.observed && !t.now && d.Now.Sub(d.next.goneSince) >= gonePatience {
		d.trouble(keyDaemon, Notice{
			Title: "Kith's daemon does not answer", Body: "Pods run on. To start it: " + places.Here().Start,
			Icon: icon.Gone,
		})
	}
}

func (d *diff) back() {
	if !d.old.goneSince.IsZero() && d.old.started {
		d.next.calmUntil = d.Now.Add(calm)
	}
	d.next.goneSince = time.Time{}
	d.settle(keyDaemon)
}

// Wake is when Next is to be called again even if nothing changed before; zero: it need not be.
func (m State) Wake(now time.Time) time.Time {
	switch {
	case !m.goneSince.IsZero() && m.observed && !m.troubles[keyDaemon].now:
		return sooner(m.due(now), m.goneSince.Add(gonePatience))
	case m.goneSince.IsZero() && now.Before(m.calmUntil):
		return sooner(m.due(now), m.calmUntil)
	}
	at := m.due(now)
	for _, r := range m.peers {
		if m.goneSince.IsZero() && m.ready && r.waits() {
			at = sooner(at, r.due())
		}
	}
	return at
}

// troubled compares what is wrong with the daemon and the engine. What is wrong with a peer is told by its state.
func (d *diff) troubled() {
	wrong := map[string]Notice{}
	s := d.Snapshot.Status
	if e := s.Engine; e.State == api.EngineFailed || e.State == api.EngineDegraded {
		title := "The local Kubernetes has failed"
		if e.State == api.EngineDegraded {
			title = "The local Kubernetes is not well"
		}
		wrong["engine/"+string(e.State)] = Notice{Title: title, Body: lines(sentence(e.Why), "`kith doctor` looks closer.")}
	}
	steady := d.Snapshot.Steady().Status.Problems // numbers move; the trouble stays the same
	for i, p := range s.Problems {
		if p.Severity == api.SeverityError {
			wrong["problem/"+steady[i].What] = Notice{Title: title(p.What), Body: lines(sentence(p.Why), sentence(p.Do))}
		}
	}
	for key := range d.old.troubles {
		if _, still := wrong[key]; !still && key != keyDaemon {
			d.settle(key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		if d.old.observed {
			d.trouble(key, wrong[key])
		} else { // it was so before
			d.next.troubles[key] = trouble{now: true, told: d.Now}
		}
	}
	d.next.observed = true
}

func (d *diff) trouble(key string, n Notice) {
	t := d.next.troubles[key]
	if !t.now && (t.told.IsZero() || d.Now.Sub(t.told) >= troubleAgain) {
		n.Key, n.Kind, n.Lasts = key, Trouble, true
		if n.Icon == "" {
			n.Icon = icon.Problem
		}
		d.tell(n.Title, n)
		t.told = d.Now
	}
	t.now = true
	d.next.troubles[key] = t
}

// settle notes that a trouble is over.
func (d *diff) settle(key string) {
	t, known := d.next.troubles[key]
	if known && t.now {
		d.retract(key)
		t.now = false
		if _, waits := d.old.held[key]; waits { // the user was not told: it is news when it is back
			t.told = time.Time{}
		}
		d.next.troubles[key] = t
	} else if known && d.Now.Sub(t.told) >= troubleAgain {
		delete(d.next.troubles, key)
	}
}

package notice

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kith.dev/assets/icon"
)

const (
	// few notices of one kind are shown each by itself, more within the window as one.
	few    = 3
	window = 30 * time.Second
	// named is how many are named in a notice of many.
	named = 4
)

// burst is what was told of one kind lately.
type burst struct {
	single []time.Time // when notices were shown by themselves
	many   []member    // what the notice of many is about, in order
	last   time.Time   // when it was shown
}

type member struct{ key, about string }

func (m member) gone(keys []string) bool { return slices.Contains(keys, m.key) }

// group drops what is muted, holds back what was told often enough, has many of one kind come as one, and gives what Next gives.
func (d *diff) group(settings Settings) (State, Plan) {
	d.next.recent = maps.Clone(d.old.recent)
	if d.next.recent == nil {
		d.next.recent = map[Kind]burst{}
	}
	d.next.pace = d.old.pace.Clone()
	d.next.pace.Forget(d.Now)
	byKind := map[Kind][]held{}
	var order []Kind
	for _, h := range d.wanted(settings) {
		if byKind[h.Kind] == nil {
			order = append(order, h.Kind)
		}
		byKind[h.Kind] = append(byKind[h.Kind], h)
	}
	out := Plan{Retract: d.retractable()}
	for _, kind := range order {
		show, retract := d.release(kind, byKind[kind])
		out.Show, out.Retract = append(out.Show, show...), append(out.Retract, retract...)
	}
	return d.next, out
}

// release gives those of one kind that may be told now, as bundle has them; the others wait on, or are left out.
func (d *diff) release(kind Kind, list []held) (show []Notice, retract []string) {
	r := rateOf(kind)
	left := d.next.pace.Left(allKey(kind), r.all, d.Now)
	var ready []held
	may := map[string]bool{} // by subject; what came of one at once is told at once
	for _, h := range list {
		if _, known := may[h.subject]; !known {
			may[h.subject] = left > 0 && d.next.pace.Left(h.subject, r.of, d.Now) > 0
		}
		switch {
		case h.subject == atOnce:
			show = append(show, h.Notice)
		case may[h.subject]:
			ready = append(ready, h)
		case !r.late:
			continue
		case kind == PeerBack:
			retract = append(retract, h.Key) // what it would have taken the place of
			d.told(h.Notice)
		}
		delete(d.next.held, h.Key)
	}
	if len(ready) == 0 {
		return show, retract
	}
	for _, h := range ready {
		d.told(h.Notice)
		if d.next.pace.Left(h.subject, r.of, d.Now) > 0 {
			d.next.pace.Said(h.subject, r.of, d.Now)
		}
	}
	bundled, taken := d.bundle(kind, ready, left)
	for range bundled {
		d.next.pace.Said(allKey(kind), r.all, d.Now)
	}
	return append(show, bundled...), append(retract, taken...)
}

// bundle gives the notices of one kind, or one for all of them and the key of the one that it takes in; no more than left.
func (d *diff) bundle(kind Kind, notices []held, left int) (show []Notice, retract []string) {
	b := d.next.recent[kind]
	b.single = slices.DeleteFunc(slices.Clone(b.single), func(at time.Time) bool { return d.Now.Sub(at) > window })
	b.many = slices.Clone(b.many)
	if d.Now.Sub(b.last) > window {
		b.many = nil
	}
	defer func() { d.next.recent[kind] = b }()
	waited := slices.ContainsFunc(notices, func(h held) bool { return h.since.Before(d.Now) })
	if len(b.many) == 0 && len(b.single)+len(notices) <= few && len(notices) <= left && (!waited || len(notices) == 1) {
		for _, h := range notices {
			b.single = append(b.single, d.Now)
			show = append(show, h.Notice)
		}
		return show, nil
	}
	alone := len(b.many) == 1
	b.last = d.Now
	for _, h := range notices {
		if !slices.ContainsFunc(b.many, func(m member) bool { return m.key == h.Key }) {
			b.many = append(b.many, member{h.Key, h.about})
		}
	}
	if len(b.many) == 1 {
		return []Notice{notices[0].Notice}, nil
	}
	if alone {
		retract = []string{b.many[0].key}
	}
	return []Notice{many(kind, b, notices[0].Icon)}, retract
}

// retractable gives the keys to take back. A notice of many goes with the last of what it is about.
func (d *diff) retractable() []string {
	keys := slices.Clone(d.plan.Retract)
	over := append(slices.Clone(keys), d.over...)
	for kind, b := range d.next.recent {
		left := slices.DeleteFunc(slices.Clone(b.many), func(m member) bool { return m.gone(over) })
		if len(left) == len(b.many) {
			continue
		}
		if len(left) == 0 {
			keys = append(keys, manyKey(kind))
		}
		b.many = left
		d.next.recent[kind] = b
	}
	return keys
}

func manyKey(kind Kind) string { return "many/" + string(kind) }

func many(kind Kind, b burst, state icon.State) Notice {
	count := fmt.Sprint(len(b.many))
	if len(b.single) > 0 {
		count += " more"
	}
	n := Notice{Key: manyKey(kind), Kind: kind, Icon: state}
	for _, k := range Kinds {
		if k.Kind == kind {
			n.Title = fmt.Sprintf(k.many, count)
		}
	}
	var names []string
	for _, m := range b.many {
		if !slices.Contains(names, m.about) {
			names = append(names, m.about)
		}
	}
	shown := names[:min(len(names), named)]
	n.Body = strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		n.Body += fmt.Sprintf(" and %d more", more)
	}
	n.Body += "."
	switch kind {
	case Request:
		n.Body = lines(n.Body, Subject{Request: n.Key}.elsewhere())
	case Confirm:
		n.Body = lines(n.Body, Subject{Peer: n.Key}.elsewhere())
	}
	return n
}

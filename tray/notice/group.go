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

// group drops what is muted, has many of one kind come as one, and gives what Next gives.
func (d *diff) group(settings Settings) (State, Plan) {
	d.next.recent = maps.Clone(d.old.recent)
	if d.next.recent == nil {
		d.next.recent = map[Kind]burst{}
	}
	byKind := map[Kind][]Notice{}
	var order []Kind
	for _, n := range d.plan.Show {
		if !settings.Shows(n.Kind) {
			continue
		}
		if byKind[n.Kind] == nil {
			order = append(order, n.Kind)
		}
		byKind[n.Kind] = append(byKind[n.Kind], n)
	}
	out := Plan{Retract: d.retractable()}
	for _, kind := range order {
		show, retract := d.bundle(kind, byKind[kind])
		out.Show, out.Retract = append(out.Show, show...), append(out.Retract, retract...)
	}
	return d.next, out
}

// bundle gives the notices of one kind, or one for all of them and the key of the one that it takes in.
func (d *diff) bundle(kind Kind, notices []Notice) (show []Notice, retract []string) {
	b := d.next.recent[kind]
	b.single = slices.DeleteFunc(slices.Clone(b.single), func(at time.Time) bool { return d.Now.Sub(at) > window })
	b.many = slices.Clone(b.many)
	if d.Now.Sub(b.last) > window {
		b.many = nil
	}
	defer func() { d.next.recent[kind] = b }()
	if len(b.many) == 0 && len(b.single)+len(notices) <= few {
		for range notices {
			b.single = append(b.single, d.Now)
		}
		return notices, nil
	}
	alone := len(b.many) == 1
	b.last = d.Now
	for _, n := range notices {
		if !slices.ContainsFunc(b.many, func(m member) bool { return m.key == n.Key }) {
			b.many = append(b.many, member{n.Key, d.about[n.Key]})
		}
	}
	if len(b.many) == 1 {
		return notices[:1], nil
	}
	if alone {
		retract = []string{b.many[0].key}
	}
	return []Notice{many(kind, b, notices[0].Icon)}, retract
}

// retractable gives the keys to take back. A notice of many goes with the last of what it is about.
func (d *diff) retractable() []string {
	keys := slices.Clone(d.plan.Retract)
	for kind, b := range d.next.recent {
		left := slices.DeleteFunc(slices.Clone(b.many), func(m member) bool { return m.gone(d.plan.Retract) })
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
	for _, m := range b.many[:min(len(b.many), named)] {
		names = append(names, m.about)
	}
	n.Body = strings.Join(names, ", ")
	if more := len(b.many) - len(names); more > 0 {
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

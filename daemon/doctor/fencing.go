package doctor

import (
	"strings"

	"kith.dev/core/api"
)

// Fencing says on which nodes guests may run: where a fence of Kith's is alive.
type Fencing struct {
	Known bool
	Why   string    // it is not known; "" while nothing of it was asked yet
	Takes []string  // nodes that take guests
	Out   []LeftOut // those that do not
	Usual bool      // they never do in such a cluster, and that is no fault
	Do    string
}

// LeftOut is a node that takes no guests.
type LeftOut struct {
	Node, Why string
	Cut       bool // for its packets do not arrive at the gateway's node, or that node's there
}

// What says it in one sentence.
func (f Fencing) What() string {
	var out []string
	for _, o := range f.Out {
		out = append(out, o.Node)
	}
	if len(f.Takes) == 0 {
		return "no node of this cluster takes guests, and nothing is offered: not " + strings.Join(out, ", ")
	}
	return "guests run on " + strings.Join(f.Takes, ", ") + " alone, and offers count no other: " + strings.Join(out, ", ") + " left out"
}

func (f Fencing) check(in about, report func(api.Finding)) {
	if !f.Known {
		if f.Why != "" {
			report(in.fail("fenced", "it is not known on which nodes guests may run", f.Why, "look again"))
		}
		return
	}
	var why []string
	for _, o := range f.Out {
		why = append(why, o.Node+": "+o.Why)
	}
	switch {
	case len(f.Out) == 0 && len(f.Takes) > 0:
		report(in.ok("fenced", "a fence is alive on each node: %s", strings.Join(f.Takes, ", ")))
	case f.Usual:
		report(in.ok("fenced", "%s", f.What()))
	case len(f.Takes) == 0:
		report(in.fail("fenced", f.What(), strings.Join(why, "; "), f.Do))
	default:
		report(in.warn("fenced", f.What(), strings.Join(why, "; "), f.Do))
	}
}

//go:build linux

package nft

import (
	"reflect"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Table is a whole table as a value, but for its name.
type Table struct {
	Family nftables.TableFamily
	Chains []Chain
	Sets   []Set
}

// Chain is a list of rules. Its name stands for its hook, type and priority too, which do not change.
type Chain struct {
	Name     string
	Hook     *nftables.ChainHook // nil: reached by a jump only
	Type     nftables.ChainType  // with a hook; "" is filter
	Priority nftables.ChainPriority
	Rules    [][]expr.Any
}

// Set is a set of ranges of addresses, or of other keys, or a map from such. Its name stands for its types too.
type Set struct {
	Name     string
	Key      nftables.SetDatatype // TypeIPAddr and TypeIP6Addr mean ranges, see Spans
	Data     nftables.SetDatatype // of a map; TypeVerdict leads to chains
	Elements []nftables.SetElement

	Single  bool          // its addresses are no ranges, but one by one
	Passing bool          // its elements have timeouts, one each; see Keeper.Renew
	Room    uint32        // not 0: rules add the elements, at most so many
	Lasts   time.Duration // timeout of elements that rules add
}

// change brings a table from what was to what is, in an order in which nothing is named that is not there.
func (is Table) change(c *nftables.Conn, t *nftables.Table, was Table) error {
	chains, sets := map[string]Chain{}, map[string]Set{} // that were there, later those that go
	for _, ch := range was.Chains {
		chains[ch.Name] = ch
	}
	for _, s := range was.Sets {
		sets[s.Name] = s
	}
	for i, s := range is.Sets {
		if _, there := sets[s.Name]; !there {
			if err := c.AddSet(s.of(t, i), nil); err != nil {
				return err
			}
		}
	}
	var changed []Chain
	for _, ch := range is.Chains {
		old, there := chains[ch.Name]
		delete(chains, ch.Name)
		if there && reflect.DeepEqual(old.Rules, ch.Rules) {
			continue
		}
		if there {
			c.FlushChain(ch.of(t))
		} else {
			c.AddChain(ch.of(t))
		}
		changed = append(changed, ch)
	}
	for _, ch := range chains {
		c.FlushChain(ch.of(t))
	}
	for _, ch := range changed { // when all are there, for they name each other
		for _, r := range ch.Rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: ch.of(t), Exprs: r})
		}
	}
	for i, s := range is.Sets {
		if err := fill(c, s.of(t, i), sets[s.Name].Elements, s.Elements); err != nil {
			return err
		}
		delete(sets, s.Name)
	}
	for _, ch := range chains {
		c.DelChain(ch.of(t))
	}
	for _, s := range sets {
		c.DelSet(s.of(t, 0))
	}
	return nil
}

// fill brings the elements of a set up to date. Ranges are written anew, for one that overlaps an old one is refused.
func fill(c *nftables.Conn, of *nftables.Set, was, is []nftables.SetElement) error {
	if of.Interval || of.HasTimeout { // of those that end by themselves some may have
		if slices.EqualFunc(was, is, func(a, b nftables.SetElement) bool { return reflect.DeepEqual(a, b) }) {
			return nil
		}
		c.FlushSet(of)
		return inParts(c.SetAddElements, of, is)
	}
	if err := inParts(c.SetDeleteElements, of, without(was, is)); err != nil {
		return err
	}
	return inParts(c.SetAddElements, of, without(is, was))
}

// without gives the elements of a list that another has not, or with another value.
func without(list, other []nftables.SetElement) (out []nftables.SetElement) {
	values := map[string]nftables.SetElement{}
	for _, e := range other {
		values[string(e.Key)] = e
	}
	for _, e := range list {
		if v, there := values[string(e.Key)]; !there || !slices.Equal(v.Val, e.Val) || !reflect.DeepEqual(v.VerdictData, e.VerdictData) {
			out = append(out, e)
		}
	}
	return out
}

// inParts does something to elements. A netlink attribute has room for so many of them.
func inParts(do func(*nftables.Set, []nftables.SetElement) error, of *nftables.Set, all []nftables.SetElement) error {
	for some := range slices.Chunk(all, 500) {
		if err := do(of, some); err != nil {
			return err
		}
	}
	return nil
}

func (ch Chain) of(t *nftables.Table) *nftables.Chain {
	out := &nftables.Chain{Name: ch.Name, Table: t}
	if ch.Hook != nil {
		out.Hooknum, out.Priority, out.Type, out.Policy = ch.Hook, &ch.Priority, ch.Type, new(nftables.ChainPolicyAccept)
		if ch.Type == "" {
			out.Type = nftables.ChainTypeFilter
		}
	}
	return out
}

// of gives a set a number by which it is known in a transaction; the library would take one from a count that is nobody's to lock.
func (s Set) of(t *nftables.Table, number int) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: s.Name, ID: uint32(number + 1), KeyType: s.Key, Interval: (s.Key == nftables.TypeIPAddr || s.Key == nftables.TypeIP6Addr) && s.Room == 0 && !s.Single,
		Concatenation: len(nftables.ConcatSetTypeElements(s.Key)) > 1, IsMap: s.Data.Name != "", DataType: s.Data,
		HasTimeout: s.Passing || s.Lasts > 0, Timeout: s.Lasts, Dynamic: s.Room > 0, Size: s.Room,
	}
}

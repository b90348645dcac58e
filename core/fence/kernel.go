//go:build linux

package fence

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/nftables"
)

// Table is the name of both nftables tables: the fence for IPv4, and one that drops guests' IPv6.
const Table = "kith-fence"

// kernel writes tables. open makes a connection; a batch is one transaction, of which packets see nothing or all.
type kernel struct {
	open func() (*nftables.Conn, error)
}

func tables() (v4, v6 *nftables.Table) {
	return &nftables.Table{Name: Table, Family: nftables.TableFamilyIPv4}, &nftables.Table{Name: Table, Family: nftables.TableFamilyIPv6}
}

// replace puts a table in place of whatever was there, in one transaction.
func (k kernel) replace(p plan, group uint32) error {
	c, err := k.open()
	if err != nil {
		return err
	}
	v4, v6 := tables()
	for _, t := range []*nftables.Table{v4, v6} {
		c.AddTable(t) // so that there is one to delete
		c.DelTable(t)
		c.AddTable(t)
	}
	for _, ch := range p.chains {
		c.AddChain(ch.of(v4))
	}
	for _, s := range p.sets {
		if err := c.AddSet(s.of(v4), s.elements); err != nil {
			return err
		}
	}
	for _, ch := range p.chains {
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: v4, Chain: ch.of(v4), Exprs: r})
		}
	}
	if group != 0 {
		six := chain{name: "guests", hook: nftables.ChainHookPrerouting, priority: *nftables.ChainPriorityRaw}
		c.AddChain(six.of(v6))
		c.AddRule(&nftables.Rule{Table: v6, Chain: six.of(v6), Exprs: rule(fromGroup(group), drop())})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", Table, err)
	}
	return nil
}

// change brings the elements of the sets from one plan to another, whose chains and sets are the same.
func (k kernel) change(was, is plan) error {
	c, err := k.open()
	if err != nil {
		return err
	}
	v4, _ := tables()
	for i := range is.sets {
		gone, fresh := difference(was.sets[i].elements, is.sets[i].elements)
		s := is.sets[i].of(v4)
		if len(gone) > 0 {
			if err := c.SetDeleteElements(s, gone); err != nil {
				return err
			}
		}
		if len(fresh) > 0 {
			if err := c.SetAddElements(s, fresh); err != nil {
				return err
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("change nftables table %s: %w", Table, err)
	}
	return nil
}

// standing tells whether both tables are there, as full as when they were written: size is what a call before gave. And
// whether the limits are.
func (k kernel) standing() (size uint32, limits bool, err error) {
	c, err := k.open()
	if err != nil {
		return 0, false, err
	}
	list, err := c.ListTables()
	if err != nil {
		return 0, false, fmt.Errorf("list nftables tables: %w", err)
	}
	found := 0
	for _, t := range list {
		if t.Name == Table && (t.Family == nftables.TableFamilyIPv4 || t.Family == nftables.TableFamilyIPv6) {
			found++
			size += t.Use
		}
		limits = limits || t.Name == Limits && t.Family == nftables.TableFamilyIPv4
	}
	if found < 2 {
		return 0, limits, nil
	}
	return size, limits, nil
}

func (ch chain) of(t *nftables.Table) *nftables.Chain {
	out := &nftables.Chain{Name: ch.name, Table: t}
	if ch.hook != nil {
		policy := nftables.ChainPolicyAccept
		out.Hooknum, out.Priority, out.Type, out.Policy = ch.hook, &ch.priority, nftables.ChainTypeFilter, &policy
	}
	return out
}

func (s set) of(t *nftables.Table) *nftables.Set {
	out := &nftables.Set{Table: t, Name: s.name, KeyType: s.key, Interval: s.ranges, IsMap: s.verdicts}
	if s.verdicts {
		out.DataType = nftables.TypeVerdict
	}
	return out
}

// alike tells whether two plans differ in the elements of address sets only. Those of ranges change together with
// peerings, seldom enough to write all anew.
func alike(a, b plan) bool {
	if !reflect.DeepEqual(a.chains, b.chains) || len(a.sets) != len(b.sets) {
		return false
	}
	for i, s := range a.sets {
		t := b.sets[i]
		if s.name != t.name || s.ranges && !reflect.DeepEqual(s.elements, t.elements) {
			return false
		}
	}
	return true
}

func difference(was, is []nftables.SetElement) (gone, fresh []nftables.SetElement) {
	before := map[string]nftables.SetElement{}
	for _, e := range was {
		before[string(e.Key)] = e
	}
	for _, e := range is {
		old, there := before[string(e.Key)]
		if there && reflect.DeepEqual(old.VerdictData, e.VerdictData) {
			delete(before, string(e.Key))
			continue
		}
		fresh = append(fresh, e)
	}
	gone = slices.SortedFunc(maps.Values(before), func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	return gone, fresh
}

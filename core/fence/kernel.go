//go:build linux

package fence

import (
	"fmt"

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
	out := &nftables.Set{Table: t, Name: s.name, KeyType: s.key, Interval: s.key == nftables.TypeIPAddr, IsMap: s.verdicts}
	if s.verdicts {
		out.DataType = nftables.TypeVerdict
	}
	return out
}

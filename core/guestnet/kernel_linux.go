package guestnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"

	"kith.dev/core/hostnet"
)

// Table is the name of the nftables table.
const Table = "kith-guests"

// Kernel keeps the table by which guests live in their home's address space. Its methods may be called from anywhere.
type Kernel struct {
	cfg  Config
	open func() (*nftables.Conn, error)

	mu      sync.Mutex
	told    bool   // Set was called: without, the table of the process before is better than ours
	want    plan   // as Set said
	written *plan  // by this process; nil when what is in the kernel is somebody else's
	size    uint32 // of the table, as the kernel counts
}

// New checks the configuration; nothing is touched.
func New(cfg Config) (*Kernel, error) {
	return &Kernel{cfg: cfg, open: func() (*nftables.Conn, error) { return nftables.New() }}, cfg.check()
}

// Raise makes the table if there is none, without services. Call it before any guest can start; a table that an earlier process left,
// and that has services, stays.
func (k *Kernel) Raise() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	size, err := k.standing()
	if err != nil || size != 0 {
		return err
	}
	return k.sync()
}

// Set makes the services of all tenants these. It changes what differs and no more: connections go on.
func (k *Kernel) Set(tenants []Tenant) error {
	want, err := planOf(tenants)
	if err != nil {
		return fmt.Errorf("services of guests: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want, k.told = want, true
	if k.written != nil && maps.Equal(k.written.there, want.there) && maps.Equal(k.written.back, want.back) {
		return nil
	}
	return k.sync()
}

// Run puts the table back when somebody takes it away, until ctx ends. The table stays then.
func (k *Kernel) Run(ctx context.Context) error {
	name := append([]byte(Table), 0)
	news, stop, err := hostnet.Tables(func(news []byte) bool { return bytes.Contains(news, name) })
	if err != nil {
		return fmt.Errorf("network of guests: %w", err)
	}
	defer stop()
	for {
		var retry <-chan time.Time
		if err := k.mend(); err != nil {
			k.cfg.Log.Warn("guests may not reach services by their addresses at home, trying again", "err", err)
			retry = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case _, ok := <-news:
			if !ok {
				return errors.New("network of guests: the kernel tells of nftables no more")
			}
		}
	}
}

func (k *Kernel) mend() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	size, err := k.standing()
	if err != nil || k.written != nil && size == k.size || k.written == nil && size != 0 && !k.told {
		return err
	}
	if k.written != nil {
		k.cfg.Log.Warn("the nftables table of guests was taken away or changed, making it again", "table", Table)
	}
	k.written = nil
	return k.sync()
}

// sync makes the table that of the plan. Callers hold mu.
func (k *Kernel) sync() error {
	was := k.written
	k.written = nil // whatever is there after an error: next time all of it
	var err error
	if was == nil {
		err = k.replace()
	} else if err = k.change(*was); err != nil {
		err = k.replace() // somebody took it away, and this came before the news of that
	}
	if err != nil {
		return err
	}
	if k.size, err = k.standing(); err == nil {
		is := k.want
		k.written = &is
	}
	return err
}

// standing gives the size of the table, 0 when there is none.
func (k *Kernel) standing() (uint32, error) {
	c, err := k.open()
	if err != nil {
		return 0, err
	}
	list, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return 0, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, t := range list {
		if t.Name == Table {
			return t.Use, nil
		}
	}
	return 0, nil
}

func table() *nftables.Table { return &nftables.Table{Name: Table, Family: nftables.TableFamilyIPv4} }

// The maps. Keys are a range of guests, as its first address, and the address of a service.
func sets() (there, back *nftables.Set) {
	one := func(name string) *nftables.Set {
		return &nftables.Set{
			Table: table(), Name: name, IsMap: true, Concatenation: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr), DataType: nftables.TypeIPAddr,
		}
	}
	return one(thereMap), one(backMap)
}

// replace puts the table in place of whatever was there, in one transaction.
func (k *Kernel) replace() error {
	c, err := k.open()
	if err != nil {
		return err
	}
	t := table()
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	there, back := sets()
	for _, m := range []*nftables.Set{there, back} {
		if err := c.AddSet(m, nil); err != nil {
			return err
		}
	}
	for _, ch := range k.cfg.chains() {
		ch.Table = t
		c.AddChain(ch.Chain)
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: ch.Chain, Exprs: r})
		}
	}
	if err := errors.Join(fill(c.SetAddElements, there, k.want.there, nil), fill(c.SetAddElements, back, k.want.back, nil)); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", Table, err)
	}
	return nil
}

// change brings the elements from another plan to the present one.
func (k *Kernel) change(was plan) error {
	c, err := k.open()
	if err != nil {
		return err
	}
	there, back := sets()
	if err := errors.Join(
		fill(c.SetDeleteElements, there, was.there, k.want.there), fill(c.SetDeleteElements, back, was.back, k.want.back),
		fill(c.SetAddElements, there, k.want.there, was.there), fill(c.SetAddElements, back, k.want.back, was.back),
	); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("change nftables table %s: %w", Table, err)
	}
	return nil
}

// fill does to a map what has to be done to elements that another plan has not. A netlink attribute has room for some of them only.
func fill(do func(*nftables.Set, []nftables.SetElement) error, of *nftables.Set, all, but map[pair]netip.Addr) error {
	var list []nftables.SetElement
	for key, a := range all {
		if but[key] != a {
			list = append(list, nftables.SetElement{Key: slices.Clone(key[:]), Val: a.AsSlice()})
		}
	}
	for some := range slices.Chunk(list, 500) {
		if err := do(of, some); err != nil {
			return err
		}
	}
	return nil
}

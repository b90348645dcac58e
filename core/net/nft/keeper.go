//go:build linux

package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// Keeper keeps tables in the kernel that have the same name, in several families. It does one thing at a time: its owner has a lock.
type Keeper struct {
	Name    string
	Log     *slog.Logger
	Options []nftables.ConnOption // for tests

	written []Table     // by this process; nil when what is in the kernel is somebody else's
	size    uint32      // of these tables, as the kernel counts
	news    atomic.Bool // of one of them, since the last look
}

// Keep makes the kernel's tables equal to these, which must be of the same families each time, in one transaction; what did not change since
// the last call is not written. Tables that an earlier process left are replaced only if sure says that these are right.
func (k *Keeper) Keep(is []Table, sure bool) error {
	size, err := k.standing(is)
	if err != nil {
		return err
	}
	was := k.written
	if was != nil && (size == 0 || size != k.size || k.news.Swap(false) && !k.whole()) {
		k.Log.Warn("an nftables table was taken away or changed, putting it up again", "table", k.Name)
		was, size = nil, 0
	}
	if was == nil && size != 0 && !sure {
		return nil
	}
	k.written = nil // whatever is there after an error: next time all of it
	if was != nil {
		err = k.write(was, is)
	}
	if was == nil || err != nil { // somebody may have taken it away just now
		err = k.write(nil, is)
	}
	if err != nil {
		return err
	}
	if k.size, err = k.standing(is); err == nil {
		k.written = is
	}
	return err
}

// write changes the tables or, if it is not known what was, puts them in place of whatever was, in one transaction.
func (k *Keeper) write(was, is []Table) error {
	c, err := nftables.New(append(slices.Clone(k.Options), nftables.WithSockOptions(room))...)
	if err != nil {
		return err
	}
	for i, t := range is {
		var old Table
		of := k.table(t)
		if was != nil {
			old = was[i]
		} else {
			c.AddTable(of) // so that there is one to delete
			c.DelTable(of)
			c.AddTable(of)
		}
		if err := t.change(c, of, old); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", k.Name, err)
	}
	return nil
}

// room for a transaction, which the kernel takes as one message, and for what it says of it, some words of each rule, all at once. Where
// there may not be as much, a large one fails.
func room(c *netlink.Conn) error {
	const size = 8 << 20
	_ = c.SetWriteBuffer(size)
	_ = c.SetReadBuffer(size)
	return nil
}

// Renew restarts the timeouts of the elements of a set with Passing.
func (k *Keeper) Renew(family nftables.TableFamily, s Set) error {
	c, err := nftables.New(k.Options...)
	if err != nil {
		return err
	}
	of := s.of(k.table(Table{Family: family}), 0)
	c.FlushSet(of)
	if err := c.SetAddElements(of, s.Elements); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("renew set %s of nftables table %s: %w", s.Name, k.Name, err)
	}
	return nil
}

func (k *Keeper) table(t Table) *nftables.Table {
	return &nftables.Table{Name: k.Name, Family: t.Family}
}

// standing gives how many chains and sets the tables have, as a number to compare; 0 unless all of them are there.
func (k *Keeper) standing(tables []Table) (size uint32, err error) {
	c, err := nftables.New(k.Options...)
	if err != nil {
		return 0, err
	}
	list, err := c.ListTables()
	if err != nil {
		return 0, fmt.Errorf("list nftables tables: %w", err)
	}
	found := 0
	for _, t := range list {
		if t.Name == k.Name && slices.ContainsFunc(tables, func(is Table) bool { return is.Family == t.Family }) {
			found++
			size += t.Use
		}
	}
	if found < len(tables) {
		return 0, nil
	}
	return size, nil
}

// whole reports whether the tables that were written have as many rules. They are counted and not read: the library does not know all of
// their words.
func (k *Keeper) whole() bool {
	c, err := nftables.New(k.Options...)
	if err != nil {
		return false
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: c.NetNS})
	if err != nil {
		return false
	}
	defer conn.Close()
	name, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(k.Name), 0)}})
	if err != nil {
		return false
	}
	for _, t := range k.written {
		rules, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
			Data:   append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, name...), // struct nfgenmsg
		})
		written := 0
		for _, ch := range t.Chains {
			written += len(ch.Rules)
		}
		if err != nil || len(rules) != written {
			return false
		}
	}
	return true
}

const (
	// settle is the shortest time between two looks, so that a burst of events costs two.
	settle = 20 * time.Millisecond
	// again is when to look again after a look that failed.
	again = time.Second
)

// Watch has look called now, and after every change of the tables of keepers and every token of around, until ctx ends.
func Watch(ctx context.Context, around <-chan struct{}, look func() error, keepers ...*Keeper) error {
	tables, stop, err := hostnet.Tables(func(news []byte) (matters bool) {
		for _, k := range keepers {
			if len(news) == 0 || bytes.Contains(news, append([]byte(k.Name), 0)) {
				k.news.Store(true)
				matters = true
			}
		}
		return matters
	})
	if err != nil {
		return err
	}
	defer stop()
	for {
		var retry <-chan time.Time
		if err := look(); err != nil {
			retry = time.After(again)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
		open := true
		select {
		case _, open = <-around:
		case _, open = <-tables:
		case <-retry:
		case <-ctx.Done():
			return nil
		}
		if !open {
			return errors.New("the kernel tells of its network no more")
		}
	}
}

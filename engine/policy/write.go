package policy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"kith.dev/core/net/netplan"
)

// Table is the name of both nftables tables, one of each family.
const Table = "kith-policy"

// writer keeps the table of one family. Of one that the cluster does not have the table drops what pods send: pods of one bridge could meet
// by it beside all rules.
type writer struct {
	family
	nft     knftables.Interface
	dns     netip.Addr   // of the cluster; the zero value: the cluster does not have this family
	pods    netip.Prefix // of the cluster, if it has this family
	group   uint32       // of guests' links
	written *table       // by this process; nil: whatever is there
	removed bool         // by this process
}

func (w *writer) open() (err error) {
	if w.nft == nil {
		w.nft, err = knftables.New(w.table, Table)
	}
	return err
}

// remove takes the table away, that of a process before as well.
func (w *writer) remove(ctx context.Context) error {
	if w.removed {
		return nil
	}
	if err := w.open(); err != nil {
		return err
	}
	w.written = nil
	tx := w.nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	if err := w.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove nftables table %s %s: %w", w.ip, Table, err)
	}
	w.removed = true
	return nil
}

// missing reports whether a table that was written is not there.
func (w *writer) missing(ctx context.Context) bool {
	if w.written == nil {
		return false
	}
	there, err := w.there(ctx)
	return err == nil && !there
}

// there reports whether there is a table, of whichever process.
func (w *writer) there(ctx context.Context) (bool, error) {
	if err := w.open(); err != nil {
		return false, err
	}
	chains, err := w.nft.List(ctx, "chain")
	if knftables.IsNotFound(err) {
		return false, nil
	}
	return len(chains) > 0, err
}

// write makes the table what it is to be: what changed since the last time, or all of it.
func (w *writer) write(ctx context.Context, s State) error {
	if err := w.open(); err != nil {
		return err
	}
	var is table // that of a family which the cluster does not have
	if w.dns.IsValid() {
		is = compile(w.family, s)
	}
	return w.put(ctx, is)
}

func (w *writer) put(ctx context.Context, is table) error {
	was := w.written
	w.written, w.removed = nil, false // until it has worked
	tx := w.nft.NewTransaction()
	if was == nil {
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{Comment: knftables.PtrTo("NetworkPolicies")})
		change(tx, table{}, is)
		if w.dns.IsValid() {
			w.always(tx)
		} else {
			w.closed(tx)
		}
	} else {
		change(tx, *was, is)
	}
	if tx.NumOperations() > 0 {
		if err := w.nft.Run(ctx, tx); err != nil {
			return fmt.Errorf("write nftables table %s %s: %w", w.ip, Table, err)
		}
	}
	w.written = &is
	return nil
}

// change brings what depends on policies from one table to another, in an order in which nothing is named that is not there.
func change(tx *knftables.Transaction, was, is table) {
	for _, name := range slices.Sorted(maps.Keys(is.sets)) {
		if s := is.sets[name]; !like(was.sets[name], s) {
			define(tx, name, s)
		}
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(is.chains)) {
		old, there := was.chains[name]
		if there && slices.Equal(old, is.chains[name]) {
			continue
		}
		tx.Add(&knftables.Chain{Name: name})
		if there {
			tx.Flush(&knftables.Chain{Name: name})
		}
		changed = append(changed, name)
	}
	for _, name := range changed { // when all are there, for they name each other
		for _, r := range is.chains[name] {
			tx.Add(&knftables.Rule{Chain: name, Rule: r})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is.sets)) {
		fill(tx, name, was.sets[name], is.sets[name])
	}
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(was.chains)) {
		if _, stays := is.chains[name]; !stays {
			tx.Flush(&knftables.Chain{Name: name})
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(was.sets)) {
		if _, stays := is.sets[name]; !stays {
			tx.Delete(&knftables.Set{Name: name})
		}
	}
}

// like reports whether two sets are the same but for their elements.
func like(a, b set) bool { return a.of == b.of && a.ranges == b.ranges && a.verdicts == b.verdicts }

func define(tx *knftables.Transaction, name string, s set) {
	if s.verdicts {
		tx.Add(&knftables.Map{Name: name, Type: s.of + " : verdict"})
		return
	}
	var flags []knftables.SetFlag
	if s.ranges {
		flags = append(flags, knftables.IntervalFlag)
	}
	tx.Add(&knftables.Set{Name: name, Type: s.of, Flags: flags})
}

// fill brings the elements of a set up to date. Ranges are written anew, for those that overlap old ones are refused.
func fill(tx *knftables.Transaction, name string, was, is set) {
	if maps.Equal(was.elements, is.elements) {
		return
	}
	element := func(key, verdict string) *knftables.Element {
		e := &knftables.Element{Key: strings.Split(key, " . ")}
		if is.verdicts {
			e.Map, e.Value = name, []string{verdict}
		} else {
			e.Set = name
		}
		return e
	}
	if is.ranges && len(was.elements) > 0 {
		tx.Flush(&knftables.Set{Name: name})
		was.elements = nil
	}
	for _, key := range slices.Sorted(maps.Keys(was.elements)) {
		if verdict, stays := is.elements[key]; !stays || verdict != was.elements[key] {
			tx.Delete(element(key, was.elements[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(is.elements)) {
		if verdict, there := was.elements[key]; !there || verdict != is.elements[key] {
			tx.Add(element(key, is.elements[key]))
		}
	}
}

// always is what is in every table: the chains at the hooks. Both directions have one each in forward, so that what one
// accepts is still asked by the other.
func (w *writer) always(tx *knftables.Transaction) {
	tunnel := fmt.Sprintf("%q", netplan.Tunnel)
	answers := []string{
		"ct state established ct direction reply accept",
		"ct state related meta l4proto " + w.icmp + " accept",
	}
	for _, c := range []struct {
		name     string
		hook     knftables.BaseChainHook
		priority string
		rules    []string
	}{
		// What a home sends to its guests comes from addresses that are its own, even if pods here have the same, and so does what they
		// send to it lead to such.
		{"from-pods", knftables.ForwardHook, "filter - 2", []string{
			knftables.Concat("iifname", tunnel, "meta oifgroup", w.group, "accept"),
			w.ip + " saddr vmap @" + egressMap,
		}},
		{"to-pods", knftables.ForwardHook, "filter - 1", []string{
			knftables.Concat("meta iifgroup", w.group, "oifname", tunnel, "accept"),
			w.ip + " daddr vmap @" + ingressMap,
			// A pod at a peer of which nobody here has heard yet, and whose policies therefore nobody knows: who asks tries again. Only the
			// range of pods here tells it from a home of guests that are here, whose addresses are its own matter.
			knftables.Concat("iifname", tunnel, w.ip, "daddr", w.pods, w.ip, "saddr != @"+podsSet, "counter drop"),
			knftables.Concat("oifname", tunnel, w.ip, "saddr", w.pods, w.ip, "daddr != @"+podsSet, "counter drop"),
			knftables.Concat("iifname", tunnel, "oifname", tunnel, w.ip, "saddr != @"+podsSet, "counter drop"),
			knftables.Concat("iifname", tunnel, "oifname", tunnel, w.ip, "daddr != @"+podsSet, "counter drop"),
		}},
		{"to-node", knftables.InputHook, "filter - 2", []string{
			knftables.Concat("ct original", w.ip, "daddr", w.dns, w.ip, "saddr . meta l4proto @"+dnsSet, "accept"), // it has no other port
			w.ip + " saddr vmap @" + egressMap,
			// The same, for the API server. Gateways of peers ask each other by ICMP whether packets pass.
			knftables.Concat("iifname", tunnel, "meta l4proto !=", w.icmp, w.ip, "saddr != @"+podsSet, "counter drop"),
		}},
	} {
		tx.Add(&knftables.Chain{
			Name: c.name, Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(c.hook),
			Priority: knftables.PtrTo(knftables.BaseChainPriority(c.priority)),
		})
		for _, r := range slices.Concat(w.links, answers, c.rules) {
			tx.Add(&knftables.Rule{Chain: c.name, Rule: r})
		}
	}
}

// closed is all of a table of a family that the cluster does not have.
func (w *writer) closed(tx *knftables.Transaction) {
	for _, hook := range []knftables.BaseChainHook{knftables.ForwardHook, knftables.InputHook} {
		tx.Add(&knftables.Chain{
			Name: string(hook), Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(hook), Priority: knftables.PtrTo(knftables.FilterPriority),
		})
		tx.Add(&knftables.Rule{Chain: string(hook), Rule: knftables.Concat("iifname", fmt.Sprintf("%q", netplan.Bridge), "counter drop")})
	}
}

// tableDeleted reports whether messages of the kernel say that a table of our name is gone.
func tableDeleted(b []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return true
	}
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE || len(m.Data) < nl.SizeofNfgenmsg {
			continue
		}
		if bytes.Contains(m.Data[nl.SizeofNfgenmsg:], []byte(Table+"\x00")) {
			return true
		}
	}
	return false
}

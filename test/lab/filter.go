package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
)

// Cut is a link that drops every frame in silence, both ways; nobody sees a link go down.
type Cut struct {
	A string `json:"a"`
	// B is the other end; empty means all of the LAN.
	B string `json:"b,omitempty"`
}

// cutOf is the one form of a cut: ends in order, so that "a b" and "b a" are the same.
func cutOf(a, b string) Cut {
	if b != "" && b < a {
		a, b = b, a
	}
	return Cut{A: a, B: b}
}

func (c Cut) touches(name string) bool { return c.A == name || c.B == name }

// drop is one rule of the bridge's filter: frames from port In to port Out are dropped with the chance Part. An empty
// port stands for any.
type drop struct {
	Hook    nftables.ChainHook
	In, Out string
	Part    float64
}

// drops is the whole filter for these cuts and losses (part by laptop), in the order of the rules.
func drops(cuts []Cut, losses map[string]float64) []drop {
	var all []drop
	for _, c := range cuts {
		if c.B == "" {
			// The first and last hook: the bridge's own address is cut off, too.
			all = append(all, drop{*nftables.ChainHookPrerouting, c.A, "", 1}, drop{*nftables.ChainHookPostrouting, "", c.A, 1})
		} else {
			all = append(all, drop{*nftables.ChainHookForward, c.A, c.B, 1}, drop{*nftables.ChainHookForward, c.B, c.A, 1})
		}
	}
	names := make([]string, 0, len(losses))
	for n := range losses {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if part := losses[n]; part > 0 {
			all = append(all, drop{*nftables.ChainHookForward, n, "", part}, drop{*nftables.ChainHookForward, "", n, part})
		}
	}
	return all
}

// setFilter replaces the bridge's whole filter in the LAN's namespace, in one step.
func setFilter(lan int, all []drop) error {
	ns, err := netns.GetFromPid(lan)
	if err != nil {
		return fmt.Errorf("set filter of the LAN: %w", err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return fmt.Errorf("set filter of the LAN: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyBridge, Name: "kith-lab"}
	c.AddTable(table) // so that deleting it cannot fail
	c.DelTable(table)
	c.AddTable(table)
	for _, hook := range []struct {
		name string
		at   *nftables.ChainHook
	}{
		{"prerouting", nftables.ChainHookPrerouting},
		{"forward", nftables.ChainHookForward},
		{"postrouting", nftables.ChainHookPostrouting},
	} {
		chain := c.AddChain(&nftables.Chain{
			Name: hook.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook.at, Priority: nftables.ChainPriorityFilter,
		})
		for _, d := range all {
			if d.Hook == *hook.at {
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: d.exprs()})
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("set filter of the LAN (it needs nf_tables with the bridge family): %w", err)
	}
	return nil
}

func (d drop) exprs() []expr.Any {
	var e []expr.Any
	port := func(key expr.MetaKey, name string) {
		if name != "" {
			e = append(e, &expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(name)})
		}
	}
	port(expr.MetaKeyIIFNAME, d.In)
	port(expr.MetaKeyOIFNAME, d.Out)
	if d.Part < 1 {
		below := binary.BigEndian.AppendUint32(nil, uint32(d.Part*math.MaxUint32))
		e = append(e, &expr.Meta{Key: expr.MetaKeyPRANDOM, Register: 1}, &expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: below})
	}
	return append(e, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}

// interfaceName is how the kernel compares them: 16 bytes (IFNAMSIZ), padded with zeros.
func interfaceName(name string) []byte {
	return append([]byte(name), bytes.Repeat([]byte{0}, 16-len(name))...)
}

package overlay

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/nft"
)

// Table is the name of the nftables table.
const Table = "kith-nodes"

const (
	nodesSet = "nodes"
	peersSet = "peers"
)

// table of a plan. Between pods and peers addresses stay as they are, whatever the network plugin masquerades: the first rule that translates a
// connection decides, and this one, before theirs, translates the source to itself.
func (c Config) table(p Plan) nft.Table {
	in := func(field expr.Any, set string) []expr.Any {
		return nft.Load(field, &expr.Lookup{SourceRegister: 1, SetName: set})
	}
	vxlan := nft.Rule(nft.Protocol(unix.IPPROTO_UDP),
		nft.Load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, nft.Equal(binary.BigEndian.AppendUint16(nil, c.Port))))
	itself := nft.Load(nft.Source(), &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})
	var nodes []netip.Prefix
	for _, a := range p.Nodes {
		nodes = append(nodes, netip.PrefixFrom(a, 32))
	}
	before := *nftables.ChainPriorityNATSource - 1
	return nft.Table{
		Family: nftables.TableFamilyIPv4,
		Sets: []nft.Set{
			{Name: nodesSet, Key: nftables.TypeIPAddr, Elements: nft.Spans(nodes)},
			{Name: peersSet, Key: nftables.TypeIPAddr, Elements: nft.Spans(p.Peers)},
		},
		Chains: []nft.Chain{
			{Name: "from-nodes-alone", Hook: nftables.ChainHookInput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
				nft.Rule(vxlan, nft.Load(nft.Source(), &expr.Lookup{SourceRegister: 1, SetName: nodesSet, Invert: true}), nft.Drop()),
			}},
			{Name: "not-from-pods", Hook: nftables.ChainHookForward, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
				nft.Rule(vxlan, in(nft.Destination(), nodesSet), nft.Drop()),
			}},
			{Name: "not-masqueraded", Hook: nftables.ChainHookPostrouting, Type: nftables.ChainTypeNAT, Priority: before, Rules: [][]expr.Any{
				nft.Rule(nft.SourceWithin(c.Pods), in(nft.Destination(), peersSet), itself),
				nft.Rule(in(nft.Source(), peersSet), nft.DestinationWithin(c.Pods), itself),
			}},
		},
	}
}

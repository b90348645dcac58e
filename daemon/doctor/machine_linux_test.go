package doctor

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
)

func TestOwnersOfOpenPortsAreFound(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcp6, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp6.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	// A connection's port is not one that somebody listens on.
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, tc := range []struct {
		network string
		addr    net.Addr
		has     bool
	}{
		{"tcp", tcp.Addr(), true}, {"tcp", tcp6.Addr(), true}, {"udp", udp.LocalAddr(), true},
		{"tcp", conn.LocalAddr(), false}, {"udp", tcp.Addr(), false},
	} {
		port := netip.MustParseAddrPort(tc.addr.String()).Port()
		sockets := map[uint16][]uint64{}
		for _, version := range []string{"", "6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + tc.network + version)
			if err != nil {
				continue // a kernel without IPv6
			}
			parseSockets(text, tc.network == "tcp", sockets)
		}
		if has := len(sockets[port]) > 0; has != tc.has {
			t.Errorf("%s %s: listening %t, want %t", tc.network, tc.addr, has, tc.has)
		}
		for _, inode := range sockets[port] {
			if p := ownersOf([]uint64{inode})[inode]; p.pid != os.Getpid() {
				t.Errorf("%s %s is held by %s", tc.network, tc.addr, p)
			}
		}
	}
}

func TestFirewallsThatDrop(t *testing.T) {
	drop, accept := nftables.ChainPolicyDrop, nftables.ChainPolicyAccept
	chain := func(table, name string, family nftables.TableFamily, hook *nftables.ChainHook, policy *nftables.ChainPolicy) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: &nftables.Table{Name: table, Family: family}, Hooknum: hook, Policy: policy, Type: nftables.ChainTypeFilter}
	}
	for name, tc := range map[string]struct {
		chain *nftables.Chain
		want  bool
	}{
		"firewalld":           {chain("firewalld", "filter_FORWARD", nftables.TableFamilyINet, nftables.ChainHookForward, &drop), true},
		"accepts":             {chain("mine", "forward", nftables.TableFamilyINet, nftables.ChainHookForward, &accept), false},
		"Docker, let through": {chain("filter", "FORWARD", nftables.TableFamilyIPv4, nftables.ChainHookForward, &drop), false},
		"of IPv6":             {chain("ip6", "forward", nftables.TableFamilyIPv6, nftables.ChainHookForward, &drop), false},
		"for the machine":     {chain("mine", "input", nftables.TableFamilyINet, nftables.ChainHookInput, &drop), false},
		"not a base chain":    {chain("mine", "sub", nftables.TableFamilyINet, nil, nil), false},
	} {
		if got := drops(tc.chain); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

package policy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"
)

// laptop is a network namespace with the engine's bridge, pods on it, and a device that leads to pods at a peer, so that real
// packets meet the rules.
type laptop struct {
	family
	t      *testing.T
	self   netns.NsHandle
	pods   map[string]netns.NsHandle // by address
	listed []Pod
	writer *writer
}

const (
	webIP, dbIP, otherIP, bankIP = "10.42.0.11", "10.42.0.12", "10.42.0.13", "10.42.0.14"
	guestIP, strangerIP          = "10.76.255.130", "10.76.255.131" // at a peer; of the stranger nobody knows
	nodeIP, serviceIP, dnsIP     = "10.42.255.1", "10.43.0.9", "10.43.0.10"
	tenantIP                     = "10.65.1.4" // a guest here, whose home has the addresses that pods have here

	guestGroup = 0x6b67
)

// inBoth runs a test in each family. Addresses are written as those of IPv4, which at says what they are of.
// Each has a network of its own, and waits more than it computes.
func inBoth(t *testing.T, test func(*laptop)) {
	t.Parallel()
	for _, f := range []family{ipv4, ipv6} {
		t.Run(f.ip, func(t *testing.T) {
			t.Parallel()
			test(newLaptop(t, f))
		})
	}
}

var addresses = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+)(/\d+)?(:\d+)?`)

// at puts addresses, ranges and ports at addresses that a text has into the family: 10.42.0.0/24 is fd00::a2a:0/120 in the other.
func (f family) at(text string) string {
	if f.table == knftables.IPv4Family {
		return text
	}
	return addresses.ReplaceAllStringFunc(text, func(is string) string {
		part := addresses.FindStringSubmatch(is)
		four := netip.MustParseAddr(part[1]).As4()
		six := netip.AddrFrom16([16]byte{0: 0xfd, 12: four[0], 13: four[1], 14: four[2], 15: four[3]}).String()
		switch {
		case part[0] == "0.0.0.0/0":
			return "0::/0"
		case part[2] != "":
			bits, _ := strconv.Atoi(part[2][1:])
			return fmt.Sprintf("%s/%d", six, 96+bits)
		case part[3] != "":
			return "[" + six + "]" + part[3]
		}
		return six
	})
}

// pod is that of a name and an address.
func (f family) pod(namespace, address string, labels ...string) Pod {
	return pod(namespace, f.at(address), labels...)
}

func newLaptop(t *testing.T, f family) *laptop {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	l := &laptop{family: f, t: t, pods: map[string]netns.NsHandle{}, writer: &writer{
		family: f, dns: netip.MustParseAddr(f.at(dnsIP)), pods: netip.MustParsePrefix(f.at("10.42.0.0/16")), group: guestGroup,
	}}
	l.self = l.space()
	for key, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1", "net/ipv6/conf/all/forwarding": "1", "net/bridge/bridge-nf-call-ip6tables": "1",
	} {
		if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(t, netlink.LinkAdd(bridge))
	must(t, netlink.LinkSetUp(bridge))
	l.address("cni0", "10.42.0.1/24")
	l.address("lo", nodeIP+"/32")
	for i, p := range []Pod{
		l.family.pod("shop", webIP, "app=web"), l.family.pod("shop", dbIP, "app=db"), l.family.pod("shop", otherIP, "app=other"), l.family.pod("bank", bankIP, "app=bank"),
	} {
		l.pod(p, []string{webIP, dbIP, otherIP, bankIP}[i])
	}
	l.abroad()
	l.guest()
	// What kube-proxy would: a service of db, and DNS on the node.
	l.nft(`table ip proxy { chain pre { type nat hook prerouting priority dstnat;
		ip daddr ` + serviceIP + ` tcp dport 80 dnat to ` + dbIP + `:8080
		ip daddr ` + dnsIP + ` tcp dport 53 dnat to ` + nodeIP + `:10053
	}; chain post { type nat hook postrouting priority srcnat; ip saddr ` + dbIP + ` ip daddr ` + dbIP + ` masquerade; }; }`)
	l.serve(nodeIP + ":10053")
	l.serve(nodeIP + ":6443")
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (l *laptop) space() netns.NsHandle {
	h, err := netns.New()
	must(l.t, err)
	l.t.Cleanup(func() { h.Close() })
	l.address("lo", "")
	return h
}

func (l *laptop) address(link, cidr string) {
	l.t.Helper()
	at, err := netlink.LinkByName(link)
	must(l.t, err)
	must(l.t, netlink.LinkSetUp(at))
	if cidr != "" {
		a, err := netlink.ParseAddr(l.family.at(cidr))
		must(l.t, err)
		a.Flags |= unix.IFA_F_NODAD
		must(l.t, netlink.AddrAdd(at, a))
	}
}

// plug makes a namespace behind a link of this laptop, which is put on the bridge if there is one.
func (l *laptop) plug(link, master string) netns.NsHandle {
	l.t.Helper()
	ns := l.space()
	must(l.t, netns.Set(l.self))
	must(l.t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
	if master != "" {
		bridge, err := netlink.LinkByName(master)
		must(l.t, err)
		port, err := netlink.LinkByName(link)
		must(l.t, err)
		must(l.t, netlink.LinkSetMaster(port, bridge))
		must(l.t, netlink.LinkSetHairpin(port, true))
	}
	l.address(link, "")
	return ns
}

func (l *laptop) pod(p Pod, ip string) {
	l.t.Helper()
	ns := l.plug("veth"+ip[strings.LastIndexByte(ip, '.')+1:], "cni0")
	l.pods[ip], l.listed = ns, append(l.listed, p)
	l.in(ns, func() {
		l.address("eth0", ip+"/24")
		l.route("0.0.0.0/0", "10.42.0.1")
		l.serve(ip + ":8080")
		l.serve(ip + ":9090")
		l.echo(ip + ":5353")
	})
}

// route is a way over eth0, by a router or, without one, straight.
func (l *laptop) route(to, by string) {
	l.t.Helper()
	eth0, err := netlink.LinkByName("eth0")
	must(l.t, err)
	r := &netlink.Route{Dst: l.prefix(to), LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK}
	if by != "" {
		r.Gw, r.Scope = net.ParseIP(l.at(by)), netlink.SCOPE_UNIVERSE
	}
	must(l.t, netlink.RouteAdd(r))
}

// abroad is what the tunnel leads to: a pod of this cluster, and somebody who is not known.
func (l *laptop) abroad() {
	l.t.Helper()
	ns := l.plug("kith0", "")
	l.address("kith0", "10.76.0.1/16")
	l.in(ns, func() {
		for _, ip := range []string{guestIP, strangerIP} {
			l.address("eth0", ip+"/16")
			l.serve(ip + ":8080")
			l.pods[ip] = ns
		}
		l.route("0.0.0.0/0", "10.76.0.1")
	})
	l.listed = append(l.listed, l.family.pod("shop", guestIP, "app=guest"))
}

// guest is one of the peer's here. What it sends is read as its home would.
func (l *laptop) guest() {
	l.t.Helper()
	ns := l.plug("tenant", "")
	link, err := netlink.LinkByName("tenant")
	must(l.t, err)
	must(l.t, netlink.LinkSetGroup(link, guestGroup))
	tunnel, err := netlink.LinkByName("kith0")
	must(l.t, err)
	must(l.t, netlink.RouteAdd(&netlink.Route{Dst: l.prefix(tenantIP + "/32"), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}))
	must(l.t, netlink.RouteAdd(&netlink.Route{Dst: l.prefix("10.42.0.0/16"), Gw: net.ParseIP(l.at(guestIP)), LinkIndex: tunnel.Attrs().Index, Table: 77}))
	rule, marked := netlink.NewRule(), netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = l.prefix("10.65.1.0/24"), 77, 60
	marked.Mark, marked.Table, marked.Priority = 1, 254, 50
	if l.table == knftables.IPv6Family {
		marked.Family = unix.AF_INET6
	}
	must(l.t, errors.Join(netlink.RuleAdd(rule), netlink.RuleAdd(marked)))
	l.address("tenant", "10.65.1.1/32")
	// To guests the owner's pods are the host.
	l.nft(`table ip guests { chain pre { type filter hook prerouting priority mangle; iifname "tenant" ct direction reply ct status snat meta mark set 1; };
		chain post { type nat hook postrouting priority srcnat; iifname "cni0" oifname "tenant" masquerade; }; }`)
	l.in(ns, func() {
		l.address("eth0", tenantIP+"/32")
		l.route("10.65.1.1/32", "")
		l.route("0.0.0.0/0", "10.65.1.1")
		l.serve(tenantIP + ":8080")
	})
	l.pods[tenantIP] = ns
	home := l.pods[guestIP]
	l.in(home, func() {
		l.address("lo", otherIP+"/32")
		l.serve(otherIP + ":8080")
	})
	l.pods["home"] = home
	l.listed = append(l.listed, l.family.pod("shop-q4zkx2a", tenantIP, "app=tenant"))
}

func (l *laptop) prefix(cidr string) *net.IPNet {
	_, n, err := net.ParseCIDR(l.at(cidr))
	must(l.t, err)
	return n
}

func (l *laptop) in(ns netns.NsHandle, f func()) {
	l.t.Helper()
	must(l.t, netns.Set(ns))
	defer func() { must(l.t, netns.Set(l.self)) }()
	f()
}

// nft runs in the laptop: a child is in the namespace of the thread that starts it.
func (l *laptop) nft(rules string) {
	l.t.Helper()
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(regexp.MustCompile(`\bip\b`).ReplaceAllString(l.at(rules), l.ip))
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// serve tells whoever connects who he is, and then echoes.
func (l *laptop) serve(at string) {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.at(at))
	must(l.t, err)
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, c.RemoteAddr())
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func (l *laptop) echo(at string) {
	l.t.Helper()
	c, err := net.ListenPacket("udp", l.at(at))
	must(l.t, err)
	l.t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
}

// hold puts policies into force.
func (l *laptop) hold(manifests ...string) {
	l.t.Helper()
	l.holdAll(l.policies(manifests...))
}

func (l *laptop) policies(manifests ...string) []*networkingv1.NetworkPolicy {
	var list []string
	for _, m := range manifests {
		list = append(list, l.at(m))
	}
	return policies(l.t, list...)
}

func (l *laptop) holdAll(list []*networkingv1.NetworkPolicy) {
	l.t.Helper()
	must(l.t, l.writer.write(l.t.Context(), l.state(list)))
}

// state is the cluster of this family, with these policies.
func (l *laptop) state(list []*networkingv1.NetworkPolicy) State {
	s := state(list, l.listed...)
	for _, a := range [][]netip.Addr{s.DNS, s.Node} {
		a[0] = netip.MustParseAddr(l.at(a[0].String()))
	}
	return s
}

// What is open is waited for, on a busy machine too; what is closed is mostly told so at once.
const enough, moment = 5 * time.Second, 400 * time.Millisecond

// try opens a connection from an address to tcp://… or udp://….
func (l *laptop) try(from, to string, within time.Duration) (c net.Conn, err error) {
	ns := l.self
	if from != nodeIP {
		ns = l.pods[from]
	}
	l.in(ns, func() {
		network, at, _ := strings.Cut(to, "://")
		d := net.Dialer{Timeout: within}
		if from == "home" {
			from = otherIP // as it is there
		}
		if ip := net.ParseIP(l.at(from)); network == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		} else {
			d.LocalAddr = &net.UDPAddr{IP: ip}
		}
		if c, err = d.Dial(network, l.at(at)); err != nil {
			return
		}
		l.t.Cleanup(func() { c.Close() })
		if network == "udp" {
			_, _ = c.Write([]byte("?"))
		}
		_, err = l.read(c, within)
	})
	return c, err
}

func (l *laptop) read(c net.Conn, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// opens looks whether what should be open is, and nothing else of these.
func (l *laptop) opens(from string, want map[string]bool) {
	l.t.Helper()
	for to, open := range want {
		if !strings.Contains(to, "://") {
			to = "tcp://" + to
		}
		within := moment
		if open {
			within = enough
		}
		if _, err := l.try(from, to, within); (err == nil) != open {
			l.t.Errorf("%s to %s: %v, want open %t", from, to, err, open)
		}
	}
}

const denyAll = `{metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}`

func TestPodsThatNoPolicySelectsAreFree(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		everywhere := map[string]bool{dbIP + ":8080": true, bankIP + ":8080": true, guestIP + ":8080": true, serviceIP + ":80": true, dnsIP + ":53": true, nodeIP + ":6443": true, "udp://" + dbIP + ":5353": true}
		l.opens(webIP, everywhere)
		l.hold(`{metadata: {namespace: bank}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}`)
		everywhere[bankIP+":8080"] = false
		l.opens(webIP, everywhere)
		must(t, l.writer.remove(t.Context()))
		everywhere[bankIP+":8080"] = true
		l.opens(webIP, everywhere)
	})
}

func TestDefaultDeny(t *testing.T) {
	inBoth(t, func(l *laptop) {
		l.hold(denyAll)
		closed := map[string]bool{dbIP + ":8080": false, bankIP + ":8080": false, guestIP + ":8080": false, serviceIP + ":80": false, dnsIP + ":53": false, nodeIP + ":6443": false, "udp://" + dbIP + ":5353": false}
		l.opens(webIP, closed)
		l.opens(guestIP, map[string]bool{webIP + ":8080": false, bankIP + ":8080": false, nodeIP + ":6443": false})
		l.opens(bankIP, map[string]bool{webIP + ":8080": false, guestIP + ":8080": false, dnsIP + ":53": true})
		// The kubelet's probes, and what runs on the host's network.
		l.opens(nodeIP, map[string]bool{webIP + ":8080": true, guestIP + ":8080": true})
		// Itself, also by a service.
		l.opens(dbIP, map[string]bool{dbIP + ":8080": true, serviceIP + ":80": true})

		l.hold(`{metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Ingress]}}`)
		l.opens(webIP, map[string]bool{dbIP + ":8080": false, bankIP + ":8080": true, dnsIP + ":53": true})
		l.hold(`{metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Egress]}}`)
		l.opens(bankIP, map[string]bool{dbIP + ":8080": true})
		l.opens(dbIP, map[string]bool{bankIP + ":8080": false})
	})
}

func TestWhatIsForbiddenIsToldAtOnce(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		l.hold(denyAll)
		for _, from := range []string{webIP, bankIP} {
			var timeout net.Error
			if _, err := l.try(from, "tcp://"+dbIP+":8080", enough); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("%s: %v, want an answer", from, err)
			}
		}
	})
}

func TestAllowedByLabelsAndPorts(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		const toDB = `{metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [%s]}}`
		udp := "udp://" + dbIP + ":5353"
		for _, c := range []struct {
			rule string
			web  map[string]bool
			bank map[string]bool
		}{
			{`{from: [{podSelector: {matchLabels: {app: web}}}]}`, map[string]bool{dbIP + ":8080": true, udp: true, serviceIP + ":80": true}, map[string]bool{dbIP + ":8080": false}},
			{`{from: [{namespaceSelector: {matchLabels: {team: b}}}]}`, map[string]bool{dbIP + ":8080": false}, map[string]bool{dbIP + ":8080": true}},
			{`{ports: [{port: 8080}]}`, map[string]bool{dbIP + ":8080": true, dbIP + ":9090": false, udp: false, serviceIP + ":80": true}, map[string]bool{dbIP + ":8080": true}},
			{`{ports: [{port: http}, {port: ask, protocol: UDP}]}`, map[string]bool{dbIP + ":8080": true, dbIP + ":9090": false, udp: true}, map[string]bool{serviceIP + ":80": true}},
			{`{ports: [{port: 9000, endPort: 9100}, {protocol: UDP}]}`, map[string]bool{dbIP + ":8080": false, dbIP + ":9090": true, udp: true}, map[string]bool{dbIP + ":9090": true}},
			// A service's port is not the pod's.
			{`{ports: [{port: 80}]}`, map[string]bool{serviceIP + ":80": false}, map[string]bool{dbIP + ":8080": false}},
			{`{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}, {from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 9090}]}`,
				map[string]bool{dbIP + ":8080": true, dbIP + ":9090": false}, map[string]bool{dbIP + ":8080": false, dbIP + ":9090": true}},
			{`{from: [{ipBlock: {cidr: 10.42.0.0/24, except: [` + webIP + `/32]}}]}`, map[string]bool{dbIP + ":8080": false}, map[string]bool{dbIP + ":8080": true}},
			{`{from: [{ipBlock: {cidr: ` + webIP + `/32}}], ports: [{protocol: SCTP, port: 8080}, {port: 8080}]}`, map[string]bool{dbIP + ":8080": true, dbIP + ":9090": false}, map[string]bool{dbIP + ":8080": false}},
		} {
			l.hold(fmt.Sprintf(toDB, c.rule))
			l.opens(webIP, c.web)
			l.opens(bankIP, c.bank)
			if t.Failed() {
				t.Fatalf("with %s", c.rule)
			}
		}
	})
}

func TestEgressNamesTheOtherEnd(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		const web = `{metadata: {name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [%s]}}`
		for rule, want := range map[string]map[string]bool{
			`{to: [{podSelector: {matchLabels: {app: db}}}]}`:                        {dbIP + ":8080": true, serviceIP + ":80": true, bankIP + ":8080": false, dnsIP + ":53": false},
			`{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: http}]}`: {dbIP + ":8080": true, dbIP + ":9090": false},
			`{to: [{podSelector: {matchLabels: {app: guest}}}]}`:                     {guestIP + ":8080": true, dbIP + ":8080": false},
			`{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.42.0.0/24]}}]}`:           {guestIP + ":8080": true, dbIP + ":8080": false, nodeIP + ":6443": true, dnsIP + ":53": true},
			`{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53}]}`: {dnsIP + ":53": true, nodeIP + ":6443": false, dbIP + ":8080": false},
			`{ports: [{port: 6443}]}`: {nodeIP + ":6443": true, nodeIP + ":10053": false, dnsIP + ":53": false},
		} {
			l.hold(fmt.Sprintf(web, rule))
			l.opens(webIP, want)
			l.opens(bankIP, map[string]bool{webIP + ":8080": true, dnsIP + ":53": true})
			if t.Failed() {
				t.Fatalf("with %s", rule)
			}
		}
	})
}

// What goes between home and pods at a peer passes here, and is held to the policies in both directions.
func TestPodsAtAPeerAreHeldToPoliciesAtHome(t *testing.T) {
	inBoth(t, func(l *laptop) {
		l.hold(denyAll, `{metadata: {name: guests}, spec: {podSelector: {matchLabels: {app: guest}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]}}`,
			`{metadata: {name: home}, spec: {podSelector: {matchLabels: {app: web}}, egress: [{}]}}`,
			`{metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: guest}}}]}], egress: [{}]}}`)
		l.opens(webIP, map[string]bool{guestIP + ":8080": true})
		l.opens(dbIP, map[string]bool{guestIP + ":8080": false})
		l.opens(guestIP, map[string]bool{dbIP + ":8080": true, serviceIP + ":80": true, webIP + ":8080": false, bankIP + ":8080": false, nodeIP + ":6443": false})
		l.opens(strangerIP, map[string]bool{bankIP + ":8080": false})
	})
}

// TestAPodAtAPeerThatNobodyKnowsYetMeetsNobody: its policies are not known either. In neither direction, the API server's included.
func TestAPodAtAPeerThatNobodyKnowsYetMeetsNobody(t *testing.T) {
	inBoth(t, func(l *laptop) {
		l.hold(`{metadata: {name: other, namespace: far}, spec: {podSelector: {}}}`) // selects nobody
		l.opens(webIP, map[string]bool{strangerIP + ":8080": false, guestIP + ":8080": true})
		l.opens(strangerIP, map[string]bool{webIP + ":8080": false, serviceIP + ":80": false, nodeIP + ":6443": false})
		l.opens(guestIP, map[string]bool{webIP + ":8080": true, serviceIP + ":80": true, nodeIP + ":6443": true})
		l.opens(nodeIP, map[string]bool{strangerIP + ":8080": true}) // the API server's webhooks, a probe
		l.opens("home", map[string]bool{tenantIP + ":8080": true})
		l.opens(tenantIP, map[string]bool{otherIP + ":8080": true})

		l.listed = append(l.listed, l.family.pod("shop", strangerIP, "app=new"))
		l.hold(`{metadata: {name: new}, spec: {podSelector: {matchLabels: {app: new}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}`)
		l.opens(webIP, map[string]bool{strangerIP + ":8080": true})
		l.opens(dbIP, map[string]bool{strangerIP + ":8080": false})
		l.opens(strangerIP, map[string]bool{dbIP + ":8080": true, nodeIP + ":6443": true})
	})
}

// What a home and its guests here send each other names pods of that home, though pods here have the same addresses.
func TestAHomeMayHaveTheAddressesOfPodsHere(t *testing.T) {
	inBoth(t, func(l *laptop) {
		l.hold(denyAll)
		l.opens(tenantIP, map[string]bool{otherIP + ":8080": true})
		l.opens("home", map[string]bool{tenantIP + ":8080": true})
		l.opens(otherIP, map[string]bool{tenantIP + ":8080": false}) // by its own policy

		// A guest's policy that allows its home, as all that come to a twin do, does not allow the owner's pods.
		l.hold(`{metadata: {namespace: shop-q4zkx2a}, spec: {podSelector: {}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16}}]}], egress: [{to: [{ipBlock: {cidr: 10.42.0.0/16}}]}]}}`)
		l.opens("home", map[string]bool{tenantIP + ":8080": true})
		l.opens(tenantIP, map[string]bool{otherIP + ":8080": true, dnsIP + ":53": false})
		l.opens(webIP, map[string]bool{tenantIP + ":8080": false})
		l.hold(`{metadata: {namespace: shop-q4zkx2a}, spec: {podSelector: {}, ingress: [{}]}}`)
		l.opens(webIP, map[string]bool{tenantIP + ":8080": true})
	})
}

// A new policy holds for connections that are open; answers to those that a pod may open pass.
func TestAPolicyHoldsForConnectionsThatAreOpen(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		c, err := l.try(webIP, "tcp://"+dbIP+":8080", enough)
		must(t, err)
		says := func(within time.Duration) error {
			_, _ = c.Write([]byte("still there?\n"))
			_, err := l.read(c, within)
			return err
		}
		must(t, says(enough))
		l.hold(`{spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}}`) // answers come in
		must(t, says(enough))
		l.hold(`{spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}}`)
		if says(moment) == nil {
			t.Error("the connection is still open")
		}
	})
}

// Whatever changes is one transaction, and only what changed: whoever is not meant loses no packet.
func TestFromOneTableToAnother(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		db := `{metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [%s], ports: [%s]}]}}`
		web, bank := `{podSelector: {matchLabels: {app: web}}}`, `{namespaceSelector: {matchLabels: {team: b}}}`
		steps := []struct {
			list      []string
			web, bank bool
		}{
			{[]string{fmt.Sprintf(db, web, "{port: 8080}")}, true, false},
			{[]string{fmt.Sprintf(db, web+","+bank, "{port: 8080}")}, true, true},
			{[]string{fmt.Sprintf(db, bank, "{port: 8000, endPort: 8100}")}, false, true},
			{[]string{fmt.Sprintf(db, bank, "{port: 8079, endPort: 8101}"), denyAll}, false, true},
			{[]string{fmt.Sprintf(db, bank, "{port: http}"), denyAll}, false, true},
			{[]string{denyAll}, false, false},
			{[]string{fmt.Sprintf(db, `{ipBlock: {cidr: 10.42.0.0/27}}`, "")}, true, true},
			{[]string{fmt.Sprintf(db, `{ipBlock: {cidr: 10.42.0.0/24, except: [10.42.0.8/30]}}`, "")}, false, true},
			{nil, true, true},
		}
		for round := range 2 {
			for i, s := range steps {
				l.hold(s.list...)
				for from, want := range map[string]bool{webIP: s.web, bankIP: s.bank} {
					to := dbIP + ":8080"
					if len(s.list) > 0 && strings.Contains(strings.Join(s.list, ""), "name: deny") && from == webIP {
						want = false // its own egress
					}
					l.opens(from, map[string]bool{to: want})
				}
				if t.Failed() {
					t.Fatalf("round %d, step %d", round, i)
				}
			}
		}
		l.listed = l.listed[:2] // pods that go
		l.hold(denyAll)
		l.listed = nil
		l.hold(denyAll)
	})
}

// What upstream's own tests of network policies try (k8s.io/kubernetes, test/e2e/network/netpol) and the others here do not: web,
// db and other are of shop, bank is of another namespace.
func TestUpstreamsOtherCases(t *testing.T) {
	inBoth(t, func(l *laptop) {
		t := l.t
		const (
			allow   = `{metadata: {name: allow}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}]}}`
			allowTo = `{metadata: {name: allow-to}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{}]}}`
		)
		db := func(rules string) string {
			return `{metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [` + rules + `]}}`
		}
		type from = map[string]bool // to db's port 8080
		for name, c := range map[string]struct {
			policies []string
			open     from
		}{
			"SCTP is not TCP":          {[]string{db(`{ports: [{protocol: SCTP, port: 8080}]}`)}, from{webIP: false, bankIP: false}},
			"UDP is not TCP":           {[]string{db(`{ports: [{protocol: UDP, port: 8080}]}`)}, from{webIP: false, bankIP: false}},
			"any port of a protocol":   {[]string{db(`{ports: [{protocol: TCP}]}`)}, from{webIP: true, bankIP: true}},
			"policies add up":          {[]string{db(`{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 9090}]}`), db(`{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}`)}, from{webIP: true, otherIP: false}},
			"all is more than none":    {[]string{allow, db("")}, from{webIP: true, bankIP: true}},
			"egress at the client":     {[]string{allow, `{metadata: {name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}}`}, from{webIP: false, otherIP: true, bankIP: true}},
			"egress, all is more":      {[]string{allowTo, `{metadata: {name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}}`}, from{webIP: true}},
			"match expressions":        {[]string{db(`{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [web, none]}]}}, {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}`)}, from{webIP: true, otherIP: false, bankIP: false}},
			"namespaces by their name": {[]string{db(`{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}]}`)}, from{webIP: false, bankIP: true}},
			"another namespace's say":  {[]string{`{metadata: {namespace: bank}, spec: {podSelector: {}, policyTypes: [Ingress]}}`}, from{webIP: true, bankIP: true}},
		} {
			list := l.policies(c.policies...)
			for i, p := range list { // of one name each
				p.Name = fmt.Sprintf("%s-%d", p.Name, i)
			}
			l.holdAll(list)
			for who, open := range c.open {
				l.opens(who, map[string]bool{dbIP + ":8080": open})
			}
			if t.Failed() {
				t.Fatal(name)
			}
		}
		// Labels that change, of pods and of namespaces.
		list := l.policies(db(`{from: [{podSelector: {matchLabels: {app: web}}}, {namespaceSelector: {matchLabels: {team: c}}}]}`))
		s := l.state(list) // the pods are the same list
		must(t, l.writer.write(t.Context(), s))
		l.opens(webIP, map[string]bool{dbIP + ":8080": true})
		l.opens(bankIP, map[string]bool{dbIP + ":8080": false})
		l.listed[0].Labels = map[string]string{"app": "new"}
		s.Namespaces["bank"] = map[string]string{"team": "c"}
		must(t, l.writer.write(t.Context(), s))
		l.opens(webIP, map[string]bool{dbIP + ":8080": false})
		l.opens(bankIP, map[string]bool{dbIP + ":8080": true})
		l.listed[1].Labels = map[string]string{"app": "new"} // db is selected no more
		must(t, l.writer.write(t.Context(), s))
		l.opens(webIP, map[string]bool{dbIP + ":8080": true})
	})
}

// Pods of one bridge have addresses of the link besides, which no policy names: of them they have neighbour discovery, and nothing else.
func TestPodsDoNotMeetByAddressesOfTheLink(t *testing.T) {
	l := newLaptop(t, ipv6)
	linkLocal := func(ip string) (address string) {
		l.in(l.pods[ip], func() {
			eth0, err := netlink.LinkByName("eth0")
			must(t, err)
			for address == "" { // until it is known that nobody else has it
				list, err := netlink.AddrList(eth0, netlink.FAMILY_V6)
				must(t, err)
				for _, a := range list {
					if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
						address = a.IP.String()
					}
				}
				if address == "" {
					must(t, t.Context().Err())
					time.Sleep(50 * time.Millisecond)
				}
			}
			l.serve("[" + address + "%eth0]:8080")
		})
		return address
	}
	// The bridge's own is what the node could be asked at.
	bridge, err := netlink.LinkByName("cni0")
	must(t, err)
	must(t, netlink.AddrReplace(bridge, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}))
	l.serve("[fe80::1%cni0]:6443")
	db := linkLocal(dbIP)
	dial := func(to string) (err error) {
		l.in(l.pods[webIP], func() {
			var c net.Conn
			if c, err = net.DialTimeout("tcp6", to, moment); err == nil {
				c.Close()
			}
		})
		return err
	}
	pod, node := "["+db+"%eth0]:8080", "[fe80::1%eth0]:6443"
	if err := errors.Join(dial(pod), dial(node)); err != nil {
		t.Fatalf("without policies: %v", err)
	}
	l.hold(denyAll)
	if dial(pod) == nil || dial(node) == nil {
		t.Error("a pod that may talk to nobody does so by an address of the link")
	}
	l.hold(`{metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{podSelector: {}}]}]}}`)
	l.opens(webIP, map[string]bool{dbIP + ":8080": true, bankIP + ":8080": false})
}

// Where a cluster has IPv4 alone its pods could speak IPv6 on their bridge all the same.
func TestAFamilyThatTheClusterDoesNotHaveIsClosed(t *testing.T) {
	l := newLaptop(t, ipv6)
	l.opens(webIP, map[string]bool{dbIP + ":8080": true, nodeIP + ":6443": true})
	l.writer.dns = netip.Addr{}
	l.hold(`{spec: {podSelector: {matchLabels: {app: none}}}}`)
	l.opens(webIP, map[string]bool{dbIP + ":8080": false, nodeIP + ":6443": false})
}

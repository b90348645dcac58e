package policy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	networkingv1 "k8s.io/api/networking/v1"
)

// laptop is a network namespace with the engine's bridge, pods on it, and a device that leads to pods at a peer, so that real
// packets meet the rules.
type laptop struct {
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

func newLaptop(t *testing.T) *laptop {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	l := &laptop{t: t, pods: map[string]netns.NsHandle{}, writer: &writer{
		dns: netip.MustParseAddr(dnsIP), group: guestGroup,
	}}
	l.self = l.space()
	for key, value := range map[string]string{"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"} {
		if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(t, netlink.LinkAdd(bridge))
	must(t, netlink.LinkSetUp(bridge))
	l.address("cni0", "10.42.0.1/24")
	l.address("lo", nodeIP+"/32")
	for _, p := range []Pod{
		pod("shop", webIP, "app=web"), pod("shop", dbIP, "app=db"), pod("shop", otherIP, "app=other"), pod("bank", bankIP, "app=bank"),
	} {
		l.pod(p, "cni0", "10.42.0.1")
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
		a, err := netlink.ParseAddr(cidr)
		must(l.t, err)
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

func (l *laptop) pod(p Pod, bridge, router string) {
	l.t.Helper()
	ip := p.Address.String()
	ns := l.plug("veth"+ip[strings.LastIndexByte(ip, '.')+1:], bridge)
	l.pods[ip], l.listed = ns, append(l.listed, p)
	l.in(ns, func() {
		l.address("eth0", ip+"/24")
		must(l.t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(router)}))
		l.serve(ip + ":8080")
		l.serve(ip + ":9090")
		l.echo(ip + ":5353")
	})
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
		must(l.t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.76.0.1")}))
	})
	l.listed = append(l.listed, pod("shop", guestIP, "app=guest"))
}

// guest is one of the peer's here. What it sends is read as its home would.
func (l *laptop) guest() {
	l.t.Helper()
	ns := l.plug("tenant", "")
	link, err := netlink.LinkByName("tenant")
	must(l.t, err)
	must(l.t, netlink.LinkSetGroup(link, guestGroup))
	must(l.t, os.WriteFile("/proc/sys/net/ipv4/conf/tenant/proxy_arp", []byte("1"), 0))
	tunnel, err := netlink.LinkByName("kith0")
	must(l.t, err)
	must(l.t, netlink.RouteAdd(&netlink.Route{Dst: prefix(tenantIP + "/32"), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}))
	must(l.t, netlink.RouteAdd(&netlink.Route{Dst: prefix("10.42.0.0/16"), Gw: net.ParseIP(guestIP), LinkIndex: tunnel.Attrs().Index, Table: 77}))
	rule, marked := netlink.NewRule(), netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = prefix("10.65.1.0/24"), 77, 60
	marked.Mark, marked.Table, marked.Priority = 1, 254, 50
	must(l.t, errors.Join(netlink.RuleAdd(rule), netlink.RuleAdd(marked)))
	l.address("tenant", "10.65.1.1/32")
	// To guests the owner's pods are the host.
	l.nft(`table ip guests { chain pre { type filter hook prerouting priority mangle; iifname "tenant" ct direction reply ct status snat meta mark set 1; };
		chain post { type nat hook postrouting priority srcnat; iifname "cni0" oifname "tenant" masquerade; }; }`)
	l.in(ns, func() {
		l.address("eth0", tenantIP+"/32")
		eth0, err := netlink.LinkByName("eth0")
		must(l.t, err)
		must(l.t, netlink.RouteAdd(&netlink.Route{Dst: prefix("0.0.0.0/0"), LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK}))
		l.serve(tenantIP + ":8080")
	})
	l.pods[tenantIP] = ns
	home := l.pods[guestIP]
	l.in(home, func() {
		l.address("lo", otherIP+"/32")
		l.serve(otherIP + ":8080")
	})
	l.pods["home"] = home
	l.listed = append(l.listed, pod("shop-q4zkx2a", tenantIP, "app=tenant"))
}

func prefix(cidr string) *net.IPNet {
	_, n, _ := net.ParseCIDR(cidr)
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
	c.Stdin = strings.NewReader(rules)
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// serve tells whoever connects who he is, and then echoes.
func (l *laptop) serve(at string) {
	l.t.Helper()
	listener, err := net.Listen("tcp4", at)
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
	c, err := net.ListenPacket("udp4", at)
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
	l.holdAll(policies(l.t, manifests...))
}

func (l *laptop) holdAll(list []*networkingv1.NetworkPolicy) {
	l.t.Helper()
	must(l.t, l.writer.write(l.t.Context(), compile(state(list, l.listed...))))
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
		if ip := net.ParseIP(from); network == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		} else {
			d.LocalAddr = &net.UDPAddr{IP: ip}
		}
		if c, err = d.Dial(network+"4", at); err != nil {
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
	l := newLaptop(t)
	everywhere := map[string]bool{dbIP + ":8080": true, bankIP + ":8080": true, guestIP + ":8080": true, serviceIP + ":80": true, dnsIP + ":53": true, nodeIP + ":6443": true, "udp://" + dbIP + ":5353": true}
	l.opens(webIP, everywhere)
	l.hold(`{metadata: {namespace: bank}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}`)
	everywhere[bankIP+":8080"] = false
	l.opens(webIP, everywhere)
	must(t, l.writer.remove(t.Context()))
	everywhere[bankIP+":8080"] = true
	l.opens(webIP, everywhere)
}

func TestDefaultDeny(t *testing.T) {
	l := newLaptop(t)
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
}

func TestWhatIsForbiddenIsToldAtOnce(t *testing.T) {
	l := newLaptop(t)
	l.hold(denyAll)
	for _, from := range []string{webIP, bankIP} {
		var timeout net.Error
		if _, err := l.try(from, "tcp://"+dbIP+":8080", enough); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: %v, want an answer", from, err)
		}
	}
}

func TestAllowedByLabelsAndPorts(t *testing.T) {
	l := newLaptop(t)
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
}

func TestEgressNamesTheOtherEnd(t *testing.T) {
	l := newLaptop(t)
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
}

// What goes between home and pods at a peer passes here, and is held to the policies in both directions.
func TestPodsAtAPeerAreHeldToPoliciesAtHome(t *testing.T) {
	l := newLaptop(t)
	l.hold(denyAll, `{metadata: {name: guests}, spec: {podSelector: {matchLabels: {app: guest}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]}}`,
		`{metadata: {name: home}, spec: {podSelector: {matchLabels: {app: web}}, egress: [{}]}}`,
		`{metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: guest}}}]}], egress: [{}]}}`)
	l.opens(webIP, map[string]bool{guestIP + ":8080": true})
	l.opens(dbIP, map[string]bool{guestIP + ":8080": false})
	l.opens(guestIP, map[string]bool{dbIP + ":8080": true, serviceIP + ":80": true, webIP + ":8080": false, bankIP + ":8080": false, nodeIP + ":6443": false})
	l.opens(strangerIP, map[string]bool{bankIP + ":8080": false})
}

// What a home and its guests here send each other names pods of that home, though pods here have the same addresses.
func TestAHomeMayHaveTheAddressesOfPodsHere(t *testing.T) {
	l := newLaptop(t)
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
}

// A new policy holds for connections that are open; answers to those that a pod may open pass.
func TestAPolicyHoldsForConnectionsThatAreOpen(t *testing.T) {
	l := newLaptop(t)
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
}

// Whatever changes is one transaction, and only what changed: whoever is not meant loses no packet.
func TestFromOneTableToAnother(t *testing.T) {
	l := newLaptop(t)
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
}

// What upstream's own tests of network policies try (k8s.io/kubernetes, test/e2e/network/netpol) and the others here do not: web,
// db and other are of shop, bank is of another namespace.
func TestUpstreamsOtherCases(t *testing.T) {
	l := newLaptop(t)
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
		list := policies(t, c.policies...)
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
	list := policies(t, db(`{from: [{podSelector: {matchLabels: {app: web}}}, {namespaceSelector: {matchLabels: {team: c}}}]}`))
	s := state(list, l.listed...) // the pods are the same list
	must(t, l.writer.write(t.Context(), compile(s)))
	l.opens(webIP, map[string]bool{dbIP + ":8080": true})
	l.opens(bankIP, map[string]bool{dbIP + ":8080": false})
	l.listed[0].Labels = map[string]string{"app": "new"}
	s.Namespaces["bank"] = map[string]string{"team": "c"}
	must(t, l.writer.write(t.Context(), compile(s)))
	l.opens(webIP, map[string]bool{dbIP + ":8080": false})
	l.opens(bankIP, map[string]bool{dbIP + ":8080": true})
	l.listed[1].Labels = map[string]string{"app": "new"} // db is selected no more
	must(t, l.writer.write(t.Context(), compile(s)))
	l.opens(webIP, map[string]bool{dbIP + ":8080": true})
}

//go:build lab

package e2e

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/test/lab"
)

// TestHostilePacketsInTheTunnel: three homes of equal ranges have guests at bob. One of them, with its real key and its contract, writes its
// packets by hand instead of running kithd. What arrives is what its own guest may hear; all else is seen nowhere at bob.
func TestHostilePacketsInTheTunnel(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 4})
	bob, homes := l.Laptop("bob"), []*lab.Laptop{l.Laptop("alice"), l.Laptop("carol"), l.Laptop("dave")}
	kubectl(t, bob, "create", "namespace", "den")
	addressesFrom(t, bob, "10.42.0.100")
	apply(t, bob, place("mine", "den", "bob"))
	guests := map[string]string{}
	for _, home := range homes {
		befriend(t, home, bob, "--cpu", "200m", "--memory", "128Mi", "--pods", "4")
		kubectl(t, home, "create", "namespace", "shop")
		kith(t, home, "offload", "shop")
		apply(t, home, solo("desk", home.Name())+"---"+solo("guest", "kith-bob"))
	}
	for _, home := range homes {
		for _, p := range waitReady(t, home, 2, "-n", "shop") {
			if p.Metadata.Name == "guest" {
				guests[home.Name()] = p.Status.PodIP
			}
		}
		homeReaches(t, home, guests[home.Name()])
	}
	mine := waitReady(t, bob, 1, "-n", "den")[0].Status.PodIP

	alice := homes[0]
	key, pair := wireGuardOf(t, alice, "bob")
	carols := pairOf(t, homes[1], "bob")
	bobsKey, _ := wireGuardOf(t, bob, "alice")
	if err := alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	rogue := newRogue(t, alice, bob, key, bobsKey.public(t), pair)
	seen := watchPackets(t, bob)
	me := netip.MustParseAddr(pair.homeAddress)

	at := func(p *lab.Laptop) string {
		a, err := p.Address()
		if err != nil {
			t.Fatal(err)
		}
		return a.String()
	}
	type packet struct {
		what     string
		src, dst string
		change   func(inner []byte) []byte // of the packet inside
		outer    func(whole []byte)
		open     bool   // it arrives
		may      string // where it may be seen, and nowhere else
	}
	link := strings.Fields(printed(t, bob, "ip", "-o", "route", "get", guests["alice"]))[2] // GUEST dev LINK …
	list := []packet{{what: "her own guest", dst: guests["alice"], open: true}}
	for what, dst := range map[string]string{
		"bob's own pod": mine, "bob's node": "10.42.255.1", "bob's bridge": "10.42.0.1", "bob on the LAN": at(bob), "carol on the LAN": at(homes[1]),
		"bob himself": "127.0.0.1", "carol's guest": guests["carol"], "dave's guest": guests["dave"], "bob's API server, by its service": "10.43.0.1",
		"the cluster's DNS": "10.43.0.10", "the internet": "198.51.100.7", "all hosts": "224.0.0.1", "everybody": "255.255.255.255", "a cloud's credentials": "169.254.169.254",
	} {
		list = append(list, packet{what: what, dst: dst})
	}
	for what, src := range map[string]string{
		"bob himself": "127.0.0.1", "bob's own pod": mine, "bob's node": "10.42.255.1", "carol's guest": guests["carol"], "bob on the LAN": at(bob), "carol on the LAN": at(homes[1]),
		"her own guest there": guests["alice"], "nobody": "0.0.0.0", "everybody": "255.255.255.255", "many": "224.0.0.1", "the internet": "198.51.100.7",
	} {
		if strings.HasPrefix(src, "10.42.") {
			continue // such is of her own address space too: the same pod of hers, to her guest
		}
		list = append(list, packet{what: "her own guest, as " + what, src: src, dst: guests["alice"]})
	}
	list = append(list,
		packet{what: "carol's guest, in carol's name", dst: guests["carol"], outer: func(b []byte) { copy(b[12:16], carols.called.AsSlice()) }},
		packet{what: "her own guest, in carol's name", dst: guests["alice"], outer: func(b []byte) { copy(b[12:16], carols.called.AsSlice()) }},
		packet{what: "her own guest, by a route of hers", dst: guests["alice"], change: func(p []byte) []byte { return withOptions(p, 131, 7, 4, 10, 42, 0, 1) }}, // loose source route
		packet{what: "her own guest, longer than it is", dst: guests["alice"], change: func(p []byte) []byte { binary.BigEndian.PutUint16(p[2:], uint16(len(p)+40)); return sealed(p) }},
		packet{what: "her own guest, shorter than its header", dst: guests["alice"], change: func(p []byte) []byte { p[0] = 0x44; return sealed(p) }},
		packet{what: "IPv6 in its place", dst: guests["alice"], outer: func(b []byte) { b[9] = 41 }},
		packet{what: "bob's own pod, inside what is for her guest", dst: guests["alice"], change: func(p []byte) []byte { return nested(p, me, netip.MustParseAddr(mine)) }, may: "device " + link},
		packet{what: "bob's own pod, a first fragment", dst: mine, change: func(p []byte) []byte { binary.BigEndian.PutUint16(p[6:], 0x2000); return sealed(p) }},
		packet{what: "bob's own pod, a later fragment", dst: mine, change: func(p []byte) []byte { binary.BigEndian.PutUint16(p[6:], 0x0003); return sealed(p) }},
	)
	for i, p := range list {
		arrives := true
		t.Run(p.what, func(t *testing.T) {
			arrives = false
			src := me
			if p.src != "" {
				src = netip.MustParseAddr(p.src)
			}
			mark := fmt.Sprintf("kith-hostile-%03d;", i)
			send := func() {
				inner := datagram(src, netip.MustParseAddr(p.dst), []byte(mark))
				if p.change != nil {
					inner = p.change(inner)
				}
				rogue.send(inner, p.outer)
			}
			if p.open {
				eventually(t, 20*time.Second, "what may arrive does", func() string {
					send()
					return seen.notYet(mark)
				})
				arrives = true
				return
			}
			for range 3 {
				send()
			}
			rogue.beacon(t, me, netip.MustParseAddr(guests["alice"]), seen, fmt.Sprintf("kith-beacon-%03d;", i)) // what was sent before it has arrived, too
			arrives = true
			for _, where := range seen.where(mark) {
				if where != p.may {
					t.Errorf("arrived at %s", where)
				}
			}
		})
		if !arrives {
			t.Fatalf("nothing arrives any more; bob's gateway dropped %v", scrape(t, bob)["kith_gateway_dropped_packets_total"])
		}
	}
	t.Run("noise", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2)) // the same on each run
		for range 20_000 {
			b := datagram(me, netip.MustParseAddr(guests["alice"]), make([]byte, random.IntN(600)))
			for range random.IntN(8) {
				b[random.IntN(len(b))] = byte(random.Uint32())
			}
			rogue.send(b[:random.IntN(len(b))+1], nil)
		}
		rogue.beacon(t, me, netip.MustParseAddr(guests["alice"]), seen, "kith-beacon-noise;")
	})
	dropped := scrape(t, bob)["kith_gateway_dropped_packets_total"]
	for _, reason := range []string{"malformed", "sender", "destination", "ipv6"} {
		if n, _ := valueOf(dropped, "reason="+reason); n == 0 {
			t.Errorf("bob's gateway counts nothing under %s", reason)
		}
	}
	rogue.dev.Close()
	if err := alice.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, home := range homes {
		eventually(t, 30*time.Second, home.Name()+" reaches its guest afterwards", func() string {
			if err := dial(t, home, "shop", "desk", guests[home.Name()]+":8080"); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// printed is what a program of a laptop prints.
func printed(t *testing.T, p *lab.Laptop, command ...string) string {
	t.Helper()
	out, stderr, err := p.Exec(t.Context(), command...)
	if err != nil {
		t.Fatalf("%s: %v: %v: %s", p.Name(), command, err, stderr)
	}
	return out
}

// homeReaches: a home its own guest at bob, and nobody else's there.
func homeReaches(t *testing.T, home *lab.Laptop, guest string) {
	t.Helper()
	eventually(t, 20*time.Second, home.Name()+" reaches its guest", func() string {
		if err := dial(t, home, "shop", "desk", guest+":8080"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// privateKey is a WireGuard key as its file has it.
type privateKey []byte

// agreed is what a laptop and a peer agreed on, as far as somebody needs it who writes packets by hand.
type agreed struct {
	handle, called netip.Addr
	homeAddress    string // of a pod at home
}

func pairOf(t *testing.T, p *lab.Laptop, peer string) agreed {
	t.Helper()
	var network v1alpha1.NetworkStatus
	if err := json.Unmarshal([]byte(kubectl(t, p, "get", "peer", peer, "-o", "jsonpath={.status.network}")), &network); err != nil {
		t.Fatal(err)
	}
	pair, err := network.Pair(netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	return agreed{handle: pair.Handle(), called: pair.Called(), homeAddress: "10.42.0.2"}
}

func wireGuardOf(t *testing.T, p *lab.Laptop, peer string) (privateKey, agreed) {
	t.Helper()
	text, err := os.ReadFile(p.Path("/var/lib/kith/wireguard.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return key, pairOf(t, p, peer)
}

func (k privateKey) public(t *testing.T) string {
	t.Helper()
	private, err := ecdh.X25519().NewPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(private.PublicKey().Bytes())
}

// rogue is a laptop's WireGuard without its gateway.
type rogue struct {
	dev  *device.Device
	tun  *tuntest.ChannelTUN
	pair agreed
}

func newRogue(t *testing.T, from, to *lab.Laptop, key privateKey, peer string, pair agreed) *rogue {
	t.Helper()
	address, err := to.Address()
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{tun: tuntest.NewChannelTUN(), pair: pair}
	r.dev = device.NewDevice(r.tun.TUN(), conn.NewStdNetBind(), device.NewLogger(device.LogLevelError, "rogue: "))
	t.Cleanup(r.dev.Close)
	const port = 6450
	if err := from.InNetwork(func() error {
		// The device also comes up by itself, by an event, in the network of the test. Its sockets are made anew with each change of the port,
		// so that is set last.
		if err := r.dev.Up(); err != nil {
			return err
		}
		return r.dev.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\n",
			hex.EncodeToString(key), port, peer, netip.AddrPortFrom(address, port)))
	}); err != nil {
		t.Fatal(err)
	}
	go func() { // what comes back is read by nobody
		for range r.tun.Inbound {
		}
	}()
	return r
}

// send has a packet go through the tunnel, in the header that tells peers from each other.
func (r *rogue) send(inner []byte, change func([]byte)) {
	b := make([]byte, 20, 20+len(inner))
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_IPIP
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(inner)))
	copy(b[12:], r.pair.called.AsSlice())
	copy(b[16:], r.pair.handle.AsSlice())
	b = append(b, inner...)
	if change != nil {
		change(b)
	}
	r.tun.Outbound <- b
}

// beacon is sent until it arrived: the tunnel is up then, and keeps order.
func (r *rogue) beacon(t *testing.T, src, dst netip.Addr, seen *watched, mark string) {
	t.Helper()
	eventually(t, 20*time.Second, "an honest packet arrives behind the others", func() string {
		r.send(datagram(src, dst, []byte(mark)), nil)
		return seen.notYet(mark)
	})
}

// datagram is an IPv4 packet with one of UDP, to a port that nobody has.
func datagram(src, dst netip.Addr, payload []byte) []byte {
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(28+len(payload)))
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[20:], 40000)
	binary.BigEndian.PutUint16(p[22:], 40001)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(payload))) // without a checksum, as IPv4 allows
	return sealed(append(p, payload...))
}

// sealed has the header's checksum right.
func sealed(p []byte) []byte {
	p[10], p[11] = 0, 0
	sum, size := uint32(0), max(20, int(p[0]&15)*4)
	for i := 0; i < size; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return p
}

// withOptions puts options into the header, filled up to whole words.
func withOptions(p []byte, options ...byte) []byte {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	p = append(append(bytes.Clone(p[:20]), options...), p[20:]...)
	p[0] = 0x40 | byte(5+len(options)/4)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	return sealed(p)
}

// nested carries a packet for somebody else (RFC 2003).
func nested(p []byte, src, dst netip.Addr) []byte {
	inner := datagram(src, dst, p[28:])
	out := append(bytes.Clone(p[:20]), inner...)
	out[9] = unix.IPPROTO_IPIP
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	return sealed(out)
}

// watched is what marks were seen where in a laptop: on any device of it but the tunnel's own, and by a program of it.
type watched struct {
	mu sync.Mutex
	at map[string][]string
}

func (w *watched) where(mark string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.at[mark])
}

func (w *watched) notYet(mark string) string {
	for deadline := time.Now().Add(time.Second); len(w.where(mark)) == 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if len(w.where(mark)) == 0 {
		return mark + " was seen nowhere"
	}
	return ""
}

func (w *watched) saw(where string, packet []byte) {
	for {
		i := bytes.Index(packet, []byte("kith-"))
		if i < 0 {
			return
		}
		packet = packet[i:]
		if end := bytes.IndexByte(packet, ';'); end > 0 && end < 32 {
			w.mu.Lock()
			if mark := string(packet[:end+1]); !slices.Contains(w.at[mark], where) {
				w.at[mark] = append(w.at[mark], where)
			}
			w.mu.Unlock()
		}
		packet = packet[5:]
	}
}

func watchPackets(t *testing.T, p *lab.Laptop) *watched {
	t.Helper()
	w := &watched{at: map[string][]string{}}
	var fd int
	var udp net.PacketConn
	names := map[int]string{}
	if err := p.InNetwork(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			return err
		}
		links, err := net.Interfaces()
		for _, link := range links {
			names[link.Index] = link.Name
		}
		if err == nil {
			udp, err = net.ListenPacket("udp4", ":40001")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	var done sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); udp.Close(); done.Wait(); unix.Close(fd) })
	done.Go(func() {
		b := make([]byte, 64<<10)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				continue // nothing came for a moment
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && names[ll.Ifindex] != netplan.Tunnel {
				w.saw("device "+names[ll.Ifindex], b[:n])
			}
		}
	})
	done.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, _, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			w.saw("a program of "+p.Name(), b[:n])
		}
	})
	return w
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/conn/bindtest"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"kith.dev/core/net/gateway/datapath"
	"kith.dev/core/net/netplan"
)

// up is that of a tunnel that works.
func up() *atomic.Bool {
	b := new(atomic.Bool)
	b.Store(true)
	return b
}

// awaits calls await and tells when it returned.
func awaits(p *inFlight) <-chan time.Time {
	c := make(chan time.Time, 1)
	go func() { p.await(); c <- time.Now() }()
	return c
}

func waiting(c <-chan time.Time) bool { return len(c) == 0 }

func TestAFullPipeWaitsUntilSomethingCameOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newInFlight()
		p.enter(room - 1)
		p.await() // there is room for one
		p.enter(10)
		one, other := awaits(p), awaits(p)
		synctest.Wait()
		p.begin()
		p.end(9)
		synctest.Wait()
		if !waiting(one) || !waiting(other) {
			t.Fatal("a full pipe lets somebody in")
		}
		p.leave(1)
		synctest.Wait()
		if waiting(one) || waiting(other) {
			t.Error("somebody waits although there is room")
		}
	})
}

func TestAPipeForgetsWhatWasDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newInFlight()
		start := time.Now()
		p.enter(room)
		if took := (<-awaits(p)).Sub(start); took != lost {
			t.Errorf("waited %s for packets that were dropped, want %s", took, lost)
		}
		p.end(room) // they come after all
		if in := p.in.Load(); in != 0 {
			t.Errorf("%d are inside of an empty pipe", in)
		}
	})
}

// A socket may be blocked for long, when the network is slow.
func TestAPipeDoesNotForgetWhileSomethingIsOnItsWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newInFlight()
		p.enter(room)
		p.begin()
		c := awaits(p)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !waiting(c) {
			t.Fatal("a pipe that is blocked lets more in")
		}
		p.end(1)
		synctest.Wait()
		if waiting(c) {
			t.Error("somebody waits although there is room")
		}
	})
}

func TestMessagesThatWireGuardLeavesAreNotInside(t *testing.T) {
	taken, packet := make([]byte, 2000), make([]byte, 100)
	packet[0] = device.MessageTransportType
	b := newBind(nil, func() {}, newInFlight(), newInFlight())
	receive := b.receive(func(bufs [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
		for i := range 3 {
			sizes[i] = copy(bufs[i], packet)
		}
		sizes[2] = device.MessageKeepaliveSize
		return 3, nil
	})
	bufs, sizes, from := [][]byte{make([]byte, 2000), make([]byte, 2000), make([]byte, 2000)}, make([]int, 3), make([]conn.Endpoint, 3)
	_, _ = receive(bufs, sizes, from)
	if in := b.inbound.in.Load(); in != 2 {
		t.Errorf("%d inside after two packets and a keepalive", in)
	}
	bufs[1] = taken // WireGuard keeps that of the second, and nobody has a key for the first
	_, _ = receive(bufs, sizes, from)
	if in := b.inbound.in.Load(); in != 3 {
		t.Errorf("%d inside, want the one that was taken and two that came now", in)
	}
}

// A pod may send on and on to a peer that is away.
func TestWhatIsForATunnelThatIsDownKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEndless(0, "10.45.0.0/16", "10.46.0.0/16")
		d.open.Store(true)
		state := up()
		tap := tapOf(d, state)
		bufs, sizes := make([][]byte, batch), make([]int, batch)
		for i := range bufs {
			bufs[i] = make([]byte, 2000)
		}
		read := func() time.Duration {
			start := time.Now()
			for range 10 * room / batch {
				if n, err := tap.Read(bufs, sizes, 16); n != batch || sizes[0] == 0 || err != nil {
					t.Fatalf("read %d packets, the first of %d bytes: %v", n, sizes[0], err)
				}
			}
			return time.Since(start)
		}
		if read() == 0 {
			t.Error("a tunnel that is up and sends nothing does not fill the pipe")
		}
		state.Store(false)
		tap.outbound.leave(10 * room)
		if took := read(); took != 0 {
			t.Errorf("waited %s for packets that nobody takes", took)
		}
	})
}

// TestWireGuardTakesInNoMoreThanAPipeHolds has two of WireGuard's devices with endless packets at one of them; then the
// network, or the device at the other end, takes nothing for a while.
func TestWireGuardTakesInNoMoreThanAPipeHolds(t *testing.T) {
	for _, direction := range []string{"outbound", "inbound"} {
		t.Run(direction, func(t *testing.T) {
			binds := bindtest.NewChannelBinds()
			here, there := &network{Bind: binds[0]}, &network{Bind: binds[1]}
			from, to := newEndless(0, "10.45.0.0/16", "10.46.0.0/16"), newEndless(1, "10.46.0.0/16", "10.45.0.0/16")
			acquaint(t, bareOf(t, from, here), bareOf(t, to, there))
			t.Cleanup(func() { // while both are open: bindtest waits for ever to send to one that was closed
				to.blocked.Store(false)
				for _, n := range []*network{here, there} {
					n.blocked.Store(false)
					n.ended.Store(true)
					eventually(t, "nothing is on its way", func() bool { return n.sending.Load() == 0 })
				}
			})
			from.open.Store(true)
			eventually(t, "packets pass", func() bool { return to.written.Load() > 10*room })

			blocked, inside := &here.blocked, func() int64 { return from.read.Load() - here.sent.Load() }
			if direction == "inbound" {
				blocked, inside = &to.blocked, func() int64 { return there.received.Load() - to.written.Load() }
			}
			blocked.Store(true)
			eventually(t, "the pipe is full", func() bool { return inside() >= room })
			time.Sleep(5 * lost)
			if n := inside(); n > room+2*batch {
				t.Errorf("%d packets inside, want at most %d", n, room+2*batch)
			}
			before := to.written.Load()
			blocked.Store(false)
			eventually(t, "packets pass again", func() bool { return to.written.Load() > before+10*room })
		})
	}
}

const batch = 128

// bare is one of WireGuard's devices between a tap and a bind of ours.
type bare struct {
	*device.Device
	key  PrivateKey
	kind *endless
}

func bareOf(t *testing.T, d *endless, n *network) *bare {
	t.Helper()
	tap := tapOf(d, up())
	bind := newBind(nil, func() {}, tap.outbound, tap.inbound)
	bind.Bind = n
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	w := &bare{Device: device.NewDevice(tap, bind, device.NewLogger(device.LogLevelError, t.Name())), key: key, kind: d}
	t.Cleanup(func() { d.blocked.Store(false); n.blocked.Store(false); w.Close() })
	return w
}

func tapOf(d *endless, state *atomic.Bool) *tap {
	own, pair := netip.MustParsePrefix(d.own), d.pair()
	var now atomic.Pointer[datapath.Table]
	now.Store(datapath.New(datapath.Host{Self: netip.MustParseAddr("10.47.0.1"), Pods: []netip.Prefix{own}}, []datapath.Peer{{Pair: pair, MTU: DefaultMTU, Up: state}}))
	return &tap{Device: d, table: &now, drops: new(datapath.Drops), outbound: newInFlight(), inbound: newInFlight(), transit: &transit{done: make(chan struct{})}}
}

// pair is what the two devices of a test agreed on, as this one has it.
func (d *endless) pair() netplan.Pair {
	theirs := netip.MustParsePrefix(d.theirs)
	if d.number == 0 {
		return netplan.Pair{There: theirs}
	}
	return netplan.Pair{Here: netip.MustParsePrefix(d.own), Space: []netip.Prefix{theirs}}
}

// acquaint makes peers of two devices; bindtest has the first at port 2 and the second at port 1.
func acquaint(t *testing.T, a, b *bare) {
	t.Helper()
	for _, p := range []struct {
		w, o *bare
		port int
	}{{a, b, 1}, {b, a, 2}} {
		settings := fmt.Sprintf("private_key=%s\nreplace_peers=true\npublic_key=%s\nallowed_ip=%s/32\nendpoint=127.0.0.1:%d\n",
			p.w.key.hex(), p.o.key.Public().hex(), p.w.kind.pair().Handle(), p.port)
		if err := errors.Join(p.w.IpcSet(settings), p.w.Up()); err != nil {
			t.Fatal(err)
		}
	}
}

// endless is a device with packets as many as anybody reads once it is open. It takes none while it is blocked.
type endless struct {
	number        int // 0: of a home, 1: of its provider
	own, theirs   string
	open, blocked atomic.Bool
	read, written atomic.Int64
	events        chan tun.Event
	closed        chan struct{}
}

func newEndless(number int, own, theirs string) *endless {
	return &endless{number: number, own: own, theirs: theirs, events: make(chan tun.Event), closed: make(chan struct{})}
}

func (d *endless) packet() []byte {
	p := make([]byte, 1000)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	src, dst := netip.MustParsePrefix(d.own).Addr().As4(), netip.MustParsePrefix(d.theirs).Addr().As4()
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	binary.BigEndian.PutUint16(p[2:], uint16(len(p))) // nobody looks at checksums here
	return p
}

func (d *endless) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		select {
		case <-d.closed:
			return 0, os.ErrClosed
		default:
		}
		if d.open.Load() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for i := range bufs {
		sizes[i] = copy(bufs[i][offset:], d.packet())
	}
	d.read.Add(int64(len(bufs)))
	return len(bufs), nil
}

func (d *endless) Write(bufs [][]byte, _ int) (int, error) {
	for d.blocked.Load() {
		time.Sleep(time.Millisecond)
	}
	d.written.Add(int64(len(bufs)))
	return len(bufs), nil
}

func (d *endless) File() *os.File           { return nil }
func (d *endless) MTU() (int, error)        { return DefaultMTU, nil }
func (d *endless) Name() (string, error)    { return "endless", nil }
func (d *endless) Events() <-chan tun.Event { return d.events }
func (d *endless) BatchSize() int           { return batch }

func (d *endless) Close() error {
	close(d.closed)
	close(d.events)
	return nil
}

// network takes nothing while it is blocked, and counts packets.
type network struct {
	conn.Bind
	blocked, ended atomic.Bool
	sent, received atomic.Int64
	sending        atomic.Int32
}

func (n *network) Send(bufs [][]byte, to conn.Endpoint) error {
	n.sending.Add(1)
	defer n.sending.Add(-1)
	for n.blocked.Load() {
		time.Sleep(time.Millisecond)
	}
	if n.ended.Load() {
		return net.ErrClosed
	}
	n.sent.Add(int64(countPackets(bufs)))
	return n.Bind.Send(bufs, to)
}

func (n *network) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, port, err := n.Bind.Open(port)
	for i, receive := range fns {
		fns[i] = func(bufs [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
			k, err := receive(bufs, sizes, from)
			for i := range k {
				n.received.Add(int64(countPackets([][]byte{bufs[i][:sizes[i]]})))
			}
			return k, err
		}
	}
	return fns, port, err
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

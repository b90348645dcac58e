package overlay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"kith.dev/core/net/hostnet"
)

// Ask has the gateway's node know whether it is heard here, until ctx ends. While no device is there, or the gateway is here, nobody is asked.
func (k *Kernel) Ask(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(k.every, asks))
	defer tick.Stop()
	var way *asking
	defer func() { way.close() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k.mu.Lock()
		plan := k.plan
		k.mu.Unlock()
		if plan == nil || !plan.Gateway.IsValid() {
			way.close()
			way = nil
			continue
		}
		if is, err := net.InterfaceByName(Device); err != nil || way == nil || way.index != is.Index {
			way.close()
			if way = nil; err != nil {
				continue // it is about to be made
			}
			if way, err = newAsking(is); err != nil {
				return err
			}
		}
		way.ask(hardware(plan.Gateway))
	}
}

// asking is one end of a way. What it asks under random numbers only who hears it can answer.
type asking struct {
	conn    *packet.Conn
	index   int
	missed  uint8
	number  uint64
	answers chan uint64
}

func newAsking(device *net.Interface) (*asking, error) {
	conn, err := listen(device)
	if err != nil {
		return nil, err
	}
	a := &asking{conn: conn, index: device.Index, answers: make(chan uint64, 16)}
	go func() {
		defer close(a.answers)
		_ = hear(conn, func(b beat, _ net.HardwareAddr) {
			if b.kind != answer {
				return
			}
			select {
			case a.answers <- b.number:
			default: // more than were asked for
			}
		})
	}()
	return a, nil
}

// ask looks whether the last question was answered, and asks the next.
func (a *asking) ask(gateway net.HardwareAddr) {
	heard := a.number == 0
	for waiting := true; waiting; {
		select {
		case n, open := <-a.answers:
			heard, waiting = heard || n == a.number, open
		default:
			waiting = false
		}
	}
	if a.missed = oneMore(a.missed); heard {
		a.missed = 0
	}
	var number [8]byte
	_, _ = rand.Read(number[:])
	a.number = binary.BigEndian.Uint64(number[:])
	_, _ = a.conn.WriteTo(beat{missed: a.missed, number: a.number}.bytes(), &packet.Addr{HardwareAddr: gateway}) // silence tells
}

// leave tells a gateway that this node turns to another. Nothing else depends on it: a gateway that hears nothing any more comes to the same.
func (k *Kernel) leave(gateway netip.Addr) {
	device, err := net.InterfaceByName(Device)
	if err != nil {
		return
	}
	conn, err := listen(device)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.WriteTo(beat{kind: farewell}.bytes(), &packet.Addr{HardwareAddr: hardware(gateway)})
}

func (a *asking) close() {
	if a != nil {
		a.conn.Close()
	}
}

// Listen answers the nodes that ask, on the gateway's, and remembers what they say, until ctx ends. changed is told when Cut may say something else.
func (w *Ways) Listen(ctx context.Context, kernel *hostnet.Changes, changed func()) error {
	links, stop, err := kernel.Listen(hostnet.Links)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer stop()
	for ctx.Err() == nil {
		if device, err := net.InterfaceByName(Device); err == nil {
			if err := w.answer(ctx, device, changed); err != nil && ctx.Err() == nil {
				select { // the device went, or is about to
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			continue
		}
		select {
		case <-ctx.Done():
		case _, open := <-links:
			if !open {
				return errors.New("the kernel tells of its network no more")
			}
		}
	}
	return nil
}

// answer works until the device is gone, or ctx ended.
func (w *Ways) answer(ctx context.Context, device *net.Interface, changed func()) error {
	conn, err := listen(device)
	if err != nil {
		return err
	}
	w.begin(time.Now(), portOf(device.Name))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		w.tell(ctx, changed)
		conn.Close()
	}()
	return hear(conn, func(b beat, from net.HardwareAddr) {
		node, ok := nodeOf(from)
		if b.kind == answer || !ok {
			return
		}
		w.note(node, b, time.Now())
		if b.kind == farewell {
			return
		}
		b.kind = answer
		_, _ = conn.WriteTo(b.bytes(), &packet.Addr{HardwareAddr: from})
	})
}

// tell looks now and then what became of whom nothing is heard any more.
func (w *Ways) tell(ctx context.Context, changed func()) {
	tick := time.NewTicker(w.pace())
	defer tick.Stop()
	was, sure := w.cuts(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			is, surely := w.cuts(now)
			if sure != surely || !maps.Equal(is, was) {
				was, sure = is, surely
				changed()
			}
		}
	}
}

func portOf(device string) int {
	link, err := netlink.LinkByName(device)
	if is, ok := link.(*netlink.Vxlan); err == nil && ok {
		return is.Port
	}
	return 0
}

func listen(device *net.Interface) (*packet.Conn, error) {
	conn, err := packet.Listen(device, packet.Datagram, etherType, nil)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for other nodes: %w; it needs NET_RAW", device.Name, err)
	}
	return conn, nil
}

// hear gives what is understood of what comes, until nothing can come any more.
func hear(conn *packet.Conn, each func(beat, net.HardwareAddr)) error {
	b := make([]byte, 256)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return err
		}
		of, ok := from.(*packet.Addr)
		if is, understood := readBeat(b[:n]); ok && understood {
			each(is, of.HardwareAddr)
		}
	}
}

package gateway

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// bind is the UDP socket of the tunnel: the standard one, with three of its ways mended, that tells of handshakes and counts what
// is inside WireGuard.
type bind struct {
	conn.Bind
	behind            interfaces
	tooBig            chan<- struct{}
	shook             func() // a handshake was answered from here, or something came
	handshakes        simultaneous
	outbound, inbound *inFlight
}

func newBind(tooBig chan<- struct{}, shook func(), outbound, inbound *inFlight) *bind {
	return &bind{
		Bind: conn.NewStdNetBind(), tooBig: tooBig, shook: shook, handshakes: simultaneous{sent: map[string]initiation{}},
		outbound: outbound, inbound: inbound,
	}
}

// Send mends batches. The standard bind hands the kernel many datagrams as one, which the kernel refuses when a
// single one exceeds the path's MTU; it fragments only those that come alone. So after such an error they are
// sent one by one, and the gateway is told to look at the path again and use smaller packets. Datagrams that had
// already left arrive twice; WireGuard's replay window drops the second.
func (b *bind) Send(bufs [][]byte, to conn.Endpoint) error {
	if len(bufs) == 1 {
		b.handshakes.leaving(bufs[0], to)
		b.note(bufs[0])
	}
	b.outbound.begin()
	defer b.outbound.end(countPackets(bufs))
	to, err := b.behind.scoped(to)
	if err != nil {
		return err
	}
	err = b.Bind.Send(bufs, to)
	if err == nil || !(errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL)) || len(bufs) < 2 {
		return err
	}
	select {
	case b.tooBig <- struct{}{}:
	default:
	}
	for i := range bufs {
		if err := b.Bind.Send(bufs[i:i+1], to); err != nil {
			return err
		}
	}
	return nil
}

// Open mends handshakes that cross on the wire. Interfaces may be others than when it was open before.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.behind.forget()
	fns, port, err := b.Bind.Open(port)
	for i := range fns {
		fns[i] = b.receive(fns[i])
	}
	return fns, port, err
}

func (b *bind) receive(receive conn.ReceiveFunc) conn.ReceiveFunc {
	var last []*byte // buffers of the packets that came last
	return func(bufs [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
		for i, p := range last {
			if p != nil && p == &bufs[i][0] {
				b.inbound.leave(1) // WireGuard did not take it
			}
		}
		last = last[:0]
		b.inbound.await()
		n, err := receive(bufs, sizes, from)
		packets := 0
		for k := range n {
			b.shook()
			message := bufs[k][:sizes[k]]
			if sizes[k] > 0 && b.handshakes.loses(message, from[k]) {
				sizes[k] = 0
			}
			var p *byte
			if carriesPacket(message) {
				p = &message[0]
				packets++
			}
			last = append(last, p)
		}
		b.inbound.enter(packets)
		return n, err
	}
}

func countPackets(messages [][]byte) (n int) {
	for _, m := range messages {
		if carriesPacket(m) {
			n++
		}
	}
	return n
}

// carriesPacket tells messages with a packet in them from handshakes and keepalives (WireGuard paper, section 5.4.6).
func carriesPacket(message []byte) bool {
	return len(message) > device.MessageKeepaliveSize && binary.LittleEndian.Uint32(message) == device.MessageTransportType
}

// note tells of messages that answer the beginning of a handshake (WireGuard paper, section 5.4.3).
func (b *bind) note(message []byte) {
	if len(message) == device.MessageResponseSize && binary.LittleEndian.Uint32(message) == device.MessageResponseType {
		b.shook()
	}
}

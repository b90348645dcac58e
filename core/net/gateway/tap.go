package gateway

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.zx2c4.com/wireguard/tun"

	"kith.dev/core/net/gateway/datapath"
)

// tap sits between the kernel's TUN device and WireGuard and translates what passes. Packets at this interface
// are single ones, split from the kernel's large segments, with complete checksums in both directions.
type tap struct {
	tun.Device
	table             *atomic.Pointer[datapath.Table]
	drops             *datapath.Drops
	outbound, inbound *inFlight
	transit           *transit
}

// Close has nobody wait for room any more.
func (d *tap) Close() error {
	d.transit.close()
	return d.Device.Close()
}

// MTU of what WireGuard carries: that of the device, and the header in front of each packet.
func (d *tap) MTU() (int, error) {
	mtu, err := d.Device.MTU()
	return mtu + datapath.Header, err
}

// Read gets packets that leave for the peers. WireGuard skips those of size 0.
func (d *tap) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	d.outbound.await()
	if n := d.transit.take(bufs, sizes, offset); n > 0 {
		if !datapath.IsQuestion(bufs[0][offset : offset+sizes[0]]) { // which may be for nobody that answers
			d.outbound.enter(n)
		}
		return n, nil
	}
	n, err := d.readGuarded(bufs, sizes, offset+datapath.Header)
	t, inside := d.table.Load(), 0
	for i := range n { // also with an error: ErrTooManySegments comes with packets
		sizes[i] += datapath.Header
		v, up := t.Egress(bufs[i][offset : offset+sizes[i]])
		if v != datapath.Pass {
			d.drops.Add(v)
			sizes[i] = 0
			continue
		}
		if up {
			inside++
		}
	}
	d.outbound.enter(inside)
	return n, err
}

// readGuarded keeps one odd packet from closing the tunnel for all. The tun package returns an error for, or
// panics on, segments whose offload header does not fit them, and WireGuard shuts down on any error but
// ErrTooManySegments. Errors of the device itself still go through.
func (d *tap) readGuarded(bufs [][]byte, sizes []int, offset int) (n int, err error) {
	defer func() {
		if recover() != nil {
			d.drops.Add(datapath.Malformed)
			n, err = 0, nil
		}
	}()
	n, err = d.Device.Read(bufs, sizes, offset)
	var errno syscall.Errno
	switch {
	case err == nil, errors.Is(err, tun.ErrTooManySegments):
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded): // there is something in transit
		return 0, nil
	case errors.Is(err, os.ErrClosed), errors.Is(err, io.EOF), errors.As(err, &errno):
		return n, err
	}
	d.drops.Add(datapath.Malformed)
	return 0, nil
}

// Write takes packets that arrived from a peer, which WireGuard knows by the header's source. Dropped ones are squeezed out of bufs, which
// the caller does not read again.
func (d *tap) Write(bufs [][]byte, offset int) (int, error) {
	d.inbound.begin()
	defer d.inbound.end(len(bufs))
	t := d.table.Load()
	kept, on := bufs[:0], [][]byte(nil)
	for _, b := range bufs {
		switch v, onward := t.Ingress(b[offset:]); {
		case v == datapath.Taken:
		case v != datapath.Pass:
			d.drops.Add(v)
		case onward:
			on = append(on, b[offset:])
		default:
			kept = append(kept, b)
		}
	}
	if len(on) > 0 {
		d.transit.put(on)
	}
	if len(kept) == 0 {
		return 0, nil
	}
	return d.Device.Write(kept, offset+datapath.Header)
}

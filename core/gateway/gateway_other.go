//go:build !linux

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"
)

// The device, its routes and the measurements are made for Linux. Elsewhere a Gateway keeps its peers, so that contracts can be
// made and pods run abroad, but Run says that there is no tunnel.
var errNoTunnel = errors.New("tunnels to peers need Linux, this is " + runtime.GOOS + ": pods run abroad, but pods here and there do not reach each other")

// engine is what carries packets: there is none.
type engine struct{}

func newEngine(context.Context, Config, *tap, func()) (*engine, error) { return nil, errNoTunnel }

func (*engine) close()               {}
func (*engine) setPeer(Peer) error   { return errNoTunnel }
func (*engine) removePeer(string)    {}
func (*engine) stats() map[Key]Stats { return nil }

func (*Gateway) syncLocked() error                    { return errNoTunnel }
func (*Gateway) greet(Peer)                           {}
func (*Gateway) watch(context.Context, *engine) error { return errNoTunnel }

// RTT measures the round trip through the tunnel: there is none.
func (*Gateway) RTT(context.Context, string) (time.Duration, error) { return 0, errNoTunnel }

// Echo is RTT with packets of so many bytes.
func (*Gateway) Echo(context.Context, string, int) (time.Duration, error) { return 0, errNoTunnel }

// LocalRanges lists the IPv4 ranges of this host's addresses, except for those of device.
func LocalRanges(device string) (out []netip.Prefix, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network devices: %w", err)
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil || l.Name == device {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				out = append(out, p.Masked())
			}
		}
	}
	return out, nil
}

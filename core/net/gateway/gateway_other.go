//go:build !linux

package gateway

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"time"
)

// The device, its routes and the measurements are made for Linux. Elsewhere a Gateway keeps its peers, so that contracts can be
// made, but Run says that there is no tunnel, and both sides' nodes for the other are NetworkUnavailable.
var errNoTunnel error = notHere("tunnels to peers need Linux, this is " + runtime.GOOS + ": peers are found and contracts are made, and no pods are sent there or taken in, but those that tolerate node.kubernetes.io/network-unavailable")

// notHere is an error that no later attempt mends.
type notHere string

func (e notHere) Error() string { return string(e) }

// Final reports that.
func (notHere) Final() bool { return true }

// wireguard is what carries packets: there is none.
type wireguard struct{}

func newWireGuard(context.Context, Config, *tap, func()) (*wireguard, error) { return nil, errNoTunnel }

func (*wireguard) close()                    {}
func (*wireguard) sync(map[Key]remote) error { return errNoTunnel }
func (*wireguard) stats() map[Key]Stats      { return nil }

func (*Gateway) syncLocked() error                       { return errNoTunnel }
func (*Gateway) greet(Peer)                              {}
func (*Gateway) watch(context.Context, *wireguard) error { return errNoTunnel }

// carrier is a connection that carries packets: there is none.
type carrier struct {
	Carriage
	at netip.AddrPort
}

func (*carrier) meeting() meeting { return meeting{} }

// Carry has packets go over a connection: there are none.
func (*Gateway) Carry(_ context.Context, _ string, over net.Conn, _ Carriage) error {
	over.Close()
	return errNoTunnel
}

// RTT measures the round trip through the tunnel: there is none.
func (*Gateway) RTT(context.Context, string) (time.Duration, error) { return 0, errNoTunnel }

// Echo is RTT with packets of so many bytes.
func (*Gateway) Echo(context.Context, string, int) (time.Duration, error) { return 0, errNoTunnel }

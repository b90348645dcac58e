//go:build !linux

package gateway

import (
	"context"
	"errors"
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

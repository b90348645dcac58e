//go:build !linux

package fence

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"time"
)

// Fence is made of nftables, which only Linux has. Elsewhere nothing is written: the cluster's pods do not run in this system's network
// then, but in a virtual machine or on other machines, and NetworkPolicy objects are what bounds guests there.
type Fence struct {
	cfg    Config
	astray astray
}

// New checks the configuration.
func New(cfg Config) (*Fence, error) { return &Fence{cfg: cfg}, cfg.check() }

func (*Fence) again() time.Duration { return 0 }

func (*Fence) asks() bool { return false }

// Heard does nothing.
func (*Fence) Heard(time.Time) {}

// Unbound are none.
func (*Fence) Unbound() ([]netip.Addr, error) { return nil, nil }

// Raise does nothing.
func (*Fence) Raise() error { return nil }

// Set does nothing.
func (*Fence) Set(Relations) error { return nil }

// Kept says that there is none.
func (*Fence) Kept() error { return errors.New("there is no fence on " + runtime.GOOS) }

// Run says once that there is no fence, and waits for the end.
func (f *Fence) Run(ctx context.Context) error {
	f.cfg.Log.Warn("guests are not fenced by this machine: only NetworkPolicy objects bound them, if the cluster's network plugin obeys those", "system", runtime.GOOS)
	<-ctx.Done()
	return nil
}

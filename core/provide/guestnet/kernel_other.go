//go:build !linux

package guestnet

import (
	"context"
	"log/slog"

	"kith.dev/core/net/netplan"
)

// Kernel is made of nftables, which only Linux has. Elsewhere nothing is written: no guest has a link here.
type Kernel struct{}

// New makes one.
func New(netplan.Cluster, *slog.Logger) *Kernel { return &Kernel{} }

// Raise does nothing.
func (*Kernel) Raise() error { return nil }

// Set only validates the tenants.
func (*Kernel) Set(tenants []Tenant) error { return check(tenants) }

// Run waits for the end.
func (*Kernel) Run(ctx context.Context) error { <-ctx.Done(); return nil }

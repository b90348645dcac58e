//go:build !linux

package guestnet

import "context"

// Kernel is made of nftables, which only Linux has. Elsewhere nothing is written: no guest has a link here.
type Kernel struct{}

// New checks the configuration.
func New(cfg Config) (*Kernel, error) { return &Kernel{}, cfg.check() }

// Raise does nothing.
func (*Kernel) Raise() error { return nil }

// Set only checks what it is told.
func (*Kernel) Set(tenants []Tenant) error { _, err := planOf(tenants); return err }

// Run waits for the end.
func (*Kernel) Run(ctx context.Context) error { <-ctx.Done(); return nil }

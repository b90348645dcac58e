//go:build !linux

package translate

import (
	"context"
	"log/slog"
	"net/netip"
)

const leads = false

// kernel is made of nftables, which only Linux has.
type kernel struct{}

func newKernel(netip.Addr, *slog.Logger) *kernel { return &kernel{} }

func (*kernel) set([]Tenant) error { return nil }

func (*kernel) answer(netip.AddrPort) error { return nil }

func (*kernel) beat(context.Context) {}

func (*kernel) run(ctx context.Context) error { <-ctx.Done(); return nil }

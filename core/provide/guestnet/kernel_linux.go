package guestnet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nft"
)

// Table is the name of the nftables table.
const Table = "kith-guests"

// Kernel keeps the nftables table that translates service addresses for guests; see the package comment. Safe for concurrent use.
type Kernel struct {
	network netplan.Cluster
	log     *slog.Logger

	mu     sync.Mutex
	wasSet bool        // Set was called; until then the table of the process before is kept
	want   []nft.Table // of IPv4, and of IPv6 where the cluster has it
	kept   nft.Keeper
}

// New makes a Kernel for guests in the cluster of these ranges; nothing is touched.
func New(network netplan.Cluster, log *slog.Logger) *Kernel {
	return &Kernel{network: network, log: log, want: tables(network, nil), kept: nft.Keeper{Name: Table, Log: log}}
}

// Raise makes the table without services, unless an earlier process left one, which has services and stays. Call it before any guest can start.
func (k *Kernel) Raise() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.Keep(k.want, k.wasSet)
}

// Set replaces the services of all tenants. Only what differs is changed, so connections go on.
func (k *Kernel) Set(tenants []Tenant) error {
	if err := check(tenants); err != nil {
		return fmt.Errorf("services of guests: %w", err)
	}
	k.mu.Lock()
	k.want, k.wasSet = tables(k.network, tenants), true
	k.mu.Unlock()
	return k.Raise()
}

// Run puts the table back when somebody takes it away, until ctx ends. The table stays then.
func (k *Kernel) Run(ctx context.Context) error {
	err := nft.Watch(ctx, nil, func() error {
		err := k.Raise()
		if err != nil {
			k.log.Warn("guests may not reach services by their addresses at home, trying again", "err", err)
		}
		return err
	}, &k.kept)
	if err != nil {
		return fmt.Errorf("network of guests: %w", err)
	}
	return nil
}

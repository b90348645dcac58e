package translate

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/google/nftables"

	"kith.dev/core/net/nft"
)

const leads = true

// kernel keeps the table. Safe for concurrent use.
type kernel struct {
	dns netip.Addr
	log *slog.Logger

	mu      sync.Mutex
	told    bool // set was called; until then the table of the process before is kept
	tenants []Tenant
	names   netip.AddrPort // of the server of names; the zero value: there is none
	kept    nft.Keeper
	busy    chan struct{} // there are guests, perhaps
}

func newKernel(dns netip.Addr, log *slog.Logger) *kernel {
	return &kernel{dns: dns, log: log, kept: nft.Keeper{Name: Table, Log: log}, busy: make(chan struct{}, 1)}
}

// set replaces all tenants. Only what differs is written, so connections go on.
func (k *kernel) set(tenants []Tenant) error {
	k.mu.Lock()
	k.told, k.tenants = true, tenants
	k.mu.Unlock()
	k.wake()
	return k.keep()
}

// answer leads guests' questions to a server of names for as long as beat runs, or with the zero value to the cluster's DNS.
func (k *kernel) answer(at netip.AddrPort) error {
	k.mu.Lock()
	k.names = at
	k.mu.Unlock()
	k.wake()
	return k.keep()
}

func (k *kernel) wake() {
	select {
	case k.busy <- struct{}{}:
	default:
	}
}

func (k *kernel) keep() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.told {
		return nil
	}
	return k.kept.Keep([]nft.Table{table(k.tenants, k.dns, k.names)}, true)
}

// beat has the kernel know that the server is alive, while there are guests, until ctx ends.
func (k *kernel) beat(ctx context.Context) {
	for {
		var again <-chan time.Time
		if k.renew() {
			again = time.After(answeredFor / 3)
		}
		select {
		case <-again:
		case <-k.busy:
		case <-ctx.Done():
			return
		}
	}
}

func (k *kernel) renew() (guests bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.told || !k.names.IsValid() || len(k.tenants) == 0 {
		return false
	}
	if err := k.kept.Renew(nftables.TableFamilyIPv4, answered(true)); err != nil {
		k.log.Debug("guests' questions go to the cluster's DNS for a moment", "err", err) // the table was taken away: it comes back, with this
	}
	return true
}

// run puts the table back when somebody takes it away, until ctx ends. It stays then.
func (k *kernel) run(ctx context.Context) error {
	err := nft.Watch(ctx, nil, func() error {
		err := k.keep()
		if err != nil {
			k.log.Warn("guests may not reach services by their addresses at home, trying again", "err", err)
		}
		return err
	}, &k.kept)
	if err != nil {
		return fmt.Errorf("addresses of guests' homes: %w", err)
	}
	return nil
}

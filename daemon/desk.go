package daemon

import (
	"context"
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/peering"
	"kith.dev/core/relations/provider"
)

var errNotReady = &peering.Problem{Code: peering.CodeUnavailable, Message: "the Kubernetes of this laptop is not ready", Do: "try again in a moment"}

// desk answers peers as soon as there is a cluster to answer from.
type desk struct{ d *Daemon }

var _ peering.Handler = desk{}

func (k desk) provider() (*provider.Provider, error) {
	if c := k.d.cluster.Load(); c != nil {
		return c.Provider, nil
	}
	return nil, errNotReady
}

func (k desk) Recognise(ctx context.Context, caller peering.Caller) bool {
	p, err := k.provider()
	return err == nil && p.Recognise(ctx, caller)
}

func (k desk) Compared(ctx context.Context, caller peering.Caller) bool {
	p, err := k.provider()
	return err == nil && p.Compared(ctx, caller)
}

func (k desk) Ask(ctx context.Context, caller peering.Caller, q peering.Question, code string, compare bool) (string, time.Time, error) {
	p, err := k.provider()
	if err != nil {
		return "", time.Time{}, err
	}
	return p.Ask(ctx, caller, q, code, compare)
}

func (k desk) Outcome(ctx context.Context, caller peering.Caller, id string) (peering.Outcome, error) {
	p, err := k.provider()
	if err != nil {
		return peering.Outcome{}, err
	}
	return p.Outcome(ctx, caller, id)
}

func (k desk) Withdraw(ctx context.Context, caller peering.Caller, id string) error {
	p, err := k.provider()
	if err != nil {
		return err
	}
	return p.Withdraw(ctx, caller, id)
}

func (k desk) Sign(ctx context.Context, caller peering.Caller, signed contract.Signed) (contract.Signed, error) {
	p, err := k.provider()
	if err != nil {
		return contract.Signed{}, err
	}
	return p.Sign(ctx, caller, signed)
}

func (k desk) Contracts(ctx context.Context, caller peering.Caller) ([]peering.ContractRef, error) {
	p, err := k.provider()
	if err != nil {
		return nil, err
	}
	return p.Contracts(ctx, caller)
}

func (k desk) End(ctx context.Context, caller peering.Caller, id string) error {
	p, err := k.provider()
	if err != nil {
		return err
	}
	return p.End(ctx, caller, id)
}

func (k desk) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	p, err := k.provider()
	if err != nil {
		return peering.Link{}, err
	}
	return p.Link(ctx, caller, theirs)
}

// Notices go to streams that may be older than the cluster part: the stream of a peer is open from the moment it
// sees this laptop. A peer that opens one is there, so it is looked for at once: whichever side finds the other first
// after a cut ends the waiting of both.
func (k desk) Notices(ctx context.Context, caller peering.Caller) <-chan peering.Notice {
	k.d.contacts.Poke(caller.ID)
	return k.d.notices.Subscribe(ctx, caller.ID)
}

package backend

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
)

// changes remembers the last change of a policy that this process made.
type changes struct {
	mu   sync.Mutex
	last *lastChange
}

// lastChange is what a policy was and is; made says that there was none of the name before.
type lastChange struct {
	was, is api.Policy
	made    bool
}

func (c *changes) note(l lastChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = &l
}

// get gives the last change; nil without one.
func (c *changes) get() *lastChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Undo takes the last change of a policy back, unless another one came after it.
func (b *Backend) Undo(ctx context.Context, dry api.DryRun) (api.Policy, error) {
	last := b.changes.get()
	if last == nil {
		return api.Policy{}, &api.Error{
			Code: api.CodeConflict, Message: "there is no change of sharing to take back", Reason: "none was made by `kith share` or in the tray since kithd started",
			Do: "`kith share` shows what is shared, and sets it",
		}
	}
	if last.made {
		return b.unmake(ctx, last, dry)
	}
	return b.SetPolicy(ctx, last.is.Name, last.is.Undo(last.was), dry)
}

// unmake takes a policy away that there was none of before.
func (b *Backend) unmake(ctx context.Context, last *lastChange, dry api.DryRun) (api.Policy, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Policy{}, err
	}
	name := last.is.Name
	policy, err := c.policy(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && policy.Generation != last.is.Generation {
		return api.Policy{}, changedSince(name)
	}
	if err == nil {
		err = c.writer(dry).Delete(ctx, policy, client.Preconditions{UID: &policy.UID, ResourceVersion: &policy.ResourceVersion})
	}
	switch {
	case apierrors.IsConflict(err):
		return api.Policy{}, changedSince(name)
	case err != nil:
		return api.Policy{}, internal(err)
	}
	was := last.is
	was.Changed = "there is none of that name any more, as before"
	if !dry {
		b.changes.mu.Lock()
		if b.changes.last == last {
			b.changes.last = nil
		}
		b.changes.mu.Unlock()
		b.Publish(api.Event{Type: api.EventPolicyChanged, Severity: api.SeverityInfo, Object: "policy/" + name, Message: "the sharing policy " + name + " was taken away"})
	}
	return was, nil
}

func changedSince(name string) error {
	return &api.Error{
		Code: api.CodeConflict, Message: "nothing was undone", Reason: "the sharing policy " + name + " has changed since", Do: "`kith share` shows what is shared now",
	}
}

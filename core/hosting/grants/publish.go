package grants

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// publishEvery is how often a contract's use is written at most, however fast pods come and go; with many namespaces, each of
// which is named in what is written, more seldom: as often as it takes for this many.
const (
	publishEvery = time.Second
	publishAtOne = 50
)

// Publish keeps status.used and status.namespaces of the contracts up to date until ctx ends.
func (c *Contracts) Publish(ctx context.Context, to client.Client, book *Book) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-book.changed:
		}
		wait := publishEvery
		for _, id := range book.takeDirty() {
			wait = max(wait, publishEvery*time.Duration(len(c.TwinsOf(id)))/publishAtOne)
			if err := c.publishOne(ctx, to, book, id); err != nil && ctx.Err() == nil {
				c.log.Warn("contract's use not written, trying again", "contract", id, "err", err)
				book.MarkDirty(id)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// publishOne patches the two fields only: the rest of a contract's status is not hosting's.
func (c *Contracts) publishOne(ctx context.Context, to client.Client, book *Book, id string) error {
	t := c.Of(id)
	if t == nil {
		return nil
	}
	// Not from the cache: what was written a second ago may not be in it yet, and what is the same as before would stay unwritten.
	var old v1alpha1.Contract
	if err := c.live.Get(ctx, types.NamespacedName{Name: t.Object}, &old); err != nil {
		return client.IgnoreNotFound(err)
	}
	next := old.DeepCopy()
	next.Status.Used = book.Used(id)
	next.Status.Namespaces = nil
	for _, tw := range c.TwinsOf(id) {
		next.Status.Namespaces = append(next.Status.Namespaces, v1alpha1.TwinNamespace{Home: tw.Home, Abroad: tw.Name})
	}
	patch := client.MergeFrom(&old)
	if data, err := patch.Data(next); err != nil || string(data) == "{}" {
		return err
	}
	if err := to.Status().Patch(ctx, next, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("contract %s: %w", old.Name, err)
	}
	return nil
}

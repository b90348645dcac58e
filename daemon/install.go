package daemon

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/local/guards"
	"kith.dev/core/local/installed"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting"
)

// policies are the admission policies of this side, which say how pods travel, where guests are and what may be written.
func (d *Daemon) policies() []client.Object {
	list := append(offloading.Objects(), guards.Objects(d.me.ID().String())...)
	if facts := d.engine.Facts(); facts.GuestLinks {
		list = append(list, guestnet.Objects(facts.NodeName)...)
	}
	return list
}

// keepInstalled has all that Kith put into the cluster kept as it is.
func (d *Daemon) keepInstalled(mgr ctrl.Manager, direct client.Client, host *hosting.Host) (*installed.Keeper, error) {
	custom, err := installed.CustomResources()
	if err != nil {
		return nil, err
	}
	hosts, err := host.Objects()
	if err != nil {
		return nil, err
	}
	keeper := installed.New(direct, d.tellMended, d.log)
	if err := keeper.Keep(slices.Concat(custom, hosts, d.policies())...); err != nil {
		return nil, err
	}
	return keeper, keeper.SetupWithManager(mgr)
}

func (d *Daemon) tellMended(what string) {
	d.publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning,
		Message: what + " was deleted or changed in this cluster, and is as it was again: Kith needs it to keep guests apart"})
}

// installPolicy makes the default SharingPolicy at the first start; later the owner's word stands.
func installPolicy(ctx context.Context, c client.Client, percent int, autoAccept bool, images []string) error {
	policy := sharing.Default(percent)
	policy.Spec.AutoAccept = autoAccept
	if len(images) > 0 {
		policy.Spec.Images = &v1alpha1.ImageRules{Present: images}
	}
	if err := c.Create(ctx, policy); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the default sharing policy: %w", err)
	}
	return nil
}

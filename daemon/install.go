package daemon

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/consumer"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/local/guards"
	"kith.dev/core/local/installed"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/tenants"
)

// policies are the admission policies of this side, which say how pods travel, where guests are and what may be written.
func (d *Daemon) policies() []client.Object {
	list := append(offloading.Objects(), guards.Objects(d.me.ID().String())...)
	if facts := d.engine.Facts(); facts.GuestLinks {
		list = append(list, guestnet.Objects()...)
	}
	return list
}

// install puts what Kith needs into the cluster, all at once: a laptop that starts waits for it. bounds are the objects that hold tenants.
func (d *Daemon) install(ctx context.Context, c client.Client) (bounds []client.Object, err error) {
	group, ctx := errgroup.WithContext(ctx)
	now, later := byKinds(slices.Concat(d.policies(), volumes.Objects()))
	group.Go(func() error {
		if err := installed.Define(ctx, c, d.log); err != nil {
			return err
		}
		for _, object := range later {
			if err := applyToKinds(ctx, c, object); err != nil {
				return err
			}
		}
		if d.cfg.Share == "" {
			return nil
		}
		percent, err := strconv.Atoi(strings.TrimSuffix(d.cfg.Share, "%"))
		if err != nil {
			return fmt.Errorf("share: %w", err)
		}
		return installPolicy(ctx, c, percent, d.cfg.AutoAccept, d.cfg.GuestImages)
	})
	group.Go(func() (err error) {
		bounds, err = tenants.Install(ctx, c, d.log)
		return err
	})
	for _, object := range now {
		group.Go(func() error {
			if err := installed.Apply(ctx, c, object); err != nil {
				return fmt.Errorf("install %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	err = group.Wait()
	return bounds, err
}

// byKinds parts objects into those that can be made at once, and policies with their bindings that have one of Kith's kinds as parameter, in their
// order. The API server looks whether whoever makes such a one may read the kind, which it knows once that is defined; an administrator it asks nothing,
// so a laptop would not notice.
func byKinds(all []client.Object) (now, later []client.Object) {
	for _, o := range all {
		policy, is := o.(*admissionv1.ValidatingAdmissionPolicy)
		binding, binds := o.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if is && policy.Spec.ParamKind != nil || binds && binding.Spec.ParamRef != nil {
			later = append(later, o)
		} else {
			now = append(now, o)
		}
	}
	return now, later
}

// How long the API server may take to know a kind that was defined.
const (
	kindsPause = 200 * time.Millisecond
	kindsMost  = 30 * time.Second
)

func applyToKinds(ctx context.Context, c client.Client, object client.Object) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, kindsPause, kindsMost, true, func(ctx context.Context) (bool, error) {
		err = installed.Apply(ctx, c, object)
		return !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err), nil
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", object.GetName(), err)
	}
	return ctx.Err()
}

// mark changes what is the owner's, and does without where it is refused. The policy for DaemonSets is in force before: none is missed.
func (d *Daemon) mark(ctx context.Context, c client.Client) {
	if err := offloading.KeepDaemonSetsHome(ctx, c, d.log); err != nil {
		d.log.Warn("a DaemonSet may wait for a place on a virtual node, where it is refused; kithd tries again when it starts", "err", err)
	}
	facts := d.engine.Facts()
	if !facts.Ours {
		return // of another's cluster nothing is known
	}
	if err := consumer.MarkHome(ctx, c, facts.NodeName); err != nil {
		d.log.Warn("the node of this machine has no zone: pods are not spread over it", "err", err)
	}
}

// keepInstalled has all that Kith put into the cluster kept as it is.
func (d *Daemon) keepInstalled(mgr ctrl.Manager, direct client.Client, bounds []client.Object) (*installed.Keeper, error) {
	custom, err := installed.CustomResources()
	if err != nil {
		return nil, err
	}
	keeper := installed.New(direct, d.tellMended, d.log)
	if err := keeper.Keep(slices.Concat(custom, bounds, d.policies())...); err != nil {
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

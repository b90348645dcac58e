// Package uninstall takes Kith out of a cluster that somebody else runs: `kithd uninstall`, which the chart runs as a Job before it removes the
// rest, and `kith uninstall --from-cluster` on a machine whose kithd was attached by a kubeconfig. Peers are told while kithd still works; then it is
// stopped, for it would put back what it keeps; then all that it ever made goes.
//
// It must never touch what Kith did not make: everything is known by its kind, its name or the label kith.dev/managed-by.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// Config says what is taken away.
type Config struct {
	Client     client.Client
	Deployment types.NamespacedName // of kithd; its Lease has the same name. The zero value: it runs in no pod
	Patience   time.Duration        // for peers to be told and pods to come home
	Log        *slog.Logger

	Stop func(context.Context) error // ends kithd where it runs in no pod; when it fails nothing more is done
	Told func(done string)           // after each step; or nil
}

// managed is on what Kith made.
var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// kinds of Kith's own, in the order in which they go.
var kinds = []string{"NamespaceOffloading", "PeeringPolicy", "PeeringRequest", "Contract", "Peer", "Advertisement", "OffloadedPod", "ReflectionPolicy", "SharingPolicy", "TetherPolicy"}

// Run may be repeated. What it cannot do is in its error, after all the rest was tried.
func Run(ctx context.Context, cfg Config) error {
	var errs []error
	try := func(what string, do func(context.Context) error) {
		if err := do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			cfg.Log.Warn(what+" failed; the rest goes on", "err", err)
			return
		}
		if cfg.Told != nil {
			cfg.Told(what)
		}
	}
	try("end all contracts", cfg.end)
	if cfg.Stop != nil {
		if err := cfg.Stop(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	} else {
		try("stop kithd", cfg.stop)
	}
	try("remove the admission policies", cfg.removePolicies) // before what they guard
	try("remove twin namespaces", cfg.removeTwins)
	try("remove virtual nodes", cfg.removeNodes)
	try("take Kith's word off the other nodes", cfg.cleanNodes)
	try("remove Kith's objects", cfg.removeObjects)
	try("remove Kith's kinds", cfg.removeKinds)
	try("remove the namespace of volumes", cfg.removeVolumes)
	try("remove the rest", cfg.removeRest)
	return errors.Join(errs...)
}

// end has kithd end all that there is with peers, and waits for it within bounds: a kithd that does not work ends nothing.
func (c Config) end(ctx context.Context) error {
	if err := c.askNobody(ctx); err != nil {
		return err
	}
	var peers v1alpha1.PeerList
	if err := c.Client.List(ctx, &peers); meta.IsNoMatchError(err) {
		return nil // it was never there, or is gone already
	} else if err != nil {
		return err
	}
	for i := range peers.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"request":null,"tethered":null}}`))
		if err := client.IgnoreNotFound(c.Client.Patch(ctx, &peers.Items[i], patch)); err != nil {
			return err
		}
	}
	if err := c.comeHome(ctx); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	for {
		var contracts v1alpha1.ContractList
		if err := c.Client.List(ctx, &contracts); err != nil {
			return err
		}
		if len(contracts.Items) == 0 {
			return nil
		}
		for i := range contracts.Items {
			if ctr := &contracts.Items[i]; ctr.DeletionTimestamp == nil {
				if err := record.EndContract(ctx, c.Client, ctr, v1alpha1.EndUninstalled); err != nil {
					return err
				}
			}
		}
		if err := pause(patience); err != nil {
			return fmt.Errorf("%d contracts have not ended after %s: they are dropped, and their peers find out by themselves", len(contracts.Items), c.Patience)
		}
	}
}

// askNobody takes the peering policies away: they would have other peers asked in place of those whose contracts end.
func (c Config) askNobody(ctx context.Context) error {
	var policies v1alpha1.PeeringPolicyList
	if err := c.Client.List(ctx, &policies); meta.IsNoMatchError(err) {
		return nil // an older Kith has no such kind
	} else if err != nil {
		return err
	}
	for i := range policies.Items {
		if err := client.IgnoreNotFound(c.Client.Delete(ctx, &policies.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

// comeHome has the namespaces be offloaded no more, for pods that may run at peers alone would wait for one ever after. It takes half of the time
// that there is: then the end of the contracts brings home what is left.
func (c Config) comeHome(ctx context.Context) error {
	offloadings := v1alpha1.GroupVersion.WithKind("NamespaceOffloading")
	if err := c.each(ctx, offloadings, c.remove(ctx)); err != nil {
		return err
	}
	end := time.Now().Add(c.Patience / 2)
	for time.Now().Before(end) {
		left := 0
		if err := c.each(ctx, offloadings, func(*metav1.PartialObjectMetadata) error { left++; return nil }); err != nil || left == 0 {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(500 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop scales kithd down and waits until its pods are gone. A pod of a node that is lost is not waited for.
func (c Config) stop(ctx context.Context) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.Deployment.Namespace, Name: c.Deployment.Name}}
	err := c.Client.SubResource("scale").Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(c.Deployment.Namespace),
			client.MatchingLabels{"app.kubernetes.io/instance": c.Deployment.Name, "app.kubernetes.io/component": "kithd"}); err != nil {
			return err
		}
		left := 0
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil || time.Now().Before(p.DeletionTimestamp.Add(5*time.Second)) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%d pods of kithd still run", left)
		}
	}
}

func partial(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// each does something to all objects of a kind, of which there may be none in this cluster.
func (c Config) each(ctx context.Context, kind schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata) error, opts ...client.ListOption) error {
	list := partial(kind)
	if err := c.Client.List(ctx, list, opts...); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
		errs = append(errs, client.IgnoreNotFound(do(&list.Items[i])))
	}
	return errors.Join(errs...)
}

func (c Config) remove(ctx context.Context) func(*metav1.PartialObjectMetadata) error {
	return func(o *metav1.PartialObjectMetadata) error { return c.Client.Delete(ctx, o) }
}

var admission = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}

func (c Config) removePolicies(ctx context.Context) error {
	var errs []error
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		errs = append(errs, c.each(ctx, admission.WithKind(kind), c.remove(ctx), managed))
	}
	return errors.Join(errs...)
}

func (c Config) removeTwins(ctx context.Context) error {
	return c.each(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), c.remove(ctx), managed, client.HasLabels{v1alpha1.LabelConsumer})
}

func (c Config) removeNodes(ctx context.Context) error {
	return c.each(ctx, corev1.SchemeGroupVersion.WithKind("Node"), func(o *metav1.PartialObjectMetadata) error {
		if !strings.HasPrefix(o.Name, v1alpha1.VirtualNodePrefix) {
			return nil
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: o.Name}}
		return errors.Join(c.Client.Delete(ctx, o), client.IgnoreNotFound(c.Client.Delete(ctx, lease)))
	}, client.HasLabels{v1alpha1.LabelPeer})
}

// cleanNodes takes off what says that a fence is alive there.
func (c Config) cleanNodes(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, v1alpha1.LabelFenced, v1alpha1.AnnotationFencedBy)
	return c.each(ctx, corev1.SchemeGroupVersion.WithKind("Node"), func(o *metav1.PartialObjectMetadata) error {
		if _, kept := o.Annotations[v1alpha1.AnnotationFencedBy]; !kept && o.Labels[v1alpha1.LabelFenced] == "" {
			return nil
		}
		return c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
	})
}

// removeObjects takes the finalizers off, too: who would do what they wait for does not run any more.
func (c Config) removeObjects(ctx context.Context) error {
	var errs []error
	for _, kind := range kinds {
		errs = append(errs, c.each(ctx, v1alpha1.GroupVersion.WithKind(kind), func(o *metav1.PartialObjectMetadata) error {
			if err := c.Client.Delete(ctx, o); err != nil || len(o.Finalizers) == 0 {
				return err
			}
			return c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}))
	}
	return errors.Join(errs...)
}

func (c Config) removeKinds(ctx context.Context) error {
	return c.each(ctx, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), func(o *metav1.PartialObjectMetadata) error {
		if !strings.HasSuffix(o.Name, "."+v1alpha1.GroupVersion.Group) {
			return nil
		}
		return c.Client.Delete(ctx, o)
	})
}

// removeVolumes removes the namespace of claims by which peers' volumes are at home (core/consume/volumes), if nobody has data in it: claims stay for
// their owner to look at.
func (c Config) removeVolumes(ctx context.Context) error {
	return c.each(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), func(o *metav1.PartialObjectMetadata) error {
		if o.Name != volumesNamespace {
			return nil
		}
		held := partial(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		if err := c.Client.List(ctx, held, client.InNamespace(o.Name)); err != nil {
			return fmt.Errorf("look whether namespace %s holds claims: %w", o.Name, err)
		}
		if n := len(held.Items); n > 0 {
			c.Log.Warn("a namespace stays, for it holds data; delete it when they are wanted no more", "namespace", o.Name, "claims", n)
			return nil
		}
		return c.Client.Delete(ctx, o)
	}, managed)
}

// volumesNamespace is volumes.Namespace, whose room is not linked for that.
const volumesNamespace = v1alpha1.NamespaceVolumes

func (c Config) removeRest(ctx context.Context) error {
	var errs []error
	if d := c.Deployment; d.Name != "" {
		errs = append(errs, client.IgnoreNotFound(c.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}})))
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}, {Version: "v1", Kind: "PodTemplate"}, {Version: "v1", Kind: "ResourceQuota"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}, {Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIStorageCapacity"},
		{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: "ServiceImport"}, // with it go the service and endpoints that it owns
	} {
		errs = append(errs, c.each(ctx, kind, c.remove(ctx), managed))
	}
	return errors.Join(errs...)
}

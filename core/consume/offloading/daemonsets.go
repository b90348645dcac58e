package offloading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// KeepDaemonSetsHome does for the DaemonSets that are there already what the admission policy does for new and changed ones: those
// that tolerate virtual nodes require nodes that are none. What says itself whether it is for laptops that this cluster runs stays as it is. It returns the errors of all that could not be changed.
func KeepDaemonSetsHome(ctx context.Context, c client.Client, log *slog.Logger) error {
	var list appsv1.DaemonSetList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("look for DaemonSets that tolerate virtual nodes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		ds := &list.Items[i]
		before := ds.DeepCopy()
		if ds.DeletionTimestamp != nil || !requireHome(&ds.Spec.Template.Spec) {
			continue
		}
		err := c.Patch(ctx, ds, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.ManagedBy))
		switch {
		case err == nil:
			log.Info("a DaemonSet that tolerates every node stays off virtual nodes from now on", "namespace", ds.Namespace, "daemonset", ds.Name)
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, fmt.Errorf("keep DaemonSet %s/%s off virtual nodes: %w", ds.Namespace, ds.Name, err))
		}
	}
	return errors.Join(errs...)
}

// requireHome has pods of the template require nodes that are not virtual, if they tolerate such ones; it reports whether that
// changed anything.
func requireHome(spec *corev1.PodSpec) (changed bool) {
	if !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" || t.Key == v1alpha1.TaintPeer }) {
		return false
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := (*required).NodeSelectorTerms
	for i := range terms { // each is an alternative
		if slices.ContainsFunc(terms[i].MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == LabelVirtual && e.Operator == corev1.NodeSelectorOpDoesNotExist || e.Key == v1alpha1.LabelTethered
		}) {
			continue
		}
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, corev1.NodeSelectorRequirement{Key: LabelVirtual, Operator: corev1.NodeSelectorOpDoesNotExist})
		changed = true
	}
	return changed
}

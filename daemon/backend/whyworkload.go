package backend

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/why"
	"kith.dev/daemon/backend/explain"
)

// maxWhyPods bounds how many pods of one workload are looked at.
const maxWhyPods = 1000

// whyWorkload is about the pod of a workload that is farthest from running.
func (b *Backend) whyWorkload(ctx context.Context, c *Cluster, o api.WhyOptions) (api.Why, error) {
	none, _, err := c.workload(ctx, o)
	if err != nil {
		return api.Why{}, err
	}
	var all corev1.PodList
	if err := c.Client.List(ctx, &all, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return api.Why{}, internal(err)
	}
	var pods []*corev1.Pod
	for i := range all.Items {
		if pod := &all.Items[i]; belongs(pod, o) && len(pods) < maxWhyPods {
			pods = append(pods, pod)
		}
	}
	places, err := b.places(ctx, c)
	if err != nil {
		return api.Why{}, internal(err)
	}
	counts := &api.WhyPods{All: len(pods)}
	alive := slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !v1alpha1.Ended(p.Status.Phase) && p.DeletionTimestamp == nil })
	var worst *corev1.Pod
	at := len(api.PodStates)
	for _, pod := range pods {
		if alive && (v1alpha1.Ended(pod.Status.Phase) || pod.DeletionTimestamp != nil) {
			counts.All-- // another took its place
			continue
		}
		f, err := b.whyFacts(ctx, c, pod, places)
		if err != nil {
			return api.Why{}, internal(err)
		}
		state, _ := why.Of(f)
		if state == api.PodReady {
			counts.Ready++
		}
		if i := slices.Index(api.PodStates, state); i < at {
			worst, at = pod, i
		}
	}
	w := api.Why{Namespace: o.Namespace, State: api.PodMissing, Causes: api.List[api.Cause]{none}}
	explain.Say(&w)
	if worst != nil {
		fresh := &corev1.Pod{}
		if err := c.Fresh.Get(ctx, client.ObjectKeyFromObject(worst), fresh); err != nil {
			return api.Why{}, internal(err)
		}
		if w, err = b.whyPod(ctx, c, fresh); err != nil {
			return api.Why{}, err
		}
	}
	w.Of, w.Pods = o.Kind+"/"+o.Name, counts
	return w, nil
}

// belongs reports whether a pod is of the workload. A Deployment's are those of the ReplicaSets that it names after itself and their template.
func belongs(pod *corev1.Pod, o api.WhyOptions) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	kind, name := strings.ToLower(owner.Kind), owner.Name
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; o.Kind == "deployment" && kind == "replicaset" && hash != "" {
		kind, name = "deployment", strings.TrimSuffix(name, "-"+hash)
	}
	return kind == o.Kind && name == o.Name
}

// workloadNamed is the kind of a workload that has the name; "" without one.
func (c *Cluster) workloadNamed(ctx context.Context, o api.WhyOptions) string {
	var all corev1.PodList
	if err := c.Client.List(ctx, &all, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "" // then what was asked for is not there
	}
	for _, kind := range []string{"deployment", "statefulset", "daemonset", "job", "replicaset"} {
		o.Kind = kind
		if slices.ContainsFunc(all.Items, func(pod corev1.Pod) bool { return belongs(&pod, o) }) {
			return kind
		}
		if _, known, err := c.workload(ctx, o); known && err == nil {
			return kind
		}
	}
	return ""
}

// workload is what keeps a workload from having pods, should it have none. Where kithd may not read it, nothing is known of it.
func (c *Cluster) workload(ctx context.Context, o api.WhyOptions) (cause api.Cause, known bool, err error) {
	cause = api.Cause{Reason: api.CauseNoPods, Who: api.WhoYou}
	var object client.Object
	switch o.Kind {
	case "deployment":
		object = &appsv1.Deployment{}
	case "replicaset":
		object = &appsv1.ReplicaSet{}
	case "statefulset":
		object = &appsv1.StatefulSet{}
	case "daemonset":
		object = &appsv1.DaemonSet{}
	default:
		object = &batchv1.Job{}
	}
	switch err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, object); {
	case apierrors.IsNotFound(err):
		return cause, false, api.NotFound(o.Kind, o.Namespace+"/"+o.Name, "kubectl get "+o.Kind+"s -A")
	case apierrors.IsForbidden(err):
		return cause, false, nil
	case err != nil:
		return cause, false, internal(err)
	}
	scaled := func(replicas *int32) {
		if replicas != nil && *replicas == 0 {
			cause.Reason = api.CauseScaledDown
		}
	}
	refused := func(reason, message string) {
		cause.Reason, cause.Detail, cause.Said = api.CauseNotMade, reason, message
	}
	switch w := object.(type) {
	case *appsv1.Deployment:
		scaled(w.Spec.Replicas)
		for _, is := range w.Status.Conditions {
			if is.Type == appsv1.DeploymentReplicaFailure && is.Status == corev1.ConditionTrue {
				refused(is.Reason, is.Message)
			}
		}
	case *appsv1.ReplicaSet:
		scaled(w.Spec.Replicas)
		for _, is := range w.Status.Conditions {
			if is.Type == appsv1.ReplicaSetReplicaFailure && is.Status == corev1.ConditionTrue {
				refused(is.Reason, is.Message)
			}
		}
	case *appsv1.StatefulSet:
		scaled(w.Spec.Replicas)
	}
	return cause, true, nil
}

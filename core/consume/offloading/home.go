package offloading

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// annotationKept on a PodTemplate holds the name of the bare pod that is kept in it.
const annotationKept = "kith.dev/kept-pod"

// bringHome evicts pods from their virtual nodes, each with its own grace period. Controllers recreate their pods; pods without one are first
// saved (see Keep), to be recreated here. It does not wait for their end, which may take as long as the peer cannot be reached. A pod that a
// PodDisruptionBudget protects stays, and stays has a sentence on each of them; with force they are deleted without asking the budget.
func bringHome(ctx context.Context, c client.Client, pods []corev1.Pod, force bool) (stays []string, err error) {
	var work errgroup.Group
	work.SetLimit(16)
	errs, held := make([]error, len(pods)), make([]string, len(pods))
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		work.Go(func() error {
			if errs[i] = Keep(ctx, c, pod); errs[i] != nil {
				return nil // the others go on
			}
			var err error
			if force {
				err = c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
			} else {
				err = evict(ctx, c, pod)
			}
			switch budget := heldBy(err); {
			case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name by now
			case budget != "":
				held[i] = fmt.Sprintf("pod %s stays at %s: %s", pod.Name, strings.TrimPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix), budget)
			case err != nil:
				errs[i] = fmt.Errorf("take pod %s/%s from node %s: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
			}
			return nil
		})
	}
	_ = work.Wait()
	slices.Sort(held) // the cache lists pods in any order, and what is said shall change when something did
	return slices.DeleteFunc(held, func(s string) bool { return s == "" }), errors.Join(errs...)
}

func evict(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	return c.SubResource("eviction").Create(ctx, pod.DeepCopy(), Eviction(pod))
}

// Eviction is the eviction of this very pod (by UID), not of a later one of its name.
func Eviction(pod *corev1.Pod) *policyv1.Eviction {
	return &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
}

// manyBudgets is what the API server says of a pod that more than one budget is for, which it never evicts.
const manyBudgets = "more than one PodDisruptionBudget"

// heldBy says which PodDisruptionBudget refused an eviction, and why; "" when none did.
func heldBy(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil || !errors.As(err, &status):
	case strings.Contains(err.Error(), manyBudgets):
		return manyBudgets + " is for it, so it is never evicted"
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				return cause.Message
			}
		}
		return err.Error()
	}
	return ""
}

// Keep saves a pod without a controller as a PodTemplate before it is taken from its virtual node: its end may take as long as the peer cannot
// be reached, and this process may be restarted meanwhile. Pods with a controller, and pods in deletion, are not saved. Idempotent.
func Keep(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	if !bare(pod) || ended(pod) {
		return nil
	}
	fresh := again(pod)
	kept := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: "kith-" + string(pod.UID),
			Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			Annotations: map[string]string{annotationKept: pod.Name},
		},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: fresh.Labels, Annotations: fresh.Annotations, OwnerReferences: fresh.OwnerReferences},
			Spec:       fresh.Spec,
		},
	}
	if err := c.Create(ctx, kept); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep pod %s/%s, to make it again at home: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// remake recreates the saved pods of a namespace, each once the former pod is gone, and counts those that still wait; behind: the cache is
// out of date about some of them.
func (r *Reconciler) remake(ctx context.Context, namespace string) (waiting int, behind bool, err error) {
	var all corev1.PodTemplateList
	if err := r.client.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return 0, false, err
	}
	for i := range all.Items {
		kept := &all.Items[i]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: kept.Annotations[annotationKept],
				Labels: kept.Template.Labels, Annotations: kept.Template.Annotations, OwnerReferences: kept.Template.OwnerReferences,
			},
			Spec: kept.Template.Spec,
		}
		if pod.Name == "" || kept.DeletionTimestamp != nil {
			continue
		}
		var now corev1.Pod
		switch e := r.client.Get(ctx, client.ObjectKeyFromObject(pod), &now); {
		case e == nil && kept.Name == "kith-"+string(now.UID) && (now.DeletionTimestamp != nil || !ended(&now)):
			waiting++
			continue
		case e == nil && kept.Name == "kith-"+string(now.UID): // it has done its work while a budget held it
		case apierrors.IsNotFound(e):
			e = r.client.Create(ctx, pod)
			if apierrors.IsAlreadyExists(e) {
				waiting, behind = waiting+1, true
				continue
			}
			if e != nil {
				err = errors.Join(err, fmt.Errorf("make pod %s/%s again at home: %w", pod.Namespace, pod.Name, e))
				continue
			}
			r.log.Info("pod made again at home", "namespace", pod.Namespace, "pod", pod.Name)
		case e != nil:
			err = errors.Join(err, e)
			continue
		}
		err = errors.Join(err, client.IgnoreNotFound(r.client.Delete(ctx, kept)))
	}
	return waiting, behind, err
}

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BringHome takes pods from their virtual nodes, each with its own grace period: pods of controllers are
// deleted, and their controllers make them again; bare pods are made again here, since nobody else would.
// It returns when all of them left or ctx ended; what is left then is in the error.
func BringHome(ctx context.Context, c client.Client, pods []corev1.Pod) error {
	errs := make(chan error, len(pods))
	for i := range pods {
		go func(pod *corev1.Pod) { errs <- bringHome(ctx, c, pod) }(&pods[i])
	}
	var all error
	for range pods {
		all = errors.Join(all, <-errs)
	}
	return all
}

func bringHome(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	ended := ended(pod)
	err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod of that name by now
	}
	if err != nil {
		return fmt.Errorf("take pod %s/%s from node %s: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
	}
	if err := waitGone(ctx, c, pod); err != nil {
		return err
	}
	if ended {
		return nil
	}
	return RemakeBare(ctx, c, []corev1.Pod{*pod})
}

// RemakeBare makes the bare ones of pods again, which somebody else took from their virtual nodes.
func RemakeBare(ctx context.Context, c client.Client, pods []corev1.Pod) error {
	var all error
	for i := range pods {
		pod := &pods[i]
		if !bare(pod) || ended(pod) {
			continue
		}
		if err := c.Create(ctx, again(pod)); err != nil && !apierrors.IsAlreadyExists(err) {
			all = errors.Join(all, fmt.Errorf("make pod %s/%s again at home: %w", pod.Namespace, pod.Name, err))
		}
	}
	return all
}

// waitGone asks the cache, which costs the API server nothing.
func waitGone(ctx context.Context, c client.Reader, pod *corev1.Pod) error {
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var now corev1.Pod
		err := c.Get(ctx, client.ObjectKeyFromObject(pod), &now)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && now.UID != pod.UID, nil
	})
	if err != nil {
		return fmt.Errorf("pod %s/%s is still on node %s: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
	}
	return nil
}

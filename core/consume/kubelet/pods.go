package kubelet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tellPods answers with a PodList of the pods of the node whose port was asked, as home has them, that pick wants.
func (k *Kubelet) tellPods(pick func(*corev1.Pod) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 { // nobody else learns which nodes there are
			k.refuse(w, r, errNobody)
			return
		}
		n := k.nodeAt(r)
		if n == nil {
			http.Error(w, "the node of this port does not run", http.StatusNotFound)
			return
		}
		if err := k.access.check(r, n.Name); err != nil {
			k.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := writePods(w, n.Pods(), pick); err != nil {
			n.Log.Debug("the list of pods was not written to its end", "err", err)
			panic(http.ErrAbortHandler) // half a list must not look like a whole one
		}
	}
}

// every picks all pods of a node.
func every(*corev1.Pod) bool { return true }

// runs reports whether the peer says that a container of the pod is running.
func runs(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses),
		func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// writePods writes a PodList in the order of namespaces and names, one pod after another: a list of large pods takes the memory of one.
func writePods(w io.Writer, pods []*corev1.Pod, pick func(*corev1.Pod) bool) error {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if _, err := io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`); err != nil {
		return err
	}
	between := ""
	for _, pod := range pods {
		if !pick(pod) {
			continue
		}
		told := *pod // whose maps and lists are only read
		told.TypeMeta = metav1.TypeMeta{}
		text, err := json.Marshal(&told)
		if err != nil {
			return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if _, err := io.WriteString(w, between); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		between = ","
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}

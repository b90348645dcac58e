package storage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// AnnotationRoot on a node that joined says where it keeps the folders of volumes.
const AnnotationRoot = "kith.dev/volumes"

// provisionedBy is upstream's annotation of volumes.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// Keep makes and removes the folders of this node's volumes below root, as the server notes and deletes them, until ctx ends. It removes none
// whose deletion it did not see: a folder that nobody needs is better than one that is missed.
func Keep(ctx context.Context, client kubernetes.Interface, root, node string, log *slog.Logger) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("folder of volumes: %w", err)
	}
	f := &folders{root: root, node: node}
	do := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if err := f.keep(o.(*corev1.PersistentVolume), gone); err != nil {
			log.Warn("a volume's folder is not as it should be", "volume", o.(*corev1.PersistentVolume).Name, "err", err)
		}
	}
	volumes := informers.NewSharedInformerFactory(client, 5*time.Minute).Core().V1().PersistentVolumes().Informer()
	if _, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { do(o, false) }, UpdateFunc: func(_, o any) { do(o, false) }, DeleteFunc: func(o any) { do(o, true) },
	}); err != nil {
		return err
	}
	go volumes.RunWithContext(ctx)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, AnnotationRoot, root)
	_ = wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(ctx context.Context) (bool, error) { // until the kubelet has made the node
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err == nil, nil
	})
	<-ctx.Done()
	return nil
}

// keep does for one volume what it needs now; for others' volumes nothing.
func (f *folders) keep(v *corev1.PersistentVolume, gone bool) error {
	if v.Spec.Local == nil || v.Annotations[provisionedBy] != Provisioner || nodeOf(v) != f.node || filepath.Dir(v.Spec.Local.Path) != f.root {
		return nil
	}
	name := filepath.Base(v.Spec.Local.Path)
	if gone || v.Status.Phase == corev1.VolumeReleased {
		if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			return nil
		}
		root, err := os.OpenRoot(f.root)
		if err != nil {
			return err
		}
		defer root.Close()
		return root.RemoveAll(name)
	}
	return makeFolder(f.root, name)
}

// nodeOf is the node whose folder a volume is; "" for what is none of ours.
func nodeOf(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, e := range v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

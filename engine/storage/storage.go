// Package storage gives persistent volume claims a folder of this laptop: the default storage class, called
// local-path as in K3s, without helper pods. Capacity is noted, not enforced.
//
// It answers only claims whose pod was scheduled to this node: a claim bound for another laptop is not its own.
// It must never follow a path out of its folder, whatever a PersistentVolume says.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Provisioner and Class are the names of the provisioner and of the storage class that uses it.
const (
	Provisioner = "kith.dev/local"
	Class       = "local-path"
)

const selectedNode = "volume.kubernetes.io/selected-node"

type folders struct {
	root string
	node string
}

// Run provisions and deletes volumes below root until ctx ends.
func Run(ctx context.Context, client kubernetes.Interface, root, node string) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("folder of volumes: %w", err)
	}
	controller.NewProvisionController(ctx, client, Provisioner, &folders{root, node},
		controller.LeaderElection(false),
		controller.MetricsPort(0),
		controller.Threadiness(2),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
	).Run(ctx)
	return nil
}

// ShouldProvision is true for claims of pods on this node.
func (f *folders) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	node := claim.Annotations[selectedNode]
	return node == "" || node == f.node
}

// Provision makes the folder; making it twice is fine.
func (f *folders) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	for _, mode := range o.PVC.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return nil, controller.ProvisioningFinished, fmt.Errorf("access mode %s: storage class %s has ReadWriteOnce and ReadWriteOncePod, its volumes are folders of one laptop", mode, Class)
		}
	}
	if o.PVC.Spec.Selector != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("selector: storage class %s makes new volumes, it cannot select one", Class)
	}
	name := fmt.Sprintf("%s_%s_%s", o.PVName, o.PVC.Namespace, o.PVC.Name)
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	defer root.Close()
	if err := root.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, controller.ProvisioningFinished, err
	}
	// Whatever user the container runs as may write; nobody on the laptop gets here, the root is 0700.
	if err := root.Chmod(name, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	policy := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		policy = *o.StorageClass.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   slices.Clone(o.PVC.Spec.AccessModes),
			PersistentVolumeReclaimPolicy: policy,
			MountOptions:                  o.StorageClass.MountOptions,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(f.root, name)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{f.node}}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder with all that is in it.
func (f *folders) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil || filepath.Dir(volume.Spec.Local.Path) != f.root {
		return &controller.IgnoredError{Reason: "it is no folder directly in " + f.root}
	}
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(filepath.Base(volume.Spec.Local.Path))
}

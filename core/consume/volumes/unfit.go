package volumes

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// unfitPause is until a claim that cannot be given is looked at again: the class behind it at home may be another by then.
const unfitPause = 5 * time.Minute

// unfitError is why a claim has a volume nowhere.
type unfitError struct{ why string }

func (e *unfitError) Error() string { return e.why }

// inFolders are provisioners whose volumes are folders of one node.
var inFolders = []string{"kith.dev/local", "rancher.io/local-path"}

// unfitFor refuses what a class of folders at home cannot give, and no peer does: its own words would be said of the claim behind this one.
func unfitFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if !slices.Contains(inFolders, class.Provisioner) {
		return nil
	}
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return &unfitError{fmt.Sprintf("accessModes: %s is not to be had: a volume of class %s is a file system of one node, ReadWriteOnce or ReadWriteOncePod; "+
				"for files that pods on several nodes share, run what serves them (NFS, S3) as a pod", mode, *claim.Spec.StorageClassName)}
		}
	}
	if m := claim.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
		return &unfitError{"volumeMode: Block is not to be had: volumes of class " + *claim.Spec.StorageClassName + " are file systems"}
	}
	return nil
}

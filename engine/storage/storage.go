// Package storage gives persistent volume claims a folder of this laptop: the default storage class, called
// local-path as in K3s, without helper pods. Capacity is noted, not enforced, but for volumes of guests: each of them is a file system of its
// own in a file, so that none fills the disk of the laptop. Where mkfs.ext4 is not installed, and on nodes that joined, guests get none.
//
// It answers only claims whose pod was scheduled to this node, or to one that joined it: a claim bound for another laptop is not its own. Volumes
// on nodes that joined are noted here, at the server; their folders are made and removed there (Keep), where nobody may write volumes.
// It must never follow a path out of its folder, whatever a PersistentVolume says.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"kith.dev/core/api/v1alpha1"
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
	// other is a node that joined, nil where there is none of that name.
	other func(ctx context.Context, name string) (*corev1.Node, error)

	client kubernetes.Interface

	images sync.Mutex      // one is made, made larger or removed at a time
	apart  map[string]bool // those that are taken from their pods to grow, or rest for a copy, by their paths; nobody else mounts or removes them
	taken  map[string]bool // folders that are copied, or removed, by their paths: one of both at a time; under the lock of the images

	copies sync.Mutex         // one volume is copied at a time: it takes the room on the disk that it was seen to have
	failed map[string]failure // folders whose pods stood still in vain, by their paths; under copies
	stills stills
	// snapshots is nil until there are any.
	snapshots atomic.Pointer[snapshotter]
}

// Options are what Run needs.
type Options struct {
	Root, Node string // the folder of volumes, and the node that they are on
	Snapshots  string // the folder of their snapshots
	CgroupRoot string // the cgroup that the kubelet was given
	Agents     bool   // volumes are on nodes that joined, too

	Client      kubernetes.Interface
	Kinds       dynamic.Interface // for VolumeSnapshots
	Definitions apiextensions.CustomResourceDefinitionInterface
	Log         *slog.Logger
}

// Run provisions and deletes volumes, and their snapshots, until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return fmt.Errorf("folder of volumes: %w", err)
	}
	if err := os.MkdirAll(o.Snapshots, 0o700); err != nil {
		return fmt.Errorf("folder of snapshots: %w", err)
	}
	client := o.Client
	f := &folders{root: o.Root, node: o.Node, client: client, stills: stillsOf(o.CgroupRoot, noteIn(o.Snapshots))}
	if err := errors.Join(sweep(o.Root), sweep(o.Snapshots)); err != nil {
		o.Log.Warn("what was being copied when this ended is left", "err", err)
	}
	if o.Agents {
		f.other = func(ctx context.Context, name string) (*corev1.Node, error) {
			n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return n, err
		}
	}
	claims := informers.NewSharedInformerFactory(client, 15*time.Minute).Core().V1().PersistentVolumeClaims().Informer()
	if err := watchGrowth(ctx, f, claims); err != nil {
		return err
	}
	provisions := controller.NewProvisionController(ctx, client, Provisioner, f,
		controller.LeaderElection(false),
		controller.ClaimsInformer(claims),
		controller.MetricsPort(0),
		controller.Threadiness(2),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
	)
	go claims.RunWithContext(ctx)
	var snapshots sync.WaitGroup
	snapshots.Go(func() {
		(&snapshotter{folders: f, kinds: o.Kinds, at: o.Snapshots, log: o.Log}).keepSnapshots(ctx, o.Definitions)
	})
	defer snapshots.Wait()
	var workers sync.WaitGroup // a copy that one of them makes holds pods still
	provisions.ControllerWaitGroup(&workers)
	defer workers.Wait()
	provisions.Run(ctx)
	return nil
}

// halfSuffix ends the name of what is not whole yet, or not any more. No volume's name ends so, nor can it: Kubernetes' names have no such letter, and
// a volume is named after its claim.
const halfSuffix = "~half"

// olderHalf ended it before, which volumes' names may, too. Those are folders, and their files end with imageSuffix.
const olderHalf = ".half"

// sweep removes what was being made, or deleted, when this program ended, or one of before.
func sweep(folder string) error {
	all, err := os.ReadDir(folder)
	errs := []error{err}
	for _, e := range all {
		if strings.HasSuffix(e.Name(), halfSuffix) || strings.HasSuffix(e.Name(), olderHalf) && e.Type().IsRegular() {
			errs = append(errs, os.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// longestName leaves room in a file's name, of 255 bytes, for what is made beside a folder.
const longestName = 200

// errNoFolders: the node that the scheduler chose has no folders of volumes, as a peer's has none.
var errNoFolders = errors.New("keeps no folders of volumes")

// rootAt is the folder of volumes on another node, as it says itself.
func (f *folders) rootAt(ctx context.Context, node string) (string, error) {
	if f.other == nil {
		return "", fmt.Errorf("node %s %w", node, errNoFolders)
	}
	n, err := f.other(ctx, node)
	if err != nil {
		return "", err
	}
	if n == nil || !filepath.IsAbs(n.Annotations[AnnotationRoot]) {
		return "", fmt.Errorf("node %s %w", node, errNoFolders)
	}
	return n.Annotations[AnnotationRoot], nil
}

// Provision makes the folder; making it twice is fine.
func (f *folders) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	for _, mode := range o.PVC.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return nil, controller.ProvisioningFinished, fmt.Errorf("access mode %s: storage class %s has ReadWriteOnce and ReadWriteOncePod, its volumes are folders of one laptop", mode, Class)
		}
	}
	if o.PVC.Spec.Selector != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("selector: storage class %s makes new volumes, it cannot select one", Class)
	}
	begin, err := f.beginOf(ctx, o.PVC)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	name := fmt.Sprintf("%s_%s_%s", o.PVName, o.PVC.Namespace, o.PVC.Name)
	name = name[:min(len(name), longestName)] // the rest is for people
	root, node, at := f.root, f.node, name
	_, ofGuest := v1alpha1.ClassOfGuests(o.StorageClass.Name)
	if selected := o.PVC.Annotations[selectedNode]; selected != "" && selected != f.node {
		node = selected
		if begin != nil {
			return nil, controller.ProvisioningReschedule, fmt.Errorf("dataSource: what it is to begin with is on node %s, not on %s", f.node, node)
		}
		if ofGuest { // its size would be no limit there
			return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s keeps no volumes of guests", node)
		}
		root, err = f.rootAt(ctx, node) // which makes the folder when it sees the volume; its kubelet waits for that
	} else if begin != nil && ofGuest != (begin.image != "") {
		return nil, controller.ProvisioningFinished, refuse("dataSource: volumes of guests begin empty or with a snapshot of one, and no other begins with that")
	} else if ofGuest {
		size := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
		if begin != nil {
			if err := f.filledImage(ctx, filepath.Join(root, name), begin, size.Value()); err != nil {
				return nil, controller.ProvisioningFinished, err
			}
		}
		f.images.Lock()
		defer f.images.Unlock()
		if err = makeImage(ctx, filepath.Join(root, name), size.Value()); err == nil {
			at = filepath.Join(name, inImage)
		}
	} else if begin != nil {
		err = f.filledFolder(ctx, name, begin, o.PVC.Spec.Resources.Requests[corev1.ResourceStorage])
	} else {
		err = makeFolder(root, name)
	}
	if errors.Is(err, errNoFolders) { // else the claim would bind its pods to that node for good, and nothing would say so
		return nil, controller.ProvisioningReschedule, err
	}
	if err != nil {
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
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(root, at)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// makeFolder makes a volume's folder; one that is there is right, and its mode is what the pods' owner, or an fsGroup, made it.
func makeFolder(in, name string) error {
	root, err := os.OpenRoot(in)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	half := name + halfSuffix
	if err := root.Mkdir(half, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Whatever user the container runs as may write; nobody on the laptop gets here, the root is 0700.
	if err := root.Chmod(half, 0o777); err != nil {
		return err
	}
	return root.Rename(half, name)
}

// Delete removes the folder with all that is in it. One on another node is removed by that node, which must be there to see it; it went with a
// node that is deleted.
func (f *folders) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	if on := nodeOf(volume); on != f.node && on != "" && f.other != nil {
		n, err := f.other(ctx, on)
		if err == nil && n != nil && !ready(n) {
			err = fmt.Errorf("node %s, where its folder is, is not Ready: it is removed when that node is back, or deleted", on)
		}
		return err
	}
	if path, is := f.image(volume); is {
		f.images.Lock()
		defer f.images.Unlock()
		if f.apart[path] {
			return fmt.Errorf("volume %s: its file system is made larger, or copied, just now; it is removed after that", volume.Name)
		}
		return removeImage(path)
	}
	if volume.Spec.Local == nil || filepath.Dir(volume.Spec.Local.Path) != f.root {
		return &controller.IgnoredError{Reason: "it is no folder directly in " + f.root}
	}
	release, ok := f.take(volume.Spec.Local.Path)
	if !ok {
		return fmt.Errorf("volume %s: %w", volume.Name, errBusy)
	}
	defer release()
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(filepath.Base(volume.Spec.Local.Path))
}

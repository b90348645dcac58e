package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/base/treecopy"
)

// stillMost is how long pods stand still at most for a copy: less than three probes of liveness in a row, which would have them killed.
const stillMost = 20 * time.Second

// errBusy: another volume is copied, or this one is deleted just now. It is tried again.
var errBusy = errors.New("another copy is being made, or the volume is being deleted; it is tried again")

// take has nobody else copy or delete what is at a path until release is called; false when somebody does.
func (f *folders) take(path string) (release func(), ok bool) {
	f.images.Lock()
	defer f.images.Unlock()
	if f.taken[path] {
		return nil, false
	}
	if f.taken == nil {
		f.taken = map[string]bool{}
	}
	f.taken[path] = true
	return func() {
		f.images.Lock()
		defer f.images.Unlock()
		delete(f.taken, path)
	}, true
}

// copyFolder makes what is at into a copy of a folder as it is at one moment, which it gives. It has its name when it is whole and on the disk: until
// then, and after an error, there is nothing. users are the pods that have the folder, and may change it; nil for none.
//
// It is copied while they go on. Then they stand still, and what differs is copied once more.
func (f *folders) copyFolder(ctx context.Context, from, into string, users func(context.Context) ([]types.UID, error)) (moment time.Time, err error) {
	release, ok := f.take(from)
	if !ok || !f.copies.TryLock() {
		if ok {
			release()
		}
		return moment, errBusy
	}
	defer release()
	defer f.copies.Unlock()
	half := into + halfSuffix
	if err := os.RemoveAll(half); err != nil { // of one that was killed
		return moment, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(half))
		}
	}()
	if err := roomForTree(from, filepath.Dir(into)); err != nil {
		return moment, err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return moment, err
	}
	var pods []types.UID
	if users != nil {
		if pods, err = users(ctx); err != nil {
			return moment, err
		}
	}
	if len(pods) > 0 {
		if err := alike(ctx, from, half, false); err != nil {
			return moment, err
		}
	}
	if moment, err = f.lastPass(ctx, from, half, users); err != nil {
		return moment, err
	}
	if err := os.Rename(half, into); err != nil {
		return moment, err
	}
	return moment, syncFile(filepath.Dir(into))
}

// lastPass makes a copy the same as its folder, block by block, while nobody changes that.
func (f *folders) lastPass(ctx context.Context, from, half string, users func(context.Context) ([]types.UID, error)) (moment time.Time, err error) {
	if users == nil {
		return time.Now(), alike(ctx, from, half, true)
	}
	pods, err := users(ctx)
	if err != nil {
		return moment, err
	}
	within, stop := context.WithTimeoutCause(ctx, stillMost, fmt.Errorf("its pods would stand still for more than %s while it is copied: stop them, and it is made", stillMost))
	defer stop()
	held, release, err := f.stills.hold(within, pods)
	if err != nil {
		return moment, err
	}
	moment = time.Now()
	err = alike(within, from, half, true)
	if err = errors.Join(err, release()); err != nil {
		return moment, err
	}
	if pods, err = users(ctx); err != nil {
		return moment, err
	}
	for _, pod := range pods {
		if !held[pod] && f.stills.group(pod) != "" {
			return moment, errStarted
		}
	}
	return moment, nil
}

// alike makes one folder like another; still, when nobody changes that one, proves that they are the same.
func alike(ctx context.Context, from, into string, still bool) error {
	ours, theirs := net.Pipe()
	var sent error
	var ends sync.WaitGroup
	ends.Go(func() { _, sent = treecopy.Send(ctx, ours, from, treecopy.Options{Still: still}) })
	_, got := treecopy.Receive(ctx, theirs, into, treecopy.Limits{Bytes: math.MaxInt64, Entries: math.MaxInt64})
	ends.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got != nil { // what the sender failed by it has told
		return got
	}
	return sent
}

// roomForTree says why a folder is not copied: there would be too little room left on the disk of the copy.
func roomForTree(from, to string) error {
	var takes uint64
	err := filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if errors.Is(err, fs.ErrNotExist) && path != from { // removed a moment ago
			return nil
		}
		takes += uint64(st.Blocks) * 512
		return err
	})
	if err != nil {
		return err
	}
	return roomFor(takes, to)
}

// usersOf are the pods on this node that have the folder at path as a volume, by whatever claim, and did not end.
func (f *folders) usersOf(ctx context.Context, path string) (pods []types.UID, err error) {
	volumes, err := f.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims := map[string][]string{} // by namespace
	for i := range volumes.Items {
		if v := &volumes.Items[i]; v.Spec.Local != nil && v.Spec.Local.Path == path && v.Spec.ClaimRef != nil {
			claims[v.Spec.ClaimRef.Namespace] = append(claims[v.Spec.ClaimRef.Namespace], v.Spec.ClaimRef.Name)
		}
	}
	for namespace, names := range claims {
		all, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", f.node).String()})
		if err != nil {
			return nil, err
		}
		for i := range all.Items {
			if p := &all.Items[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && has(p, names) {
				pods = append(pods, p.UID)
			}
		}
	}
	return pods, nil
}

// has reports whether a pod has one of these claims.
func has(pod *corev1.Pod, claims []string) bool {
	for i := range pod.Spec.Volumes {
		for _, claim := range claims {
			if isOf(pod, &pod.Spec.Volumes[i], claim) {
				return true
			}
		}
	}
	return false
}

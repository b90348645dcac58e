package storage

import (
	"context"
	"errors"
	"fmt"
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

// unusedLook is how often it is looked whether a pod has what is copied by now.
const unusedLook = 2 * time.Second

// vainPause is for how long pods do not stand still again that did so in vain: the next time would be no better while they are there.
const vainPause = time.Hour

// failure is a copy for which pods stood still in vain.
type failure struct {
	at  time.Time
	why error
}

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

// copying is how one thing is made a copy of another.
type copying struct {
	room func(context.Context) error                 // says why there is none
	make func() error                                // begins it
	pass func(ctx context.Context, still bool) error // makes it the same; still, when nobody changes that one, proves that it is
}

// copyFolder makes what is at into a copy of a folder as it is at one moment, which it gives. It has its name when it is whole and on the disk: until
// then, and after an error, there is nothing. users are the pods that have the folder, and may change it; nil for none.
//
// It is copied while they go on. Then they stand still, and what differs is copied once more.
func (f *folders) copyFolder(ctx context.Context, from, into string, users func(context.Context) ([]types.UID, error)) (moment time.Time, err error) {
	half := into + halfSuffix
	return f.copy(ctx, from, into, users, copying{
		room: func(ctx context.Context) error { return roomForTree(ctx, from, filepath.Dir(into)) },
		make: func() error { return os.Mkdir(half, 0o700) },
		pass: func(ctx context.Context, still bool) error { return alike(ctx, from, half, still) },
	})
}

func (f *folders) copy(ctx context.Context, from, into string, users func(context.Context) ([]types.UID, error), how copying) (moment time.Time, err error) {
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
	var pods []types.UID
	if users != nil {
		if pods, err = users(ctx); err != nil {
			return moment, err
		}
	}
	if last, is := f.failed[from]; is && len(pods) > 0 && time.Since(last.at) < vainPause {
		return moment, last.why
	}
	delete(f.failed, from)
	if err := how.room(ctx); err != nil {
		return moment, err
	}
	if err := how.make(); err != nil {
		return moment, err
	}
	if len(pods) > 0 {
		if err := how.pass(ctx, false); err != nil {
			return moment, lasting(ctx, err)
		}
	}
	if moment, err = f.lastPass(ctx, from, users, how.pass); err != nil {
		return moment, err
	}
	if err := syncAll(half); err != nil { // not while pods stand still: that waits for whatever else is written there
		return moment, err
	}
	if err := os.Rename(half, into); err != nil {
		return moment, err
	}
	return moment, syncFile(filepath.Dir(into))
}

// lastPass makes a copy the same as what it is of, block by block, while nobody changes that.
func (f *folders) lastPass(ctx context.Context, from string, users func(context.Context) ([]types.UID, error), pass func(context.Context, bool) error) (moment time.Time, err error) {
	if users == nil {
		return time.Now(), pass(ctx, true)
	}
	pods, err := users(ctx)
	if err != nil {
		return moment, err
	}
	within, stop := context.WithTimeoutCause(ctx, stillMost, fmt.Errorf("its pods would stand still for more than %s while it is copied: stop them, and it is made", stillMost))
	if len(pods) == 0 { // nobody stands still
		stop()
		within, stop = unused(ctx, users)
	}
	defer stop()
	held, release, err := f.stills.hold(within, pods)
	if err != nil {
		return moment, f.inVain(ctx, from, err)
	}
	defer context.AfterFunc(within, func() { _ = release() })() // whatever the copy waits for; the next line that calls it is told
	moment = time.Now()
	copied := pass(within, true)
	if err := release(); err != nil || ctx.Err() != nil {
		return moment, errors.Join(copied, err)
	}
	if pods, err = users(ctx); err != nil {
		return moment, err
	}
	for _, pod := range pods {
		if !held[pod] && f.stills.group(pod) != "" {
			return moment, errStarted
		}
	}
	if copied != nil && len(held) > 0 {
		return moment, f.inVain(ctx, from, copied)
	}
	return moment, copied
}

// unused lasts until a pod has what is copied: a pod that starts is not to wait until that is done.
func unused(ctx context.Context, users func(context.Context) ([]types.UID, error)) (context.Context, context.CancelFunc) {
	within, stop := context.WithCancelCause(ctx)
	go func() {
		for {
			select {
			case <-within.Done():
				return
			case <-time.After(unusedLook):
			}
			if pods, err := users(within); err == nil && len(pods) > 0 {
				stop(errStarted)
			}
		}
	}()
	return within, func() { stop(nil) }
}

// inVain notes that pods stood still for nothing, and refuses to have them do so again for a while; unless one still does.
func (f *folders) inVain(ctx context.Context, from string, why error) error {
	if err := f.stills.letGo(); err != nil || ctx.Err() != nil {
		return errors.Join(why, err)
	}
	if f.failed == nil {
		f.failed = map[string]failure{}
	}
	why = &refusedError{why.Error()}
	f.failed[from] = failure{time.Now(), why}
	return why
}

// alike makes one folder like another; still, when nobody changes that one, proves that they are the same.
func alike(ctx context.Context, from, into string, still bool) error {
	ours, theirs := net.Pipe()
	var sent error
	var ends sync.WaitGroup
	ends.Go(func() { _, sent = treecopy.Send(ctx, ours, from, treecopy.Options{Still: still}) })
	_, got := treecopy.Receive(ctx, theirs, into, treecopy.Limits{Bytes: math.MaxInt64, Entries: math.MaxInt64, Unsynced: still})
	ends.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got != nil { // what the sender failed by it has told
		return got
	}
	return sent
}

// lasting is an error that trying again at once would not change.
func lasting(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &refusedError{err.Error()}
}

// syncAll has all be on the disk that was written in the file system of a folder.
func syncAll(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// roomForTree says why a folder is not copied: there would be too little room left on the disk of the copy.
func roomForTree(ctx context.Context, from, to string) error {
	takes, err := treecopy.Takes(ctx, from)
	if err != nil {
		return err
	}
	return lasting(ctx, roomFor(uint64(takes), to))
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

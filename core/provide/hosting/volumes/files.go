package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/treecopy"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

// mostCopies is how many copies a consumer has at once: each reads or writes this machine's disk as fast as it can.
const mostCopies = 2

// annotationSelectedNode has Kubernetes make the volume of a claim that no pod uses yet.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// CopyClaim answers POST remote.CopyPath?contract=ID&uid=UID&as=END, an upgrade: the files of the claim's volume go out, or come in.
func (c *Claims) CopyClaim(w http.ResponseWriter, r *http.Request, consumerID string) {
	end := remote.CopyEnd(r.URL.Query().Get("as"))
	folder, size, err := c.copied(r, consumerID, end)
	if err != nil {
		door.Answer(c.log, w, struct{}{}, err)
		return
	}
	if !c.begin(consumerID) {
		door.Answer(c.log, w, struct{}{}, &api.Error{Code: api.CodeNotReady, Message: "files of a claim", Reason: fmt.Sprintf("%d copies are under way already", mostCopies), Do: "try again when one has ended"})
		return
	}
	defer c.end(consumerID)
	conn, err := peering.Upgraded(w, r, remote.CopyProtocol)
	if err != nil {
		return
	}
	began := time.Now()
	var stats treecopy.Stats
	if end == remote.CopyInto {
		stats, err = treecopy.Receive(r.Context(), conn, folder, treecopy.LimitsOf(size))
	} else {
		stats, err = treecopy.Send(r.Context(), conn, folder, treecopy.Options{Still: end == remote.CopyFromStill})
	}
	log := c.log.With("namespace", r.PathValue("home"), "claim", r.PathValue("claim"), "end", end)
	if err != nil {
		log.Info("a copy of a guest's volume broke off", "err", err)
		return
	}
	log.Info("a guest's volume was copied", "entries", stats.Entries, "bytes", stats.Bytes, "sent", stats.Sent, "took", time.Since(began).Round(time.Millisecond))
}

// Copying reports whether files of a claim go out or come in.
func (c *Claims) Copying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.copies) > 0
}

func (c *Claims) begin(consumerID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copies[consumerID] >= mostCopies {
		return false
	}
	c.copies[consumerID]++
	return true
}

func (c *Claims) end(consumerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copies[consumerID]--; c.copies[consumerID] == 0 {
		delete(c.copies, consumerID)
	}
}

// copied gives the folder of a claim's volume, and what the claim asked for of storage.
func (c *Claims) copied(r *http.Request, consumerID string, end remote.CopyEnd) (folder string, size int64, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	consumer, terms, err := c.caller(ctx, r, consumerID)
	if err != nil {
		return "", 0, err
	}
	home, name, uid := r.PathValue("home"), r.PathValue("claim"), r.URL.Query().Get("uid")
	if err := check(home, name); err != nil {
		return "", 0, err
	}
	if end != remote.CopyFrom && end != remote.CopyFromStill && end != remote.CopyInto {
		return "", 0, api.Invalid("as", grants.Cut(string(end), 20), "it is from, from-still or into")
	}
	if terms == nil {
		if end == remote.CopyInto {
			return "", 0, &api.Error{Code: api.CodeForbidden, Message: "files of claim " + name, Reason: "nothing is taken without a contract"}
		}
		return c.keptFolder(ctx, consumer, home, name, types.UID(uid))
	}
	tw, found := c.contracts.TwinFor(terms.Consumer, home)
	var claim corev1.PersistentVolumeClaim
	if found {
		err = c.live.Get(ctx, client.ObjectKey{Namespace: tw.Name, Name: name}, &claim)
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", 0, fmt.Errorf("claim %s/%s: %w", tw.Name, name, err)
	case err != nil || !found || !theirs(&claim, terms.Consumer) || claim.Labels[v1alpha1.LabelHomeClaim] != uid || claim.DeletionTimestamp != nil:
		return "", 0, &api.Error{Code: api.CodeConflict, Message: "files of claim " + name, Reason: "no such claim is kept here"}
	}
	if end != remote.CopyFrom {
		if err := c.unused(ctx, tw.Name, name); err != nil {
			return "", 0, err
		}
	}
	if claim.Spec.VolumeName == "" {
		return "", 0, c.bindHere(ctx, &claim)
	}
	var v corev1.PersistentVolume
	if err := c.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &v); err != nil {
		return "", 0, fmt.Errorf("volume of claim %s/%s: %w", tw.Name, name, err)
	}
	bytes := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	folder, err = c.folder(&v, name)
	return folder, bytes.Value(), err
}

// keptFolder is that of a volume that is kept since its contract ended.
func (c *Claims) keptFolder(ctx context.Context, consumer, home, name string, uid types.UID) (folder string, size int64, err error) {
	v, err := c.kept(ctx, consumer, home, name, uid)
	if err != nil {
		return "", 0, err
	}
	if v == nil {
		return "", 0, &api.Error{Code: api.CodeConflict, Message: "files of claim " + name, Reason: "no such claim is kept here"}
	}
	bytes := v.Spec.Capacity[corev1.ResourceStorage]
	folder, err = c.folder(v, name)
	return folder, bytes.Value(), err
}

// folder is where the files of a volume are, if kithd can read them.
func (c *Claims) folder(v *corev1.PersistentVolume, name string) (string, error) {
	folder, err := volumes.Folder(v, c.Node)
	if err == nil {
		_, err = os.Stat(folder) // kithd may run where it does not see the node's disk
	}
	if errors.Is(err, fs.ErrNotExist) && inImage(folder) {
		return "", &api.Error{Code: api.CodeNotReady, Message: "files of claim " + name, Reason: "its file system grows, or is not mounted yet", Do: "try again in a moment"}
	}
	if err != nil {
		return "", &api.Error{Code: api.CodeForbidden, Message: "files of claim " + name, Reason: err.Error()}
	}
	return folder, nil
}

// inImage reports whether a folder is one in a file system of a guest's, which the engine keeps in a file and takes from its place while that grows
// (engine/storage).
func inImage(folder string) bool {
	is, err := os.Lstat(filepath.Dir(folder) + ".img")
	return err == nil && is.Mode().IsRegular()
}

// unused refuses while a pod has the claim.
func (c *Claims) unused(ctx context.Context, namespace, claim string) error {
	var pods corev1.PodList
	if err := c.live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("pods of %s: %w", namespace, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if volumes.Uses(p, claim) && !v1alpha1.Ended(p.Status.Phase) {
			return &api.Error{Code: api.CodeNotReady, Message: "files of claim " + claim, Reason: "pod " + p.Name + " still has it", Do: "try again when it is gone"}
		}
	}
	return nil
}

// bindHere has the volume of a claim made on this node. Until it is there the consumer is told to come again.
func (c *Claims) bindHere(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[annotationSelectedNode] != c.Node {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, claim.ResourceVersion, annotationSelectedNode, c.Node)
		if err := c.client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch)); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("having the volume of claim %s/%s made: %w", claim.Namespace, claim.Name, err)
		}
	}
	return &api.Error{Code: api.CodeNotReady, Message: "files of claim " + claim.Name, Reason: "its volume is being made", Do: "try again in a moment"}
}

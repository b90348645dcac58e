package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

// A snapshot of a guest's volume is a VolumeSnapshot in the twin, which the built-in Kubernetes makes (engine/storage). Its content is retained when that
// goes, as with the twin at the end of a contract, and says by its labels whose it is. Whatever is here of it, and under whatever contract it was made,
// the contract in force counts it until its files are gone.

// guestSnapshot is what is here of a snapshot of a consumer's: the one, the other or both.
type guestSnapshot struct {
	snapshot *snapshotv1.Snapshot
	content  *snapshotv1.Content
}

func (g *guestSnapshot) meta() *metav1.ObjectMeta {
	if g.content != nil {
		return &g.content.ObjectMeta
	}
	return &g.snapshot.ObjectMeta
}

// size is how much of the contract it takes.
func (g *guestSnapshot) size() resource.Quantity {
	size, _ := resource.ParseQuantity(g.meta().Annotations[v1alpha1.AnnotationSize])
	if g.content != nil && g.content.Status.RestoreSize != nil && size.CmpInt64(*g.content.Status.RestoreSize) < 0 {
		size = *resource.NewQuantity(*g.content.Status.RestoreSize, resource.BinarySI)
	}
	return size
}

func (g *guestSnapshot) class() string { return g.meta().Annotations[v1alpha1.AnnotationClass] }

// ready reports whether a volume may begin with it.
func (g *guestSnapshot) ready() bool {
	return g.snapshot != nil && g.snapshot.Status.Ready && g.snapshot.DeletionTimestamp == nil && g.content != nil && g.content.Status.Ready && g.content.DeletionTimestamp == nil
}

func (g *guestSnapshot) state() (s remote.SnapshotState) {
	if g.ready() {
		return remote.SnapshotState{Ready: true, CreationTime: time.Unix(0, g.content.Status.CreationTime).UTC(), Size: new(g.size()).Value()}
	}
	if g.snapshot != nil && g.snapshot.Status.Error != nil {
		s.Why = grants.Cut(g.snapshot.Status.Error.Message, 500)
	}
	return s
}

// noKinds reports whether a cluster has no snapshots, or none that kithd may see: then it made none.
func noKinds(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

// snapshots are those of guests that have these labels, by consumer and UID at home.
func (c *Claims) snapshots(ctx context.Context, which client.MatchingLabels) (map[string]*guestSnapshot, error) {
	found := map[string]*guestSnapshot{}
	if c.Node == "" { // it is not the built-in Kubernetes
		return found, nil
	}
	for _, kind := range []string{snapshotv1.KindSnapshot, snapshotv1.KindContent} {
		var all unstructured.UnstructuredList
		all.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind + "List"))
		if err := c.live.List(ctx, &all, which, client.HasLabels{v1alpha1.LabelConsumer, v1alpha1.LabelHomeSnapshot}); noKinds(err) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("snapshots of guests: %w", err)
		}
		for i := range all.Items {
			u := &all.Items[i]
			key := u.GetLabels()[v1alpha1.LabelConsumer] + "/" + u.GetLabels()[v1alpha1.LabelHomeSnapshot]
			is := found[key]
			if is == nil {
				is = &guestSnapshot{}
				found[key] = is
			}
			var err error
			if kind == snapshotv1.KindSnapshot {
				is.snapshot, err = snapshotv1.Read[snapshotv1.Snapshot](u)
			} else {
				is.content, err = snapshotv1.Read[snapshotv1.Content](u)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// snapshotsOf are those of a consumer, by UID at home.
func (c *Claims) snapshotsOf(ctx context.Context, consumer string) (map[types.UID]*guestSnapshot, error) {
	all, err := c.snapshots(ctx, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer})
	of := map[types.UID]*guestSnapshot{}
	for _, s := range all {
		of[types.UID(s.meta().Labels[v1alpha1.LabelHomeSnapshot])] = s
	}
	return of, err
}

// PutSnapshot answers PUT remote.SnapshotPath?contract=ID, a remote.Snapshot, with a remote.SnapshotState: the twin of the namespace has such a snapshot
// from then on.
func (c *Claims) PutSnapshot(w http.ResponseWriter, r *http.Request, consumerID string) {
	state, err := c.putSnapshot(r, consumerID)
	door.Answer(c.log, w, state, err)
}

func (c *Claims) putSnapshot(r *http.Request, consumerID string) (state remote.SnapshotState, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	terms, err := c.contracts.Held(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		return state, err
	}
	home, name := r.PathValue("home"), r.PathValue("snapshot")
	if err := check(home, name); err != nil {
		return state, err
	}
	asks, err := remote.ReadSnapshot(r.Body)
	if err != nil {
		return state, &api.Error{Code: api.CodeInvalid, Message: "snapshot " + name, Reason: err.Error()}
	}
	c.making.Lock()
	defer c.making.Unlock()
	is, err := c.ensureSnapshot(ctx, terms, home, name, asks)
	if err != nil {
		return state, err
	}
	return is.state(), nil
}

// ensureSnapshot makes the snapshot unless it is there; one that is kept is given back to the twin.
func (c *Claims) ensureSnapshot(ctx context.Context, terms *grants.Terms, home, name string, asks *remote.Snapshot) (*guestSnapshot, error) {
	tw, found := c.contracts.TwinFor(terms.Consumer, home)
	if !found || tw.Leaving {
		return nil, &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("snapshot %s of namespace %s", name, home), Reason: "the namespace is not here, or is being cleared away", Do: "try again in some seconds"}
	}
	all, err := c.snapshotsOf(ctx, terms.Consumer.Compact)
	if err != nil {
		return nil, err
	}
	is := all[asks.UID]
	switch {
	case is == nil && asks.Claim == "":
		return nil, &api.Error{Code: api.CodeConflict, Message: "snapshot " + name, Reason: "no such snapshot is kept here"}
	case is == nil:
		return c.newSnapshot(ctx, terms, &tw, name, asks)
	case is.meta().Annotations[v1alpha1.AnnotationHomeSnapshot] != home+"/"+name:
		return nil, &api.Error{Code: api.CodeConflict, Message: "snapshot " + name, Reason: "the one of that UID is another namespace's, or is called otherwise"}
	case is.content != nil && is.content.DeletionTimestamp != nil || is.snapshot != nil && (is.snapshot.DeletionTimestamp != nil || is.snapshot.Namespace != tw.Name):
		return nil, &api.Error{Code: api.CodeNotReady, Message: "snapshot " + name, Reason: "it is being deleted, or its namespace is", Do: "try again in some seconds"}
	case is.snapshot == nil && !is.content.Status.Ready: // it was being made when the twin went: there are no files
		return nil, errors.Join(c.removeSnapshot(ctx, is), &api.Error{Code: api.CodeNotReady, Message: "snapshot " + name, Reason: "what is left of a former attempt is being deleted", Do: "try again in some seconds"})
	case is.snapshot == nil:
		return is, c.giveBackSnapshot(ctx, terms, &tw, home, name, is)
	}
	return is, nil
}

// newSnapshot has the built-in Kubernetes make one, within the contract.
func (c *Claims) newSnapshot(ctx context.Context, terms *grants.Terms, tw *grants.Twin, name string, asks *remote.Snapshot) (*guestSnapshot, error) {
	var claim corev1.PersistentVolumeClaim
	err := c.live.Get(ctx, client.ObjectKey{Namespace: tw.Name, Name: asks.Claim}, &claim)
	switch size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("claim %s/%s: %w", tw.Name, asks.Claim, err)
	case err != nil || !theirs(&claim, terms.Consumer) || claim.Labels[v1alpha1.LabelHomeClaim] != string(asks.ClaimUID) || claim.DeletionTimestamp != nil:
		return nil, &api.Error{Code: api.CodeConflict, Message: "snapshot of claim " + asks.Claim, Reason: "no such claim is kept here"}
	case claim.Status.Phase != corev1.ClaimBound || size.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) != 0:
		return nil, &api.Error{Code: api.CodeNotReady, Message: "snapshot of claim " + asks.Claim, Reason: "its volume is being made, or made larger", Do: "try again in a moment"}
	}
	of, size := classOf(&claim), claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if err := c.makesSnapshots(ctx, of); err != nil {
		return nil, err
	}
	if err := c.fits(ctx, terms, of, "snapshot", nil, size); err != nil {
		return nil, err
	}
	if err := c.snapshotClass(ctx); err != nil {
		return nil, err
	}
	keep, _, err := c.keepsFor(ctx, terms.Contract)
	if err != nil {
		return nil, err
	}
	l := labels(terms, tw.Home, asks.UID)
	delete(l, v1alpha1.LabelHomeClaim)
	l[v1alpha1.LabelHomeSnapshot] = string(asks.UID)
	want := metav1.ObjectMeta{Namespace: tw.Name, Name: name, Labels: l, Annotations: map[string]string{
		v1alpha1.AnnotationHomeSnapshot: tw.Home + "/" + name, v1alpha1.AnnotationHomeClaim: tw.Home + "/" + asks.Claim,
		v1alpha1.AnnotationSize: size.String(), v1alpha1.AnnotationKeepFor: keep.String(),
	}}
	if of != "" {
		want.Annotations[v1alpha1.AnnotationClass] = of
	}
	if err := c.createSnapshot(ctx, want, map[string]any{"persistentVolumeClaimName": asks.Claim}); err != nil {
		return nil, err
	}
	c.log.Info("a consumer has a snapshot here", "peer", terms.Consumer.Name, "namespace", tw.Name, "snapshot", name, "claim", asks.Claim, "size", size.String())
	return &guestSnapshot{snapshot: &snapshotv1.Snapshot{ObjectMeta: want}}, c.count(ctx, terms.Consumer.Compact, terms.Contract)
}

// createSnapshot makes a VolumeSnapshot.
func (c *Claims) createSnapshot(ctx context.Context, of metav1.ObjectMeta, source map[string]any) error {
	u, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindSnapshot, "metadata": of,
		"spec": map[string]any{"source": source, "volumeSnapshotClassName": v1alpha1.GuestStorageClass},
	})
	if err != nil {
		return err
	}
	err = c.client.Create(ctx, u, client.FieldOwner(v1alpha1.ManagedBy))
	if apierrors.IsAlreadyExists(err) {
		return &api.Error{Code: api.CodeNotReady, Message: "snapshot " + of.Name, Reason: "a former snapshot of that name is still here", Do: "it is made when that was deleted"}
	}
	if err != nil {
		return fmt.Errorf("making snapshot %s/%s: %w", of.Namespace, of.Name, err)
	}
	return nil
}

// definition is that of the kind of snapshots.
var definition = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// makesSnapshots says why there are no snapshots here of volumes of a class, "" for the default one: the built-in Kubernetes alone makes them.
func (c *Claims) makesSnapshots(ctx context.Context, of string) error {
	no := &api.Error{Code: api.CodeForbidden, Message: "snapshots of volumes", Reason: "the Kubernetes here makes none of guests' volumes", Do: "move the volume home first: kith volume move"}
	class, err := c.class(ctx, of)
	if err != nil {
		return err
	}
	if class.Provisioner != snapshotv1.Driver || c.Node == "" {
		return no
	}
	var crd metav1.PartialObjectMetadata
	crd.SetGroupVersionKind(definition)
	err = c.live.Get(ctx, client.ObjectKey{Name: snapshotv1.Snapshots.GroupResource().String()}, &crd)
	if noKinds(err) || err == nil && crd.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return no
	}
	if err != nil {
		return fmt.Errorf("whether there are snapshots here: %w", err)
	}
	return nil
}

// snapshotClass makes the class of guests' snapshots unless it is there: their contents are retained when the VolumeSnapshots go, whoever deletes these.
func (c *Claims) snapshotClass(ctx context.Context) error {
	u, err := snapshotv1.Write(&snapshotv1.Class{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.GroupVersion.String(), Kind: snapshotv1.KindClass},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestStorageClass, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Driver:     snapshotv1.Driver, DeletionPolicy: snapshotv1.Retain,
	})
	if err == nil {
		err = c.client.Create(ctx, u, client.FieldOwner(v1alpha1.ManagedBy))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("class of guests' snapshots: %w", err)
	}
	return nil
}

// giveBackSnapshot has the twin have one again that was kept, for the engine to bind.
func (c *Claims) giveBackSnapshot(ctx context.Context, terms *grants.Terms, tw *grants.Twin, home, name string, is *guestSnapshot) error {
	if of := is.content.Spec.Snapshot; of.Namespace != tw.Name || of.Name != name || of.UID != "" {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"volumeSnapshotRef":{"namespace":%q,"name":%q,"uid":null,"resourceVersion":null}}}`, v1alpha1.AnnotationKeptUntil, tw.Name, name)
		if err := c.patchContent(ctx, is.content, patch); err != nil {
			return err
		}
	}
	next := metav1.ObjectMeta{Namespace: tw.Name, Name: name, Labels: maps.Clone(is.content.Labels), Annotations: maps.Clone(is.content.Annotations)}
	next.Labels[v1alpha1.LabelContract] = terms.Contract
	delete(next.Annotations, v1alpha1.AnnotationKeptUntil)
	if err := c.createSnapshot(ctx, next, map[string]any{"volumeSnapshotContentName": is.content.Name}); err != nil {
		return err
	}
	c.log.Info("a consumer has a snapshot again", "peer", terms.Consumer.Name, "namespace", home, "snapshot", name)
	is.snapshot = &snapshotv1.Snapshot{ObjectMeta: next}
	return nil
}

// patchContent changes a content as it was read.
func (c *Claims) patchContent(ctx context.Context, is *snapshotv1.Content, patch []byte) error {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindContent))
	u.SetName(is.Name)
	if err := c.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("VolumeSnapshotContent %s: %w", is.Name, err)
	}
	return nil
}

// DeleteSnapshot answers DELETE remote.SnapshotPath?contract=ID&uid=UID: the snapshot of that UID is deleted with its files. Until they are gone it is
// api.CodeNotReady. Without a contract it is about what is kept since one ended.
func (c *Claims) DeleteSnapshot(w http.ResponseWriter, r *http.Request, consumerID string) {
	door.Answer(c.log, w, struct{}{}, c.deleteSnapshot(r, consumerID))
}

func (c *Claims) deleteSnapshot(r *http.Request, consumerID string) error {
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	consumer, terms, err := c.caller(ctx, r, consumerID)
	if err != nil {
		return err
	}
	home, name, uid := r.PathValue("home"), r.PathValue("snapshot"), r.URL.Query().Get("uid")
	if err := check(home, name); err != nil {
		return err
	}
	if err := remote.CheckClaimUID(uid); err != nil {
		return &api.Error{Code: api.CodeInvalid, Message: "snapshot " + name, Reason: err.Error()}
	}
	c.making.Lock()
	defer c.making.Unlock()
	all, err := c.snapshotsOf(ctx, consumer)
	if err != nil {
		return err
	}
	is := all[types.UID(uid)]
	if is == nil || is.meta().Labels[v1alpha1.LabelHomeNamespace] != home {
		if terms == nil {
			return nil
		}
		return c.count(ctx, consumer, terms.Contract)
	}
	if terms == nil && is.snapshot != nil {
		return &api.Error{Code: api.CodeForbidden, Message: "snapshot " + name, Reason: "its contract is still being ended here", Do: "try again in a moment"}
	}
	if err := c.removeSnapshot(ctx, is); err != nil {
		return err
	}
	c.log.Info("a consumer deleted a snapshot", "consumer", consumer, "namespace", home, "snapshot", name)
	return &api.Error{Code: api.CodeNotReady, Message: "snapshot " + name, Reason: "it is being deleted", Do: "try again in a moment"}
}

// removeSnapshot has the engine delete one with its files.
func (c *Claims) removeSnapshot(ctx context.Context, is *guestSnapshot) error {
	if is.content != nil && is.content.Spec.DeletionPolicy != snapshotv1.Delete {
		if err := c.patchContent(ctx, is.content, fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, snapshotv1.Delete)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	kind := snapshotv1.KindContent
	if is.snapshot != nil {
		kind = snapshotv1.KindSnapshot // the content goes with it
	}
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind))
	of := is.meta()
	if is.snapshot != nil {
		of = &is.snapshot.ObjectMeta
	}
	u.SetNamespace(of.Namespace)
	u.SetName(of.Name)
	if err := c.client.Delete(ctx, u, client.Preconditions{UID: &of.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting snapshot %s/%s: %w", of.Namespace, of.Name, err)
	}
	return nil
}

// begins is the snapshot that a claim is to begin with.
func (c *Claims) begins(ctx context.Context, terms *grants.Terms, home, name string, claim *remote.Claim, size resource.Quantity) (*guestSnapshot, error) {
	all, err := c.snapshotsOf(ctx, terms.Consumer.Compact)
	if err != nil {
		return nil, err
	}
	is := all[claim.Snapshot]
	switch {
	case is == nil || is.meta().Labels[v1alpha1.LabelHomeNamespace] != home:
		return nil, &api.Error{Code: api.CodeConflict, Message: "claim " + name, Reason: "the snapshot that it is to begin with is not kept here"}
	case !is.ready():
		return nil, &api.Error{Code: api.CodeNotReady, Message: "claim " + name, Reason: "the snapshot that it is to begin with is not ready", Do: "try again in a moment"}
	case is.class() != claim.Class:
		return nil, &api.Error{Code: api.CodeForbidden, Message: "claim " + name, Reason: "the snapshot that it is to begin with is of " + classWords(is.class()) + ", and " + classWords(claim.Class) + " is asked for"}
	case size.Cmp(is.size()) < 0:
		return nil, &api.Error{Code: api.CodeForbidden, Message: "claim " + name, Reason: fmt.Sprintf("it asks for %s, and the snapshot that it is to begin with needs %s", size.String(), new(is.size()).String())}
	}
	return is, nil
}

// beingCopied refuses while a snapshot of a claim is being made: it would be larger than the contract counts it.
func (c *Claims) beingCopied(ctx context.Context, consumer string, claim *corev1.PersistentVolumeClaim) error {
	all, err := c.snapshotsOf(ctx, consumer)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.snapshot != nil && s.snapshot.Namespace == claim.Namespace && s.snapshot.Spec.Source.Claim == claim.Name && !s.snapshot.Status.Ready {
			return &api.Error{Code: api.CodeNotReady, Message: "claim " + claim.Name, Reason: "a snapshot of it is being made", Do: "it grows when that is done"}
		}
	}
	return nil
}

// goingLook is how often it is looked whether what is being deleted is gone, or is to be kept after all.
const goingLook = time.Minute

// keepSnapshots has those that no contract is for kept for their time, and deletes them then. It tells when it is to be called again; 0 for when a contract changes.
func (c *Claims) keepSnapshots(ctx context.Context) (again time.Duration, err error) {
	all, err := c.snapshots(ctx, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	if err != nil || len(all) == 0 {
		return 0, err
	}
	agreed, err := c.agreedWith(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		is := all[key]
		if is.content == nil || is.content.DeletionTimestamp != nil {
			if _, under := agreed[is.meta().Labels[v1alpha1.LabelConsumer]]; !under && (again == 0 || again > goingLook) {
				again = goingLook // its twin is going, and it may get a content until then
			}
			continue
		}
		a := is.content.Annotations
		if keep, under := agreed[is.meta().Labels[v1alpha1.LabelConsumer]]; under {
			if a[v1alpha1.AnnotationKeepFor] != keep.String() || a[v1alpha1.AnnotationKeptUntil] != "" {
				errs = append(errs, c.patchContent(ctx, is.content, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:null}}}`, v1alpha1.AnnotationKeepFor, keep.String(), v1alpha1.AnnotationKeptUntil)))
			}
			continue
		}
		until, err := time.Parse(time.RFC3339, a[v1alpha1.AnnotationKeptUntil])
		if err != nil {
			until = time.Now().Add(keptFor(is.content)).Truncate(time.Second)
			errs = append(errs, c.patchContent(ctx, is.content, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationKeptUntil, until.UTC().Format(time.RFC3339))))
			c.log.Info("there is no contract any more for a guest's snapshot; it is kept", "peer", is.meta().Labels[v1alpha1.LabelConsumerName], "snapshot", a[v1alpha1.AnnotationHomeSnapshot], "until", until)
		}
		left := time.Until(until)
		if left > 0 {
			if again == 0 || left < again {
				again = left
			}
			continue
		}
		c.log.Info("a guest's snapshot was kept long enough; it is deleted", "peer", is.meta().Labels[v1alpha1.LabelConsumerName], "snapshot", a[v1alpha1.AnnotationHomeSnapshot])
		errs = append(errs, c.removeSnapshot(ctx, is))
	}
	return again, errors.Join(errs...)
}

// agreedWith is for how long volumes are kept of the consumers that there is a contract with, by their compact IDs.
func (c *Claims) agreedWith(ctx context.Context) (map[string]time.Duration, error) {
	var contracts v1alpha1.ContractList
	var peers v1alpha1.PeerList
	if err := errors.Join(c.client.List(ctx, &contracts), c.client.List(ctx, &peers)); err != nil {
		return nil, fmt.Errorf("contracts that snapshots are kept for: %w", err)
	}
	with := map[string]time.Duration{}
	for i := range peers.Items {
		consumer, err := grants.ConsumerOf(&peers.Items[i])
		if err != nil {
			continue
		}
		for j := range contracts.Items {
			if ctr := &contracts.Items[j]; ctr.Spec.Role == v1alpha1.RoleProvider && ctr.Spec.Peer == peers.Items[i].Name && ctr.DeletionTimestamp == nil && ctr.Status.State != v1alpha1.StateEnding {
				with[consumer.Compact] = record.Keeps(ctr)
			}
		}
	}
	return with, nil
}

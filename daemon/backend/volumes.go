package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/trust/contract"
)

// Volumes gives the volumes of this cluster at peers, and of peers here, and the snapshots of this cluster's.
func (b *Backend) Volumes(ctx context.Context) ([]api.Volume, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	var all corev1.PersistentVolumeList
	if err := c.Client.List(ctx, &all); err != nil {
		return nil, internal(err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := c.Client.List(ctx, &claims); err != nil {
		return nil, internal(err)
	}
	moves := map[string]*api.Move{} // by volume
	for i := range claims.Items {
		if m := b.moveOf(c, &claims.Items[i]); m != nil {
			moves[claims.Items[i].Spec.VolumeName] = m
		}
	}
	var list []api.Volume
	for i := range all.Items {
		if v, ok := volumeOf(&all.Items[i], moves[all.Items[i].Name]); ok {
			list = append(list, v)
		}
	}
	snapshots, err := snapshotsOf(ctx, c.Fresh)
	if err != nil {
		return nil, internal(err)
	}
	guests, err := guestSnapshots(ctx, c.Fresh)
	if err != nil {
		return nil, internal(err)
	}
	list = append(append(list, snapshots...), guests...)
	slices.SortFunc(list, func(a, b api.Volume) int {
		return cmp.Or(-strings.Compare(string(a.Direction), string(b.Direction)), strings.Compare(a.Peer, b.Peer), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Claim, b.Claim), strings.Compare(a.Snapshot, b.Snapshot))
	})
	return list, nil
}

// volumeOf reads a PersistentVolume; false when it is neither at a peer nor a peer's, nor on its way to one.
func volumeOf(pv *corev1.PersistentVolume, move *api.Move) (api.Volume, bool) {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	v := api.Volume{Volume: pv.Name, Size: size.String(), Phase: string(pv.Status.Phase), Move: move}
	class, ofGuest := v1alpha1.ClassOfGuests(pv.Spec.StorageClassName)
	switch peer := volumes.AtPeer(pv); {
	case peer != "":
		v.Class = volumes.ClassOf(pv)
		v.Direction, v.Peer = api.Outgoing, peer
		v.Namespace, v.Claim = volumes.ClaimOf(pv)
	case ofGuest && pv.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		v.Class = class
		v.Direction, v.Peer = api.Incoming, pv.Labels[v1alpha1.LabelConsumerName]
		v.Namespace, v.Claim, _ = strings.Cut(pv.Annotations[v1alpha1.AnnotationHomeClaim], "/")
		v.KeptUntil, _ = time.Parse(time.RFC3339, pv.Annotations[v1alpha1.AnnotationKeptUntil])
	case move != nil && pv.Spec.ClaimRef != nil:
		v.Direction, v.Namespace, v.Claim = api.Outgoing, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
	default:
		return api.Volume{}, false
	}
	return v, true
}

// holdings are the data of this cluster at a peer, or at all peers of a namespace.
type holdings struct {
	volumes   []corev1.PersistentVolume
	snapshots []volumes.HeldSnapshot
}

func (h holdings) none() bool { return len(h.volumes)+len(h.snapshots) == 0 }

// words name them for people.
func (h holdings) words() string {
	words := []string{volumes.Words(h.volumes), volumes.SnapshotWords(h.snapshots)}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

// held are the volumes and snapshots of this cluster at a peer, or at all peers of a namespace. What is decided by them is read past the cache.
func held(ctx context.Context, from client.Reader, peer, namespace string) (h holdings, err error) {
	var all corev1.PersistentVolumeList
	if err := from.List(ctx, &all); err != nil {
		return h, internal(fmt.Errorf("see which volumes are at peers: %w", err))
	}
	h.volumes = volumes.Held(all.Items, peer, namespace)
	if h.snapshots, err = volumes.Snapshots(ctx, from, peer, namespace); err != nil {
		return h, internal(fmt.Errorf("see which snapshots are at peers: %w", err))
	}
	return h, nil
}

// letGo refuses what would end volumes or snapshots at a peer, or at all of a namespace, unless they may be deleted; then it deletes them, with their
// claims. In a dry run it only refuses. what is said to be done, command how it deletes them.
func (c *Cluster) letGo(ctx context.Context, peer, namespace, what, command string, may bool, dry api.DryRun, report func(api.Progress)) error {
	held, err := held(ctx, c.Fresh, peer, namespace)
	if err != nil || held.none() {
		return err
	}
	if !may {
		leave := ""
		if peer != "" {
			leave = ", and --leave-volumes leaves them there for " + api.Span(c.keeps(peer))
		}
		left, all := "volumes", "claims (kubectl delete pvc)"
		if len(held.snapshots) > 0 {
			left, all = "volumes or snapshots", "claims and VolumeSnapshots (kubectl delete pvc, volumesnapshot)"
		}
		return &api.Error{
			Code: api.CodeConflict, Message: what + " would leave " + left + " behind", Reason: held.words(),
			Do: "copy what you need and delete the " + all + ", or `" + command + " --delete-volumes` deletes them with their data" + leave,
		}
	}
	if dry {
		return nil
	}
	report(api.Progress{Message: "deleting volumes: " + held.words()})
	for i := range held.snapshots {
		if err := c.deleteSnapshot(ctx, &held.snapshots[i], report); err != nil {
			return internal(err)
		}
	}
	for i := range held.volumes {
		if err := c.deleteVolume(ctx, &held.volumes[i], report); err != nil {
			return internal(err)
		}
	}
	return nil
}

// keeps is how long a peer keeps volumes of this cluster after the end of the contract in force.
func (c *Cluster) keeps(peer string) time.Duration {
	if ctr := c.Client.Now().InForce(peer, v1alpha1.RoleConsumer); ctr != nil {
		return record.Keeps(ctr)
	}
	return contract.DefaultKeep
}

// leaveVolumes does what is to be done with volumes of this cluster at a peer before the peering ends.
func (c *Cluster) leaveVolumes(ctx context.Context, peer, name string, options api.EndOptions, report func(api.Progress)) error {
	if !options.LeaveVolumes {
		return c.letGo(ctx, peer, "", "the end of the peering with "+name, "kith unpeer "+name, bool(options.DeleteVolumes), options.DryRun, report)
	}
	held, err := held(ctx, c.Fresh, peer, "")
	if err == nil && !held.none() && !bool(options.DryRun) {
		report(api.Progress{Message: fmt.Sprintf("leaving volumes at %s, which keeps them for %s: %s", name, api.Span(c.keeps(peer)), held.words())})
	}
	return err
}

// deleteVolume has a peer delete a volume, and deletes its claim here. The peer is asked first: without a contract nobody could.
func (c *Cluster) deleteVolume(ctx context.Context, v *corev1.PersistentVolume, report func(api.Progress)) error {
	if err := c.Fleet.Discard(ctx, v); err != nil {
		report(api.Progress{Message: fmt.Sprintf("%s cannot be asked to delete %s, and does so by itself in some days: %v", volumes.AtPeer(v), v.Name, err)})
	}
	policy := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`))
	if err := client.IgnoreNotFound(c.Client.Patch(ctx, v, policy)); err != nil {
		return err
	}
	of := v.Spec.ClaimRef
	if of == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}
	err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &of.UID})
	return client.IgnoreNotFound(err)
}

// checkVolumes refuses to let volumes of a namespace be anywhere while it has claims that could not follow, and to keep them home again while
// some are at peers: pods that are made from then on would wait for ever.
func (c *Cluster) checkVolumes(ctx context.Context, namespace string, was, is v1alpha1.VolumePlace) error {
	switch {
	case was == v1alpha1.VolumesAnywhere && is != was:
		held, err := held(ctx, c.Fresh, "", namespace)
		if err != nil || held.none() {
			return err
		}
		return &api.Error{
			Code: api.CodeConflict, Message: "volumes of " + namespace + " cannot be at home only", Field: "volumes", Reason: "some are at peers: " + held.words(),
			Do: "say --volumes anywhere as before, or delete their claims and snapshots first",
		}
	case is != v1alpha1.VolumesAnywhere || was == is:
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	var all corev1.PersistentVolumeList
	var classes storagev1.StorageClassList
	if err := errors.Join(c.Fresh.List(ctx, &claims, client.InNamespace(namespace)), c.Fresh.List(ctx, &all), c.Fresh.List(ctx, &classes)); err != nil {
		return internal(err)
	}
	if stay := offloading.StaysHome(claims.Items, all.Items, classes.Items); len(stay) > 0 {
		slices.Sort(stay)
		return &api.Error{
			Code: api.CodeConflict, Message: "volumes of " + namespace + " cannot be anywhere", Field: "volumes",
			Reason: "these claims are of another class than kith, and nothing says at which node their volumes are: " + strings.Join(stay, ", "),
			Do:     "delete them, or wait until pods have used them: a volume that is there stays where it is",
		}
	}
	return nil
}

var movePhases = map[volumes.Phase]api.MovePhase{
	volumes.Copying: api.MoveCopying, volumes.Stopped: api.MoveStopped, volumes.Switched: api.MoveSwitched, volumes.Failed: api.MoveFailed,
}

// moveOf is the move of a claim's volume; nil when it stays.
func (b *Backend) moveOf(c *Cluster, claim *corev1.PersistentVolumeClaim) *api.Move {
	is, to := volumes.MoveOf(claim), claim.Annotations[v1alpha1.AnnotationMoveTo]
	if is == nil && to == "" {
		return nil
	}
	m := &api.Move{To: b.place(to), Phase: api.MoveWaiting}
	if is == nil {
		return m
	}
	m.To, m.Phase, m.Why = b.place(is.To), movePhases[is.Phase], is.Why
	if p, ok := c.Moves.Progress(client.ObjectKeyFromObject(claim)); ok {
		m.Entries, m.OfEntries, m.Bytes, m.OfBytes = p.Done.Entries, p.Total.Entries, p.Done.Bytes, p.Total.Bytes
	}
	return m
}

// place is what a node is called where people name places.
func (b *Backend) place(node string) string {
	if peer, ok := strings.CutPrefix(node, v1alpha1.VirtualNodePrefix); ok {
		return peer
	}
	return api.Home
}

// MoveVolume has the volume of a claim go elsewhere, or stay.
func (b *Backend) MoveVolume(ctx context.Context, o api.MoveOptions, report func(api.Progress)) (api.Volume, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Volume{}, err
	}
	to := ""
	switch o.To {
	case "":
	case api.Home:
		to = b.Engine.Facts().NodeName
	default:
		k, err := b.Directory.Find(o.To)
		if err != nil {
			return api.Volume{}, err
		}
		if k.Peer == nil {
			return api.Volume{}, &api.Error{Code: api.CodeConflict, Message: "volumes cannot go to " + o.To, Reason: "it is no peer of this cluster", Do: "kith peer " + o.To + " --storage AMOUNT"}
		}
		to = v1alpha1.VirtualNodePrefix + k.Peer.Name
	}
	what := o.Namespace + "/" + o.Claim
	if err := c.setMove(ctx, o, to); err != nil {
		return api.Volume{}, err
	}
	if o.Cancel {
		report(api.Progress{Message: what + " stays where it is"})
	}
	if !o.Wait && !o.Cancel {
		return b.volume(ctx, c, o)
	}
	return b.followMove(ctx, c, o, to, report)
}

// setMove writes on a claim where its volume is to go; "" has it stay.
func (c *Cluster) setMove(ctx context.Context, o api.MoveOptions, to string) error {
	for {
		var claim corev1.PersistentVolumeClaim
		err := c.Fresh.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Claim}, &claim)
		if apierrors.IsNotFound(err) {
			return api.NotFound("claim", o.Namespace+"/"+o.Claim, "kubectl get pvc -A")
		}
		if err != nil {
			return internal(err)
		}
		is := volumes.MoveOf(&claim)
		if o.Cancel && is == nil && claim.Annotations[v1alpha1.AnnotationMoveTo] == "" {
			return &api.Error{Code: api.CodeConflict, Message: "claim " + o.Namespace + "/" + o.Claim, Reason: "its volume is not on its way anywhere"}
		}
		if o.Cancel && is != nil && is.Phase == volumes.Switched {
			return &api.Error{Code: api.CodeConflict, Message: "claim " + o.Namespace + "/" + o.Claim, Reason: "its volume is at its new place already", Do: "move it back, if you like"}
		}
		next := claim.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		delete(next.Annotations, v1alpha1.AnnotationMoveTo)
		delete(next.Annotations, v1alpha1.AnnotationMoveRate)
		if !o.Cancel {
			next.Annotations[v1alpha1.AnnotationMoveTo] = to
		}
		if o.Rate != "" {
			next.Annotations[v1alpha1.AnnotationMoveRate] = o.Rate
		}
		if is != nil && is.Phase == volumes.Failed { // once more
			delete(next.Annotations, v1alpha1.AnnotationMove)
		}
		err = c.Client.Patch(ctx, next, client.MergeFromWithOptions(&claim, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return internal(err)
		}
		return nil
	}
}

// volume is what the list of volumes would say of a claim's.
func (b *Backend) volume(ctx context.Context, c *Cluster, o api.MoveOptions) (api.Volume, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.Fresh.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Claim}, &claim); err != nil {
		return api.Volume{}, internal(err)
	}
	v := api.Volume{Direction: api.Outgoing, Namespace: o.Namespace, Claim: o.Claim, Volume: claim.Spec.VolumeName, Move: b.moveOf(c, &claim)}
	var pv corev1.PersistentVolume
	if err := c.Fresh.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &pv); err == nil {
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		v.Size, v.Phase, v.Peer, v.Class = size.String(), string(pv.Status.Phase), volumes.AtPeer(&pv), volumes.ClassOf(&pv)
	}
	return v, nil
}

// How often somebody who waits is told how far a move is, and how often it is looked whether a phase is over.
const (
	moveTold = 5 * time.Second
	moveLook = 500 * time.Millisecond
)

// followMove tells of a move until it is over.
func (b *Backend) followMove(ctx context.Context, c *Cluster, o api.MoveOptions, to string, report func(api.Progress)) (api.Volume, error) {
	var told time.Time
	var phase api.MovePhase
	for {
		v, err := b.volume(ctx, c, o)
		if err != nil {
			return v, err
		}
		if v.Move == nil {
			if at := cmp.Or(v.Peer, api.Home); !o.Cancel && v1alpha1.VirtualNodePrefix+at != to && (at != api.Home || to != b.Engine.Facts().NodeName) {
				return v, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("move %s/%s", o.Namespace, o.Claim), Reason: "somebody had it stay at " + at}
			}
			return v, nil
		}
		if v.Move.Phase == api.MoveFailed && !o.Cancel {
			return v, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("move %s/%s to %s", o.Namespace, o.Claim, v.Move.To), Reason: v.Move.Why, Do: "it is where it was; see to that, and ask again"}
		}
		if v.Move.Phase != phase || v.Move.OfBytes > 0 && time.Since(told) > moveTold {
			phase, told = v.Move.Phase, time.Now()
			report(api.Progress{Message: moveWords(v.Move)})
		}
		select {
		case <-time.After(moveLook):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// moveWords say how far a move is.
func moveWords(m *api.Move) string {
	words := map[api.MovePhase]string{
		api.MoveWaiting: "looking whether it can be moved to " + m.To, api.MoveCopying: "copying to " + m.To + " while its pods go on",
		api.MoveStopped: "its pods are stopped: copying what they changed to " + m.To + ", and comparing all", api.MoveSwitched: "it is at " + m.To + "; deleting what is left",
	}[m.Phase]
	if m.OfBytes > 0 {
		done := resource.NewQuantity(m.Bytes>>20<<20, resource.BinarySI)
		all := resource.NewQuantity(m.OfBytes>>20<<20, resource.BinarySI)
		words += fmt.Sprintf(": %s of %s", done, all)
	}
	return words
}

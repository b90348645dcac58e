package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

// claimTimeout bounds one call; consumers wait for 15 s.
const claimTimeout = 14 * time.Second

// Claims makes and deletes claims for consumers, and copies what is in their volumes. Make it with New.
type Claims struct {
	// Node is the one that kithd runs on, whose volumes alone it can copy. Set it before anybody asks.
	Node string

	client      client.Client
	live        client.Reader
	contracts   *grants.Contracts
	allocations *grants.Allocations
	audits      *audit.Log
	log         *slog.Logger

	making sync.Mutex // one claim is made at a time: two must not share the same room under a contract

	mu     sync.Mutex
	copies map[string]int // under way, by consumer
}

// New makes Claims. live reads past the cache of c.
func New(c client.Client, live client.Reader, contracts *grants.Contracts, allocations *grants.Allocations, audits *audit.Log, log *slog.Logger) *Claims {
	return &Claims{client: c, live: live, contracts: contracts, allocations: allocations, audits: audits, log: log, copies: map[string]int{}}
}

// PutClaim answers PUT remote.ClaimPath?contract=ID, a remote.Claim, with a remote.ClaimState: the twin of the namespace has such a claim from then
// on. It is bound when a guest uses it first, and then it grows when more is asked for.
func (c *Claims) PutClaim(w http.ResponseWriter, r *http.Request, consumerID string) {
	state, err := c.put(r, consumerID)
	door.Answer(c.log, w, state, err)
}

func (c *Claims) put(r *http.Request, consumerID string) (state remote.ClaimState, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	terms, err := c.contracts.Held(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		return state, err
	}
	home, name := r.PathValue("home"), r.PathValue("claim")
	if err := check(home, name); err != nil {
		return state, err
	}
	claim, err := remote.ReadClaim(r.Body)
	if err != nil {
		return state, &api.Error{Code: api.CodeInvalid, Message: "claim " + name, Reason: err.Error()}
	}
	c.making.Lock()
	defer c.making.Unlock()
	return c.ensure(ctx, terms, home, name, claim)
}

func check(home, name string) error {
	if err := grants.CheckHome(home); err != nil {
		return err
	}
	if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
		return api.Invalid("claim", grants.Cut(name, 80), why[0])
	}
	return nil
}

// ensure makes the claim unless it is there; one that is there and is to be larger grows.
func (c *Claims) ensure(ctx context.Context, terms *grants.Terms, home, name string, claim *remote.Claim) (state remote.ClaimState, err error) {
	size, err := claim.Size()
	if err != nil {
		return state, err
	}
	tw, found := c.contracts.TwinFor(terms.Consumer, home)
	if !found || tw.Leaving {
		return state, &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("claim %s of namespace %s", name, home), Reason: "the namespace is not here, or is being cleared away", Do: "try again in some seconds"}
	}
	var is corev1.PersistentVolumeClaim
	switch err := c.live.Get(ctx, client.ObjectKey{Namespace: tw.Name, Name: name}, &is); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return state, fmt.Errorf("claim %s/%s: %w", tw.Name, name, err)
	case !theirs(&is, terms.Consumer):
		return state, &api.Error{Code: api.CodeConflict, Message: "claim " + name, Reason: "the owner here has a claim of that name in the namespace"}
	case is.Labels[v1alpha1.LabelHomeClaim] == string(claim.UID) && is.DeletionTimestamp == nil && classOf(&is) != claim.Class:
		return state, &api.Error{Code: api.CodeConflict, Message: "claim " + name,
			Reason: "its volume here is of " + classWords(classOf(&is)) + ", and " + classWords(claim.Class) + " is asked for", Do: "make another claim: a volume stays of its class"}
	case is.Labels[v1alpha1.LabelHomeClaim] == string(claim.UID) && is.DeletionTimestamp == nil:
		return c.grow(ctx, terms, &is, size)
	default:
		return state, &api.Error{Code: api.CodeNotReady, Message: "claim " + name, Reason: "a former claim of that name is still here", Do: "it is made when that was deleted"}
	}
	kept, err := c.kept(ctx, terms.Consumer.Compact, home, name, claim.UID)
	if err != nil {
		return state, err
	}
	of := claim.Class
	if kept != nil { // a claim of another size or class would not be given it, and this one grows then
		size = kept.Spec.Capacity[corev1.ResourceStorage]
		of, _ = v1alpha1.ClassOfGuests(kept.Spec.StorageClassName)
	}
	var begins *guestSnapshot
	if kept == nil && claim.Snapshot != "" {
		if begins, err = c.begins(ctx, terms, home, name, claim, size); err != nil {
			return state, err
		}
	}
	if err := c.fits(ctx, terms, of, "claim", nil, size); err != nil {
		return state, err
	}
	class, err := c.class(ctx, of)
	if err != nil {
		return state, err
	}
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tw.Name, Name: name, Labels: labels(terms, home, claim.UID),
			Annotations: map[string]string{v1alpha1.AnnotationHomeClaim: home + "/" + name},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.AccessModes, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
	if begins != nil { // it is made at once: the snapshot may be deleted when the claim at home has its volume
		want.Annotations[annotationSelectedNode] = c.Node
		want.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupVersion.Group), Kind: snapshotv1.KindSnapshot, Name: begins.snapshot.Name}
	}
	if kept != nil {
		want.Spec.VolumeName = kept.Name
		if err := c.giveBack(ctx, kept, want); err != nil {
			return state, err
		}
	}
	if err := c.client.Create(ctx, want, client.FieldOwner(v1alpha1.ManagedBy)); err != nil && !apierrors.IsAlreadyExists(err) {
		return state, c.refused(terms, name, err)
	}
	c.log.Info("a consumer has a claim here", "peer", terms.Consumer.Name, "namespace", tw.Name, "claim", name, "size", size.String(), "again", kept != nil)
	return volumes.StateOf(want), c.count(ctx, terms.Consumer.Compact, terms.Contract)
}

// refused tells the consumer of what the API server refuses; the rest is for this side.
func (c *Claims) refused(terms *grants.Terms, name string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		no := &api.Error{Code: api.CodeForbidden, Message: "claim " + name, Reason: grants.Cut(err.Error(), 500)}
		c.audits.Note(audit.Refusal{Door: audit.Guests, Reason: grants.ReasonQuota, ID: terms.Consumer.ID, What: "claim " + name, Why: no.Reason, Usual: true})
		return no
	}
	return fmt.Errorf("making claim %s: %w", name, err)
}

func labels(terms *grants.Terms, home string, uid types.UID) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: terms.Consumer.Compact, v1alpha1.LabelConsumerName: grants.LabelValue(terms.Consumer.Name),
		v1alpha1.LabelContract: terms.Contract, v1alpha1.LabelHomeNamespace: home, v1alpha1.LabelHomeClaim: string(uid),
	}
}

// theirs reports whether a claim or a volume was made for this consumer.
func theirs(o metav1.Object, consumer grants.Consumer) bool {
	l := o.GetLabels()
	return l[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && l[v1alpha1.LabelConsumer] == consumer.Compact && l[v1alpha1.LabelHomeClaim] != ""
}

// classOf is the class of this cluster that the volume of a claim here is of, "" for the default class.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	class, _ := v1alpha1.ClassOfGuests(*claim.Spec.StorageClassName)
	return class
}

func classWords(class string) string {
	if class == "" {
		return "the default class"
	}
	return "storage class " + class
}

// fits says why so much of a class for a claim, or a snapshot, is beyond the contract, or nil; is, if any, is the claim that is to grow to it.
func (c *Claims) fits(ctx context.Context, terms *grants.Terms, class, what string, is *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	name, option := corev1.ResourceName(api.StorageOf(class)), ""
	allowed, granted := terms.Limit[name]
	if class != "" {
		option = class + "="
	}
	if !granted || allowed.Sign() <= 0 {
		no := &api.Error{Code: api.CodeForbidden, Message: what + " of " + size.String(), Reason: "the contract grants no storage", Do: "ask for some: kith peer NAME --storage " + option + "20Gi"}
		if class != "" {
			no.Reason += " of storage class " + class
		}
		return no
	}
	all, have, err := c.used(ctx, terms.Consumer.Compact, terms.Contract)
	if err != nil {
		return err
	}
	used := all[name]
	sum, asks := used.DeepCopy(), "asks for "+size.String()
	if what != "claim" {
		asks = "takes " + size.String()
	}
	sum.Add(size)
	if is != nil {
		has := is.Spec.Resources.Requests[corev1.ResourceStorage]
		sum.Sub(has)
		have--
		asks = fmt.Sprintf("is to grow from %s to %s", has.String(), size.String())
	}
	pods := terms.Limit[corev1.ResourcePods]
	most := int(pods.Value()) + moreClaims
	if sum.Cmp(allowed) <= 0 && have < most {
		return nil
	}
	no := &api.Error{
		Code: api.CodeForbidden, Message: fmt.Sprintf("contract %s would be exceeded", terms.Contract),
		Reason: fmt.Sprintf("%s: the %s %s, %s of %s is in use", api.Called(string(name)), what, asks, used.String(), allowed.String()),
		Do:     "ask for more: kith peer NAME --storage " + option + "AMOUNT",
	}
	if have >= most {
		no.Do = ""
		no.Reason = fmt.Sprintf("%d claims and snapshots are kept under it: one for each pod that it grants and %d more are allowed", have, moreClaims)
	}
	c.audits.Note(audit.Refusal{Door: audit.Guests, Reason: grants.ReasonQuota, ID: terms.Consumer.ID, What: what + " of " + size.String(), Why: no.Reason, Usual: true})
	return no
}

// moreClaims is how many claims and snapshots there may be under a contract beside one for each pod that it grants, whatever their size: a file system that is
// mounted takes memory of the kernel, which is nobody's.
const moreClaims = 10

// used sums up, by class, what the claims of a consumer ask for that are under a contract now, and counts them. A claim outlives the contract that it was
// made under when the next takes over its namespace. Snapshots of the consumer's are counted with them, those that are kept, too.
func (c *Claims) used(ctx context.Context, consumer, contract string) (sums corev1.ResourceList, have int, err error) {
	var claims corev1.PersistentVolumeClaimList
	if err := c.live.List(ctx, &claims, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer}); err != nil {
		return nil, 0, fmt.Errorf("summing up claims: %w", err)
	}
	sums = corev1.ResourceList{}
	for i := range claims.Items {
		if claim := &claims.Items[i]; c.contracts.Twin(claim.Namespace).Contract == contract {
			name := corev1.ResourceName(api.StorageOf(classOf(claim)))
			sum := sums[name]
			sum.Add(claim.Spec.Resources.Requests[corev1.ResourceStorage])
			sums[name] = sum
			have++
		}
	}
	snapshots, err := c.snapshotsOf(ctx, consumer)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range snapshots {
		name := corev1.ResourceName(api.StorageOf(s.class()))
		sum := sums[name]
		sum.Add(s.size())
		sums[name] = sum
		have++
	}
	return sums, have, nil
}

// count has the contract say how much of its storage is in use.
func (c *Claims) count(ctx context.Context, consumer, contract string) error {
	sums, _, err := c.used(ctx, consumer, contract)
	if err == nil {
		c.allocations.SetStorage(contract, sums)
	}
	return err
}

// madeWithin is how long after its claim a volume may come into being at most.
const madeWithin = time.Minute

// DeleteClaim answers DELETE remote.ClaimPath?contract=ID&uid=UID: the claim of that UID, and the data of its volume, are deleted from then on;
// as soon as no guest uses it any more. One that is not there is deleted already. Without a contract it is about what is kept since one ended.
func (c *Claims) DeleteClaim(w http.ResponseWriter, r *http.Request, consumerID string) {
	door.Answer(c.log, w, struct{}{}, c.delete(r, consumerID))
}

func (c *Claims) delete(r *http.Request, consumerID string) error {
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	consumer, terms, err := c.caller(ctx, r, consumerID)
	if err != nil {
		return err
	}
	home, name, uid := r.PathValue("home"), r.PathValue("claim"), r.URL.Query().Get("uid")
	if err := check(home, name); err != nil {
		return err
	}
	if err := remote.CheckClaimUID(uid); err != nil {
		return &api.Error{Code: api.CodeInvalid, Message: "claim " + name, Reason: err.Error()}
	}
	c.making.Lock()
	defer c.making.Unlock()
	which := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer, v1alpha1.LabelHomeNamespace: home, v1alpha1.LabelHomeClaim: uid}
	var claims corev1.PersistentVolumeClaimList
	var kept corev1.PersistentVolumeList
	if err := errors.Join(c.live.List(ctx, &claims, which), c.live.List(ctx, &kept, which)); err != nil {
		return fmt.Errorf("looking for claim %s: %w", name, err)
	}
	if terms == nil && len(claims.Items) > 0 {
		return &api.Error{Code: api.CodeForbidden, Message: "claim " + name, Reason: "its contract is still being ended here", Do: "try again in a moment"}
	}
	for i := range claims.Items {
		// A volume that comes into being after its claim is gone would be nobody's, and stay.
		if o := &claims.Items[i]; o.Spec.VolumeName == "" && o.Annotations[annotationSelectedNode] != "" && time.Since(o.CreationTimestamp.Time) < madeWithin {
			return &api.Error{Code: api.CodeNotReady, Message: "claim " + name, Reason: "its volume is being made", Do: "try again in a moment"}
		}
	}
	named := map[string]bool{} // volumes
	for i := range kept.Items {
		named[kept.Items[i].Name] = true
	}
	for i := range claims.Items {
		if v := claims.Items[i].Spec.VolumeName; v != "" {
			named[v] = true // it may not be labelled yet
		}
	}
	for volume := range named { // first: a claim that is gone would leave it kept
		if err := c.release(ctx, volume); err != nil {
			return err
		}
	}
	for i := range claims.Items {
		err := c.client.Delete(ctx, &claims.Items[i], client.Preconditions{UID: &claims.Items[i].UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting claim %s/%s: %w", claims.Items[i].Namespace, claims.Items[i].Name, err)
		}
	}
	if len(claims.Items)+len(named) > 0 {
		c.log.Info("a consumer deleted a claim and its data", "consumer", consumer, "namespace", home, "claim", name)
	}
	if terms == nil {
		return nil
	}
	return c.count(ctx, consumer, terms.Contract)
}

// caller is the compact ID of the consumer that asks, and the terms of the contract that it names; nil when it names none.
func (c *Claims) caller(ctx context.Context, r *http.Request, consumerID string) (consumer string, terms *grants.Terms, err error) {
	if contract := r.URL.Query().Get("contract"); contract != "" {
		terms, err = c.contracts.Held(ctx, contract, consumerID)
		if errors.Is(err, &api.Error{Code: api.CodeForbidden}) { // the consumer may not know yet that it ended
			return "", nil, peering.Refuse(peering.CodeNoContract, err.Error(), "ask first")
		}
		if err != nil {
			return "", nil, err
		}
		return terms.Consumer.Compact, terms, nil
	}
	id, err := identity.ParseID(consumerID)
	if err != nil {
		return "", nil, api.Invalid("ID", consumerID, "a cluster's")
	}
	return id.Compact(), nil, nil
}

// release has the cluster delete a volume as soon as no claim has it.
func (c *Claims) release(ctx context.Context, volume string) error {
	const policy = `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`
	err := c.client.Patch(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}, client.RawPatch(types.MergePatchType, []byte(policy)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("having volume %s deleted: %w", volume, err)
	}
	return nil
}

package volumes

import (
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// What external resizers do for other classes: a claim that asks for more than its volume has gets it, from the peer that the volume is at, or from
// the class that stands behind it at home. Whoever gives it is asked until it is there; nothing is noted but what Kubernetes shows of a claim.

// growthConditions are Kubernetes' of a claim that is to grow. One of them is there at most.
var growthConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimControllerResizeError,
}

// Times between looking whether a volume has grown: as long as it takes already, within bounds; and until what was refused is asked for again.
const (
	growthLook    = 10 * time.Second
	growthRefused = time.Minute
)

// Why a volume at home stays as large as it is.
var errNoGrowth = errors.New("lets no volumes grow")

// provisioned reports whether a claim's volume is for this provisioner to make.
func provisioned(claim *corev1.PersistentVolumeClaim) bool {
	by := claim.Annotations[annotationProvisioner]
	if by == "" {
		by = claim.Annotations[annotationProvisionerBeta]
	}
	return by == v1alpha1.StorageProvisioner
}

// grows reports whether a claim asks for more than its volume has.
func grows(claim *corev1.PersistentVolumeClaim) bool {
	wants, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return provisioned(claim) && claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == nameOf(claim) && wants.Cmp(has) > 0
}

// isGrowth reports whether a condition is one of growthConditions.
func isGrowth(c corev1.PersistentVolumeClaimCondition) bool {
	return slices.Contains(growthConditions, c.Type)
}

// sizeOf is how large a claim's volume is: what it has, or is to have once it is made. What the claim asks for may be more, and may be refused.
func sizeOf(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	if has := claim.Status.Capacity[corev1.ResourceStorage]; has.Sign() > 0 {
		return has
	}
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// LimitsNothing reports whether the volumes of a class are folders that are held to no size, so that saying that one is larger makes it so.
func LimitsNothing(class *storagev1.StorageClass) bool {
	return class.Provisioner == "rancher.io/local-path"
}

// MayGrow reports whether volumes of a class can be made larger.
func MayGrow(class *storagev1.StorageClass) bool {
	return class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion || LimitsNothing(class)
}

// StateOf tells how large the volume of a claim is.
func StateOf(claim *corev1.PersistentVolumeClaim) remote.ClaimState {
	s := remote.ClaimState{Phase: corev1.ClaimPending}
	if claim.Status.Phase == corev1.ClaimBound {
		has := claim.Status.Capacity[corev1.ResourceStorage]
		s.Phase, s.Capacity = corev1.ClaimBound, has.String()
	}
	s.FileSystemPending = slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
	})
	return s
}

// grow makes the volume of a claim as large as that asks for. A kubelet writes the same on claims of its pods.
func (c *Controller) grow(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	result, err := c.growth(ctx, r)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: pendingPause}, nil
	}
	return result, err
}

func (c *Controller) growth(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	claim, v := new(corev1.PersistentVolumeClaim), new(corev1.PersistentVolume)
	if err := c.fresh.Get(ctx, r.NamespacedName, claim); err != nil || !provisioned(claim) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !grows(claim) {
		_, err := c.say(ctx, claim, "", "")
		return ctrl.Result{}, err
	}
	if is := MoveOf(claim); is != nil && is.Phase != Failed {
		return ctrl.Result{}, nil // its end changes the claim, which brings us back
	}
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, v); err != nil {
		return ctrl.Result{}, fmt.Errorf("volume of claim %s: %w", r, err)
	}
	if of := v.Spec.ClaimRef; of == nil || of.UID != claim.UID || v.Annotations[annotationProvisionedBy] != v1alpha1.StorageProvisioner {
		return ctrl.Result{}, nil
	}
	if !slices.ContainsFunc(claim.Status.Conditions, isGrowth) {
		if _, err := c.say(ctx, claim, corev1.PersistentVolumeClaimResizing, ""); err != nil {
			return ctrl.Result{}, err
		}
	}
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	state, err := c.askMore(ctx, claim, v, want)
	if err != nil {
		return c.stays(ctx, claim, err)
	}
	if has, err := resource.ParseQuantity(state.Capacity); err == nil && has.Cmp(want) >= 0 {
		if err := Grown(ctx, c.client, claim, v, want); err != nil {
			return ctrl.Result{}, err
		}
		c.log.Info("a claim has a larger volume", "namespace", claim.Namespace, "claim", claim.Name, "size", want.String())
		c.events.Eventf(claim, nil, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize", "its volume has %s", want.String())
		return ctrl.Result{}, nil
	}
	kind, why := corev1.PersistentVolumeClaimResizing, ""
	switch {
	case state.FileSystemPending && AtPeer(v) == "":
		if err := enlarge(ctx, c.client, v, want); err != nil { // the kubelet grows the file system that is in it, and says so
			return ctrl.Result{}, err
		}
		fallthrough
	case state.FileSystemPending:
		kind, why = corev1.PersistentVolumeClaimFileSystemResizePending, "its file system grows when a pod that uses it starts"
	case state.Phase == corev1.ClaimPending:
		why = "the volume is made with the first pod that uses it, and grows then"
	}
	if _, err := c.say(ctx, claim, kind, why); err != nil {
		return ctrl.Result{}, err
	}
	i := slices.IndexFunc(claim.Status.Conditions, isGrowth)
	return ctrl.Result{RequeueAfter: min(max(time.Since(claim.Status.Conditions[i].LastTransitionTime.Time), pendingPause), growthLook)}, nil
}

// askMore has who gives the volume of a claim make it larger, and tells how large it is.
func (c *Controller) askMore(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, want resource.Quantity) (remote.ClaimState, error) {
	peer := AtPeer(v)
	if peer == "" {
		return c.backMore(ctx, v, want)
	}
	state, err := c.peers.Claim(ctx, peer, claim.Namespace, claim.Name, asked(claim, ClassOf(v), want))
	if err == nil && state.Phase == "" {
		err = peering.Refuse(peering.CodeNotFound, peer+" has an older Kith, whose volumes do not grow", "bring it to this version there")
	}
	return state, err
}

// backMore makes the claim larger whose volume stands behind one at home.
func (c *Controller) backMore(ctx context.Context, v *corev1.PersistentVolume, want resource.Quantity) (remote.ClaimState, error) {
	namespace, name, ok := strings.Cut(v.Annotations[annotationBacking], "/")
	if !ok || namespace != Namespace {
		return remote.ClaimState{}, fmt.Errorf("volume %s %w: nothing says what stands behind it", v.Name, errNoGrowth)
	}
	var back corev1.PersistentVolumeClaim
	if err := c.fresh.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &back); err != nil {
		return remote.ClaimState{}, fmt.Errorf("claim behind it: %w", err)
	}
	var class storagev1.StorageClass
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: *back.Spec.StorageClassName}, &class); err != nil {
		return remote.ClaimState{}, fmt.Errorf("class behind it: %w", err)
	}
	switch has := back.Spec.Resources.Requests[corev1.ResourceStorage]; {
	case LimitsNothing(&class):
		return remote.ClaimState{Phase: corev1.ClaimBound, Capacity: want.String()}, nil
	case has.Cmp(want) >= 0:
	case !MayGrow(&class):
		return remote.ClaimState{}, fmt.Errorf("the class %s, which stands behind it at home, %w (allowVolumeExpansion)", class.Name, errNoGrowth)
	default:
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, want.String()))
		if err := c.client.Patch(ctx, &back, patch); err != nil {
			return remote.ClaimState{}, fmt.Errorf("claim of class %s behind it: %w", class.Name, err)
		}
	}
	return StateOf(&back), nil
}

// stays says of a claim why its volume has not grown.
func (c *Controller) stays(ctx context.Context, claim *corev1.PersistentVolumeClaim, why error) (ctrl.Result, error) {
	has, kind := claim.Status.Capacity[corev1.ResourceStorage], corev1.PersistentVolumeClaimResizing
	refused := final(why) || errors.Is(why, errNoGrowth) || apierrors.IsForbidden(why) || apierrors.IsInvalid(why)
	if refused {
		kind = corev1.PersistentVolumeClaimControllerResizeError
	}
	words := fmt.Sprintf("it has %s as before: %s", has.String(), said(why))
	if no, ok := errors.AsType[*peering.Problem](why); ok && no.Do != "" {
		words += "; " + no.Do
	}
	changed, err := c.say(ctx, claim, kind, words)
	if err != nil {
		return ctrl.Result{}, err
	}
	if changed {
		c.events.Eventf(claim, nil, corev1.EventTypeWarning, "VolumeResizeFailed", "Resize", "%s", words)
	}
	if refused {
		return ctrl.Result{RequeueAfter: growthRefused}, nil // a larger contract, and a claim that asks for less, bring us back before
	}
	return ctrl.Result{}, fmt.Errorf("larger volume of claim %s/%s: %w", claim.Namespace, claim.Name, why)
}

// say writes on a claim how far its growth is; kind "" for not at all. It reports whether that is news.
func (c *Controller) say(ctx context.Context, claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType, why string) (changed bool, err error) {
	if i := slices.IndexFunc(claim.Status.Conditions, isGrowth); i < 0 && kind == "" || i >= 0 && claim.Status.Conditions[i].Type == kind && claim.Status.Conditions[i].Message == why {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, isGrowth)
	if kind != "" {
		next.Status.Conditions = append(next.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: why})
	}
	if err := c.client.Status().Patch(ctx, next, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("say of claim %s/%s how far it has grown: %w", claim.Namespace, claim.Name, err)
	}
	*claim = *next
	return true, nil
}

// Grown notes that a volume is larger, and then that its claim is; what broke off in between is done once more.
func Grown(ctx context.Context, to client.Client, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, size resource.Quantity) error {
	if err := enlarge(ctx, to, v, size); err != nil {
		return err
	}
	next := claim.DeepCopy()
	next.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, isGrowth)
	if err := to.Status().Patch(ctx, next, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("size of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// enlarge notes that a volume is so large, unless it is larger.
func enlarge(ctx context.Context, to client.Client, v *corev1.PersistentVolume, size resource.Quantity) error {
	if has := v.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) >= 0 {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"capacity":{"storage":%q}}}`, v.ResourceVersion, size.String())
	if err := to.Patch(ctx, v, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("size of volume %s: %w", v.Name, err)
	}
	return nil
}

// growing are the claims that wait for more: a contract that changed may grant it.
func (c *Controller) growing(ctx context.Context, _ client.Object) (all []reconcile.Request) {
	var claims corev1.PersistentVolumeClaimList
	if c.client.List(ctx, &claims, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range claims.Items {
		if grows(&claims.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		}
	}
	return all
}

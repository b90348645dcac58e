package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// nameOf is what the volume of a claim of the class kith is called. The name in the claim's spec is its owner's word, until the claim is bound.
func nameOf(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// size has a claim say how large its volume is. Kubernetes takes that off a claim for the moment in which another takes its volume's place, and what
// it asks for then may be more than it was given.
func (m *Mover) size(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	var v corev1.PersistentVolume
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, &v); err != nil {
		return client.IgnoreNotFound(err)
	}
	claim.Status.Capacity = v.Spec.Capacity
	return nil
}

// heal has pods start again with a volume whose move is not known any more, as when somebody replaced the claim's annotations.
func (m *Mover) heal(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	v, at, err := m.place(ctx, claim)
	if err != nil || v == nil || claim.DeletionTimestamp != nil || !isNowhere(v) {
		return err
	}
	m.log.Warn("nobody knows of the move of a volume any more; it stays where it is", "namespace", claim.Namespace, "claim", claim.Name, "node", at)
	return m.put(ctx, claim, &Move{From: at, Policy: v.Spec.PersistentVolumeReclaimPolicy}, true)
}

// place gives the volume of a claim, and the node that its files are at; nil when there is none.
func (m *Mover) place(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, string, error) {
	v := new(corev1.PersistentVolume)
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, v); err != nil {
		return nil, "", client.IgnoreNotFound(err)
	}
	if peer := AtPeer(v); peer != "" {
		return v, v1alpha1.VirtualNodePrefix + peer, nil
	}
	return v, m.node, nil
}

// staysError is why the owner of the namespace does not let its volumes be at a peer.
type staysError struct{ why string }

func (e *staysError) Error() string { return e.why }

// mayGo says why volumes of a claim's namespace are not let go to a node: it is offloaded to that peer, with its volumes, or they stay. Who may write
// claims need not be who may offload namespaces.
func (m *Mover) mayGo(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	if node == m.node {
		return nil
	}
	var ns corev1.Namespace
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: claim.Namespace}, &ns); err != nil {
		return fmt.Errorf("namespace %s: %w", claim.Namespace, err)
	}
	a, peer := ns.Annotations, strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix)
	if a[v1alpha1.AnnotationVolumes] != string(v1alpha1.VolumesAnywhere) || a[v1alpha1.AnnotationStrategy] == "" || a[v1alpha1.AnnotationStrategy] == string(v1alpha1.StrategyLocal) {
		return &staysError{"volumes of namespace " + claim.Namespace + " stay at home; `kith offload " + claim.Namespace + " --volumes anywhere` lets them go"}
	}
	if only := a[v1alpha1.AnnotationPeers]; only != "" && !slices.Contains(strings.Split(only, ","), peer) {
		return &staysError{"namespace " + claim.Namespace + " is not offloaded to " + peer}
	}
	return nil
}

// nodeOf is the node whose pods have a volume. At home it is kithd's own, or it cannot be moved.
func (m *Mover) nodeOf(v *corev1.PersistentVolume) (string, error) {
	peer := AtPeer(v)
	if peer == "" {
		_, err := Folder(v, m.node)
		return m.node, err
	}
	return v1alpha1.VirtualNodePrefix + peer, nil
}

// at is the volume of a claim at a node, which it makes. The error is errPending while it is being made.
func (m *Mover) at(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string, policy corev1.PersistentVolumeReclaimPolicy) (*corev1.PersistentVolume, error) {
	class, err := m.classOf(ctx, claim)
	if err != nil {
		return nil, err
	}
	if node == m.node {
		return m.backed(ctx, claim, nil, nameOf(claim), class, node, policy)
	}
	peer, ok := strings.CutPrefix(node, v1alpha1.VirtualNodePrefix)
	if !ok {
		return nil, fmt.Errorf("node %s is no place for volumes", node)
	}
	return atPeer(claim, nameOf(claim), class, peer, policy), nil
}

// classOf is the storage class that the volume of a claim is of, wherever it is; "" for the default one.
func (m *Mover) classOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	name := *claim.Spec.StorageClassName
	if name == v1alpha1.StorageClassName {
		return "", nil
	}
	var class storagev1.StorageClass
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: name}, &class); err != nil {
		return "", fmt.Errorf("of which class the volume of claim %s/%s is: %w", claim.Namespace, claim.Name, err)
	}
	return class.Parameters[v1alpha1.ParameterClass], nil
}

// mayBe says why there is no volume of a claim's storage class at a node, and what to do; a *staysError, or an error of reading.
func (m *Mover) mayBe(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	class, err := m.classOf(ctx, claim)
	if err != nil || class == "" {
		return err
	}
	if node == m.node {
		var classes storagev1.StorageClassList
		if err := m.fresh.List(ctx, &classes); err != nil {
			return fmt.Errorf("storage classes: %w", err)
		}
		if _, none := behind(classes.Items, class); none != nil {
			return &staysError{"its volume is of storage class " + class + ", and this cluster has no class of that name: make one, or move it to a peer that shares it"}
		}
		return nil
	}
	peer := strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix)
	var contracts v1alpha1.ContractList
	if err := m.fresh.List(ctx, &contracts); err != nil {
		return fmt.Errorf("contracts: %w", err)
	}
	for i := range contracts.Items {
		if contracts.Items[i].Spec.Peer == peer && leftOf(&contracts.Items[i], class, nil, nil) != nil {
			return nil
		}
	}
	return &staysError{"its volume is of storage class " + class + ", and the contract with " + peer + " grants none of that: `kith peer " + peer + " --storage " + class + "=AMOUNT` asks for some"}
}

// discardAt deletes a claim's files at a node where its volume is not, or not any more.
func (m *Mover) discardAt(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	v, at, err := m.place(ctx, claim)
	if err != nil || v != nil && at == node { // whatever is written on the claim
		return err
	}
	if v == nil && claim.DeletionTimestamp == nil {
		return fmt.Errorf("volume %s is not there", nameOf(claim))
	}
	if node == m.node {
		back := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: nameOf(claim)}}
		return client.IgnoreNotFound(m.client.Delete(ctx, back))
	}
	peer := strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix)
	err = m.peers.Unclaim(ctx, peer, claim.Namespace, claim.Name, claim.UID)
	if errors.Is(err, ErrNoContract) {
		m.log.Warn("a copy is left at a peer without a contract; the peer deletes it by itself in some days", "peer", peer, "claim", claim.Name)
		return nil
	}
	return err
}

// nowhere is the affinity of a volume that no pod may start with.
var nowhere = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
	MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.AnnotationMove, Operator: corev1.NodeSelectorOpExists}},
}}}}

// put has the volume of a claim at its old place, for pods to start with or not.
func (m *Mover) put(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move, start bool) error {
	v, err := m.at(ctx, claim, is.From, is.Policy)
	if err != nil {
		return err
	}
	if !start {
		v.Spec.NodeAffinity = nowhere
	}
	return m.replace(ctx, v)
}

// isNowhere reports whether no pod may start with a volume.
func isNowhere(v *corev1.PersistentVolume) bool {
	return v.Spec.NodeAffinity != nil && equality.Semantic.DeepEqual(v.Spec.NodeAffinity, nowhere)
}

// samePlace reports whether a volume is the one that is wanted: its source and the nodes of its pods decide.
func samePlace(is, want *corev1.PersistentVolume) bool {
	a, _ := json.Marshal([]any{is.Spec.PersistentVolumeSource, is.Spec.NodeAffinity})
	b, _ := json.Marshal([]any{want.Spec.PersistentVolumeSource, want.Spec.NodeAffinity})
	return string(a) == string(b)
}

// replace has a volume in the place of another of its name. Neither source nor nodes of a PersistentVolume can be changed, so it is made anew; the
// claim is bound to its name, and is again once that is there. Nothing deletes the files meanwhile: those of released volumes alone go, and this one is not.
func (m *Mover) replace(ctx context.Context, want *corev1.PersistentVolume) error {
	var is corev1.PersistentVolume
	switch err := m.fresh.Get(ctx, client.ObjectKeyFromObject(want), &is); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case samePlace(&is, want) && is.DeletionTimestamp == nil:
		return nil
	default:
		if err := m.client.Delete(ctx, &is, client.Preconditions{UID: &is.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("volume %s: %w", is.Name, err)
		}
		// Kubernetes' own finalizer would hold it as long as the claim has it, which it goes on to have.
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := m.client.Patch(ctx, &is, free); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("volume %s: %w", is.Name, err)
		}
	}
	if err := m.client.Create(ctx, want); err != nil {
		return fmt.Errorf("volume %s: %w", want.Name, err)
	}
	return nil
}

// users are the pods that have a claim and a node, and did not end.
func (m *Mover) users(ctx context.Context, claim *corev1.PersistentVolumeClaim) (users []corev1.Pod, err error) {
	var pods corev1.PodList
	if err := m.fresh.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return nil, fmt.Errorf("pods of %s: %w", claim.Namespace, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if Uses(p, claim.Name) && p.Spec.NodeName != "" && !v1alpha1.Ended(p.Status.Phase) {
			users = append(users, *p)
		}
	}
	return users, nil
}

// alone names a pod that nobody would make again; "" when there is none.
func (m *Mover) alone(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	users, err := m.users(ctx, claim)
	for i := range users {
		if metav1.GetControllerOf(&users[i]) == nil {
			return users[i].Name, err
		}
	}
	return "", err
}

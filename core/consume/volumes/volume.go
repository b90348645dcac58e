package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// Attributes of a volume at a peer.
const (
	attributePeer      = "peer" // its name here
	attributeNamespace = "namespace"
	attributeClaim     = "claim"
	attributeUID       = "uid"   // of the claim
	attributeClass     = "class" // at the peer; left out for the default one
)

// annotationBacking on a volume at home names the claim whose volume it is, as "namespace/name".
const annotationBacking = "kith.dev/backing-claim"

// annotationProvisionedBy is Kubernetes': who made a volume deletes it.
const annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"

// AtPeer names the peer that a volume is at; "" for every other volume.
func AtPeer(v *corev1.PersistentVolume) string {
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != v1alpha1.StorageProvisioner {
		return ""
	}
	return v.Spec.CSI.VolumeAttributes[attributePeer]
}

// ClaimOf names the claim of a volume at a peer.
func ClaimOf(v *corev1.PersistentVolume) (namespace, name string) {
	of := v.Spec.CSI.VolumeAttributes
	return of[attributeNamespace], of[attributeClaim]
}

// Held are the volumes at peers of which that is so: those at one peer, or of one namespace, where these are not "".
func Held(all []corev1.PersistentVolume, peer, namespace string) (held []corev1.PersistentVolume) {
	for i := range all {
		at, of := AtPeer(&all[i]), all[i].Spec.ClaimRef
		if at != "" && (peer == "" || peer == at) && (namespace == "" || of != nil && of.Namespace == namespace) {
			held = append(held, all[i])
		}
	}
	return held
}

// OnTheWay are the peers that a claim's volume is on its way to, or from: it is made there, or moves. One that moves is at neither for a moment.
func OnTheWay(claim *corev1.PersistentVolumeClaim) (peers []string) {
	var nodes []string
	if is := MoveOf(claim); is != nil && is.Phase != Failed {
		nodes = append(nodes, is.From, is.To)
	}
	if claim.Spec.VolumeName == "" {
		nodes = append(nodes, claim.Annotations[annotationSelectedNode])
	}
	for _, node := range nodes {
		if peer, is := v1alpha1.PeerOfNode(node); is {
			peers = append(peers, peer)
		}
	}
	return peers
}

// Words name volumes at peers for people: "shop/data (10Gi at bob)", with commas.
func Words(held []corev1.PersistentVolume) string {
	var words []string
	for i := range held {
		v := &held[i]
		size := v.Spec.Capacity[corev1.ResourceStorage]
		namespace, name := ClaimOf(v)
		words = append(words, fmt.Sprintf("%s/%s (%s at %s)", namespace, name, size.String(), AtPeer(v)))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// ClassOf is the storage class that a volume at a peer is of there; "" for the default one.
func ClassOf(v *corev1.PersistentVolume) string {
	if AtPeer(v) == "" {
		return ""
	}
	return v.Spec.CSI.VolumeAttributes[attributeClass]
}

// asked is what a peer is asked for of a claim: a volume of that storage class there, "" for the default one.
func asked(claim *corev1.PersistentVolumeClaim, class string, size resource.Quantity) *remote.Claim {
	c := &remote.Claim{UID: claim.UID, Storage: size.String(), AccessModes: claim.Spec.AccessModes, Class: class}
	if claim.Spec.VolumeMode != nil {
		c.VolumeMode = *claim.Spec.VolumeMode
	}
	return c
}

// atPeer is the volume that stands for one at a peer, of a storage class there.
func atPeer(claim *corev1.PersistentVolumeClaim, name, class, peer string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	v := volume(claim, name, policy)
	v.Spec.PersistentVolumeSource.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: v1alpha1.StorageProvisioner, VolumeHandle: peer + "/" + claim.Namespace + "/" + claim.Name + "/" + string(claim.UID),
		VolumeAttributes: map[string]string{attributePeer: peer, attributeNamespace: claim.Namespace, attributeClaim: claim.Name, attributeUID: string(claim.UID)},
	}
	if class != "" {
		v.Spec.CSI.VolumeAttributes[attributeClass] = class
	}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: []string{peer}}, {Key: v1alpha1.LabelBroker, Operator: corev1.NodeSelectorOpDoesNotExist},
		},
	}}}}
	return v
}

// volume is what volumes at home and at peers have in common.
func volume(claim *corev1.PersistentVolumeClaim, name string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisionedBy: v1alpha1.StorageProvisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: sizeOf(claim)},
			AccessModes: slices.Clone(claim.Spec.AccessModes), VolumeMode: claim.Spec.VolumeMode, StorageClassName: *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: policy,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
		},
	}
}

// Needed is a claim of a pod whose volume is at the peer that the pod goes to.
type Needed struct {
	Name  string
	Claim *remote.Claim
}

// claimsOf names the claims of a pod.
func claimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// Uses reports whether a pod has a claim of that name.
func Uses(pod *corev1.Pod, claim string) bool { return slices.Contains(claimsOf(pod), claim) }

// Elsewhere is the error of Of when a pod can never run at the peer: a volume of it is at another place.
type Elsewhere struct{ Claim, Peer string }

func (e *Elsewhere) Error() string {
	return fmt.Sprintf("the volume of its claim %s is not at %s, and pods run where their volumes are", e.Claim, e.Peer)
}

// Of gives the claims of a pod that goes to a peer. The error is *Elsewhere where a volume is not there.
func Of(ctx context.Context, home client.Reader, pod *corev1.Pod, peer string) (all []Needed, err error) {
	for _, name := range claimsOf(pod) {
		var claim corev1.PersistentVolumeClaim
		if err := home.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, &claim); err != nil {
			return nil, fmt.Errorf("claim %s of the pod: %w", name, err)
		}
		var volume corev1.PersistentVolume
		if claim.Spec.VolumeName == "" {
			return nil, fmt.Errorf("claim %s of the pod has no volume yet", name)
		}
		if err := home.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume); err != nil {
			return nil, fmt.Errorf("volume of claim %s: %w", name, err)
		}
		if at := AtPeer(&volume); at != peer {
			return nil, &Elsewhere{name, peer}
		}
		all = append(all, Needed{name, asked(&claim, ClassOf(&volume), volume.Spec.Capacity[corev1.ResourceStorage])})
	}
	return all, nil
}

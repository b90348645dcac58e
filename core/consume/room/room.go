package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/consume/why"
)

// maxWaiting is how many pods that wait are looked at, the oldest first: those behind them are, when these have room.
const maxWaiting = 200

// Pods are those of this cluster.
type Pods struct {
	client client.Reader
	held   func() ([]volumes.HeldSnapshot, bool)
}

// New makes Pods of a cache that holds Pods, Nodes, Namespaces, NamespaceOffloadings and volumes with their claims and classes. held tells of the snapshots at
// peers.
func New(c client.Reader, held func() (held []volumes.HeldSnapshot, known bool)) *Pods {
	return &Pods{client: c, held: held}
}

// Needs implements seeking.Pods.
func (p *Pods) Needs(ctx context.Context, at []seeking.Place) (needs []seeking.Need, waiting int, err error) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var stored corev1.PersistentVolumeList
	var claims corev1.PersistentVolumeClaimList
	var classes storagev1.StorageClassList
	for _, list := range []client.ObjectList{&pods, &nodes, &stored, &claims, &classes} {
		if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, 0, fmt.Errorf("read the cluster's pods, nodes and volumes: %w", err)
		}
	}
	snapshots, known := p.held()
	if !known { // a peer that holds some is not given back what it lends
		return nil, 0, errors.New("it is not known yet which snapshots are at peers")
	}
	needs, places, stores := make([]seeking.Need, len(at)), make([]why.Place, len(at)), make([]store, len(at))
	index := map[string]int{}
	for i := range at {
		places[i], index[at[i].Peer.Name] = place(&at[i], nodes.Items), i
		stores[i] = store{at: &at[i], volumes: stored.Items, snapshots: snapshots, left: map[string]resource.Quantity{}, taken: map[string]bool{}}
	}
	held := func(peer string) {
		if i, is := index[peer]; is {
			needs[i].Held++
		}
	}
	for _, v := range volumes.Held(stored.Items, "", "") {
		held(volumes.AtPeer(&v))
	}
	for i := range snapshots {
		held(snapshots[i].Peer)
	}
	for i := range claims.Items {
		for _, peer := range volumes.OnTheWay(&claims.Items[i]) {
			held(peer)
		}
	}
	var wait []*corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch there, is := index[seeking.At(pod)]; {
		case is:
			needs[there].Pods++
			add(places[there].Used, why.Requests(pod))
			// One that the contract has no room for stays with the peer, and waits.
			if pod.Status.Phase == corev1.PodPending && pod.Status.Reason == why.RefusedContract && pod.DeletionTimestamp == nil {
				count(&needs[there], pod)
				waiting++
			}
		case seeking.Waits(pod) && pod.Labels[v1alpha1.LabelConsumer] == "":
			wait = append(wait, pod)
		}
	}
	slices.SortFunc(wait, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	homes := map[string]*home{}
	for _, pod := range wait[:min(len(wait), maxWaiting)] {
		h := homes[pod.Namespace]
		if h == nil {
			if h, err = p.home(ctx, pod.Namespace); err != nil {
				return nil, 0, err
			}
			homes[pod.Namespace] = h
		}
		if h.offloading == nil {
			continue // its pods go nowhere
		}
		f := &why.Facts{Now: time.Now(), Pod: pod, Offloading: h.offloading}
		if f.Claims, err = p.claims(ctx, pod, classes.Items); err != nil {
			return nil, 0, err
		}
		goes := false
		for i := range places {
			places[i].Permit, _ = offloading.PermitOf(pod.Namespace, h.offloading, places[i].Laptop)
			places[i].Avoided = h.avoids(pod, places[i].Laptop, f.Now)
			switch c := f.Against(&places[i]); {
			case c == nil && stores[i].take(pod.Namespace, f.Claims):
				goes = true
				count(&needs[i], pod)
				needs[i].Who = append(needs[i].Who, pod)
				add(places[i].Used, why.Requests(pod))
			case c == nil, c.Reason == api.CauseNoRoom:
				goes = true
				needs[i].Beyond++
			}
		}
		if goes {
			waiting++
		}
	}
	for i := range needs {
		needs[i].All = places[i].Used
	}
	return needs, waiting, nil
}

// count counts a pod among those that wait.
func count(n *seeking.Need, pod *corev1.Pod) {
	n.Waits++
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && !c.LastTransitionTime.IsZero() {
			since = c.LastTransitionTime.Time
		}
	}
	if n.Since.IsZero() || since.Before(n.Since) {
		n.Since = since
	}
}

func add(to, list corev1.ResourceList) {
	for name, q := range list {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

// store is what is left of the storage at a peer for claims that have no volume yet.
type store struct {
	at        *seeking.Place
	volumes   []corev1.PersistentVolume
	snapshots []volumes.HeldSnapshot
	left      map[string]resource.Quantity // by class, of those that were looked at
	taken     map[string]bool              // claims
}

// take takes what the claims of a pod need; nothing, and false, when it is not there.
func (s *store) take(namespace string, claims []why.Claim) bool {
	left, taken := maps.Clone(s.left), []string(nil)
	for _, c := range claims {
		key := namespace + "/" + c.Name
		if !c.Movable || s.taken[key] { // it has a volume, or pods before this one have the claim
			continue
		}
		is, known := left[c.Class]
		if !known {
			is = volumes.Left(s.at.Grants, s.at.Peer.Name, c.Class, s.volumes, s.snapshots)
			s.left[c.Class] = is
		}
		asked := c.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if asked.Cmp(is) > 0 {
			return false
		}
		is = is.DeepCopy()
		is.Sub(asked)
		left[c.Class], taken = is, append(taken, key)
	}
	s.left = left
	for _, key := range taken {
		s.taken[key] = true
	}
	return true
}

// place is the node of a peer as it would be if all were granted that may be; without a contract it is the node that there would be, as far as that is
// known of every peer's.
func place(at *seeking.Place, nodes []corev1.Node) why.Place {
	p := why.Place{Laptop: at.Peer.Name, Peer: true, There: at.There, Used: corev1.ResourceList{}, Grants: at.Grants}
	name := v1alpha1.VirtualNodePrefix + at.Peer.Name
	if i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name }); i >= 0 {
		node := nodes[i] // of the cache: its status is replaced, not changed
		node.Status.Allocatable = at.Most
		if at.Asleep {
			p.There = presence.Presence{State: presence.Reachable}
			node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
			})
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		p.Node = &node
		return p
	}
	p.Node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			offloading.LabelVirtual: "true", v1alpha1.LabelPeer: at.Peer.Name, corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintPeer, Value: at.Peer.Name, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: at.Most, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
	if r := at.Peer.Spec.Request; r != nil && r.Network == v1alpha1.NetworkNone { // it is asked for none again
		p.Node.Labels[v1alpha1.LabelNetwork] = v1alpha1.WithoutNetwork
		p.Node.Spec.Taints = append(p.Node.Spec.Taints, corev1.Taint{Key: v1alpha1.LabelNetwork, Value: v1alpha1.WithoutNetwork, Effect: corev1.TaintEffectNoSchedule})
	}
	return p
}

// home is a namespace that pods wait in.
type home struct {
	namespace  corev1.Namespace
	offloading *v1alpha1.NamespaceOffloading // nil: it is not offloaded
}

func (p *Pods) home(ctx context.Context, namespace string) (*home, error) {
	h, nso := &home{}, &v1alpha1.NamespaceOffloading{}
	err := p.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}, nso)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("see whether namespace %s is offloaded: %w", namespace, err)
	}
	if err == nil {
		h.offloading = nso
	}
	if err := p.client.Get(ctx, client.ObjectKey{Name: namespace}, &h.namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return h, nil
}

// avoids reports whether new pods of this one's controller avoid a peer that refused one lately.
func (h *home) avoids(pod *corev1.Pod, peer string, now time.Time) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && slices.Contains(offloading.Avoids(&h.namespace, owner.UID, now), peer)
}

// claims are those of a pod's volumes.
func (p *Pods) claims(ctx context.Context, pod *corev1.Pod, classes []storagev1.StorageClass) (list []why.Claim, err error) {
	for i := range pod.Spec.Volumes {
		name := why.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if err := p.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read the volume claim %s/%s: %w", pod.Namespace, name, err)
		} else if err != nil {
			list = append(list, why.Claim{Name: name})
			continue
		}
		if claim.Spec.VolumeName == "" || p.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume) != nil {
			volume = nil // where it is is not known
		}
		c := why.Claim{Name: name, Claim: claim, Volume: volume}
		if claim.Spec.VolumeName == "" && claim.Spec.StorageClassName != nil {
			c.Class, c.Movable, c.Home = volumes.ClassAsked(classes, *claim.Spec.StorageClassName)
		}
		list = append(list, c)
	}
	return list, nil
}

package backend

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/consumer"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/consume/why"
	"kith.dev/daemon/backend/explain"
)

// Why says why a pod is where it is, or does not run.
func (b *Backend) Why(ctx context.Context, o api.WhyOptions) (api.Why, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Why{}, err
	}
	if o.Kind != "pod" {
		return b.whyWorkload(ctx, c, o)
	}
	var pod corev1.Pod
	// Past the cache, which keeps of the owner's pods less than is asked here.
	if err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, &pod); apierrors.IsNotFound(err) {
		if kind := c.workloadNamed(ctx, o); kind != "" {
			o.Kind = kind
			return b.whyWorkload(ctx, c, o)
		}
		return b.whyNoPod(ctx, c, o)
	} else if err != nil {
		return api.Why{}, internal(err)
	}
	return b.whyPod(ctx, c, &pod)
}

// whyPod is about a pod that is there.
func (b *Backend) whyPod(ctx context.Context, c *Cluster, pod *corev1.Pod) (api.Why, error) {
	places, err := b.places(ctx, c)
	if err != nil {
		return api.Why{}, internal(err)
	}
	f, err := b.whyFacts(ctx, c, pod, places)
	if err != nil {
		return api.Why{}, internal(err)
	}
	var events corev1.EventList
	about := client.MatchingFields{"involvedObject.kind": "Pod", "involvedObject.name": pod.Name}
	if err := c.Fresh.List(ctx, &events, client.InNamespace(pod.Namespace), about); err != nil {
		return api.Why{}, internal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.UID == pod.UID {
			f.Events = append(f.Events, e)
		}
	}
	if f.Claims, err = c.claims(ctx, pod); err != nil {
		return api.Why{}, internal(err)
	}
	return told(f), nil
}

// told is what follows from the facts, in words too.
func told(f *why.Facts) api.Why {
	w := api.Why{Namespace: f.Pod.Namespace, Name: f.Pod.Name, Laptop: f.Laptop()}
	if f.Guest {
		w.Guest = f.Pod.Labels[v1alpha1.LabelConsumerName]
	}
	state, causes := why.Of(f)
	w.State, w.Causes, w.Since = state, causes, why.Since(f.Pod, state, causes)
	explain.Say(&w)
	return w
}

// NotRunning tells of each pod of this cluster that is neither ready nor done why, as far as the cache has it.
func (b *Backend) NotRunning(ctx context.Context) ([]api.Why, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	places, err := b.places(ctx, c)
	if err != nil {
		return nil, internal(err)
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, internal(err)
	}
	var list []api.Why
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.LabelConsumer] != "" || len(list) >= maxWhyPods {
			continue
		}
		f, err := b.whyFacts(ctx, c, pod, places)
		if err != nil {
			return nil, internal(err)
		}
		if w := told(f); w.State != api.PodReady && w.State != api.PodDone {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b api.Why) int {
		return cmp.Or(cmp.Compare(slices.Index(api.PodStates, a.State), slices.Index(api.PodStates, b.State)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// whyFacts are those for which nothing is asked past the cache: all but events and claims. The places are completed for the pod.
func (b *Backend) whyFacts(ctx context.Context, c *Cluster, pod *corev1.Pod, places []why.Place) (*why.Facts, error) {
	f := &why.Facts{Places: slices.Clone(places), Now: time.Now(), Here: b.Settings.Name, Pod: pod, Guest: pod.Labels[v1alpha1.LabelConsumer] != ""}
	mode, _ := b.mode()
	f.Tethered = mode != api.Autonomous
	var nso v1alpha1.NamespaceOffloading
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v1alpha1.NamespaceOffloadingName}, &nso)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil {
		f.Offloading = &nso
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, named(pod.Namespace), &namespace); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	var avoided []string
	if owner := metav1.GetControllerOf(pod); owner != nil {
		avoided = offloading.Avoids(&namespace, owner.UID, f.Now)
	}
	here, now := "", c.Client.Now()
	if b.Engine != nil {
		here = b.Engine.Facts().NodeName
	}
	for i := range f.Places {
		p := &f.Places[i]
		if !p.Peer {
			if p.Node.Name == here {
				p.Laptop = b.Settings.Name
			}
			continue
		}
		p.Permit, _ = offloading.PermitOf(pod.Namespace, f.Offloading, p.Laptop)
		p.Avoided = slices.Contains(avoided, p.Laptop)
		if p.Node.Name != pod.Spec.NodeName {
			continue
		}
		f.Abroad = c.Fleet.Offloaded(p.Laptop, pod.Namespace, pod.Name)
		if t, is := b.Giver.TransferTo(p.Laptop, pod); is {
			f.Transfer = new(api.ImageTransfer(t))
		}
		if f.Offloading != nil {
			f.TwinRefused = meta.FindStatusCondition(nso.Status.Conditions, consumer.ConditionNamed+p.Laptop)
		}
	}
	if pod.Spec.NodeName == "" {
		var policies v1alpha1.PeeringPolicyList
		if err := c.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range policies.Items {
			if g, is := why.GrowingOf(&policies.Items[i]); is {
				f.Growing = append(f.Growing, g)
			}
		}
	}
	for _, k := range b.Directory.All() {
		if k.Contact.Reachable() && (k.Peer == nil || now.InForce(k.Peer.Name, v1alpha1.RoleConsumer) == nil) {
			f.Strangers = append(f.Strangers, k.Name)
		}
	}
	return f, nil
}

// places are the nodes of this cluster, with what their pods request, the peers' last.
func (b *Backend) places(ctx context.Context, c *Cluster) ([]why.Place, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	if err := c.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	used := map[string]corev1.ResourceList{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if node := pod.Spec.NodeName; node != "" && !v1alpha1.Ended(pod.Status.Phase) {
			if used[node] == nil {
				used[node] = corev1.ResourceList{}
			}
			add(used[node], why.Requests(pod))
		}
	}
	there := map[string]presence.Presence{}
	for _, k := range b.Directory.All() {
		if k.Peer != nil {
			there[v1alpha1.VirtualNodePrefix+k.Peer.Name] = k.Contact.Presence
		}
	}
	var list []why.Place
	for i := range nodes.Items {
		node := &nodes.Items[i]
		p := why.Place{Laptop: node.Name, Node: node, Used: used[node.Name]}
		peer, _ := v1alpha1.PeerOfNode(node.Name)
		if p.There, p.Peer = there[v1alpha1.VirtualNode(peer)]; p.Peer {
			p.Laptop = peer
			if ctr := c.Client.Now().InForce(peer, v1alpha1.RoleConsumer); ctr != nil {
				p.Grants, p.Wake = ctr.Spec.Resources, ctr.Status.Wake
			}
			p.Tunnel = !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
			})
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b why.Place) int {
		if a.Peer != b.Peer {
			return map[bool]int{false: -1, true: 1}[a.Peer]
		}
		return cmp.Compare(a.Laptop, b.Laptop)
	})
	return list, nil
}

// claims are those of a pod's volumes. Where kithd may not read them, nothing is said of them.
func (c *Cluster) claims(ctx context.Context, pod *corev1.Pod) (list []why.Claim, err error) {
	for i := range pod.Spec.Volumes {
		name := why.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim := why.Claim{Name: name, Claim: &corev1.PersistentVolumeClaim{}}
		switch err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, claim.Claim); {
		case apierrors.IsForbidden(err):
			return nil, nil
		case apierrors.IsNotFound(err):
			claim.Claim = nil
		case err != nil:
			return nil, err
		case claim.Claim.Spec.VolumeName != "":
			claim.Volume = &corev1.PersistentVolume{}
			if err := c.Fresh.Get(ctx, named(claim.Claim.Spec.VolumeName), claim.Volume); err != nil {
				claim.Volume = nil // where it is is not known
			}
		case claim.Claim.Spec.StorageClassName != nil:
			var classes storagev1.StorageClassList
			if err := c.Fresh.List(ctx, &classes); err != nil {
				return nil, err
			}
			claim.Class, claim.Movable, claim.Home = volumes.ClassAsked(classes.Items, *claim.Claim.Spec.StorageClassName)
		}
		list = append(list, claim)
	}
	return list, nil
}

// whyNoPod is about a pod that is not there: a guest that was refused, or nothing.
func (b *Backend) whyNoPod(ctx context.Context, c *Cluster, o api.WhyOptions) (api.Why, error) {
	var opod v1alpha1.OffloadedPod
	err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, &opod)
	if apierrors.IsNotFound(err) {
		return api.Why{}, api.NotFound("pod", o.Namespace+"/"+o.Name, "kubectl get pods -A")
	}
	if err != nil {
		return api.Why{}, internal(err)
	}
	w := api.Why{Namespace: o.Namespace, Name: o.Name, Guest: opod.Labels[v1alpha1.LabelConsumerName], State: api.PodStarting, Since: opod.CreationTimestamp.Time}
	if t := c.Host.TermsIn(o.Namespace); t != nil {
		w.Guest = cmp.Or(w.Guest, t.Consumer.Name)
	}
	cause := api.Cause{Reason: api.CauseAsking, Laptop: b.Settings.Name, Who: api.WhoNobody}
	if s := opod.Status; s.Phase == v1alpha1.OffloadedPodRefused {
		w.State = api.PodRefused
		cause = api.Cause{Reason: api.CauseRefused, Laptop: b.Settings.Name, Who: api.WhoYou, Detail: s.Reason, Said: s.Message}
	}
	w.Causes = api.List[api.Cause]{cause}
	explain.Say(&w)
	return w, nil
}

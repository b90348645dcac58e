package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/waking"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/verdict"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/trust/contract"
)

// Contracts gives those in force or ending.
func (b *Backend) Contracts(ctx context.Context) ([]api.Contract, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	f, err := b.gather(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Contract
	for _, ctr := range f.agreed.Contracts {
		list = append(list, c.contract(ctr, f))
	}
	return list, nil
}

// Contract gives one, by its name, its ID or the peer's name.
func (b *Backend) Contract(ctx context.Context, ref string) (api.Contract, error) {
	all, err := b.Contracts(ctx)
	if err != nil {
		return api.Contract{}, err
	}
	var found []api.Contract
	for _, ctr := range all {
		if ctr.Name == ref || ctr.ID == ref {
			return ctr, nil
		}
		if ctr.Peer == ref || strings.HasPrefix(ctr.ID, ref) || strings.HasPrefix(ctr.Name, ref) {
			found = append(found, ctr)
		}
	}
	switch len(found) {
	case 0:
		return api.Contract{}, api.NotFound("contract", ref, "kith contract list")
	case 1:
		return found[0], nil
	}
	return api.Contract{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q means %d contracts", ref, len(found)), Do: "give the whole name"}
}

func (c *Cluster) contract(ctr *v1alpha1.Contract, f facts) api.Contract {
	v := api.Contract{
		Name: ctr.Name, ID: ctr.Spec.ID, Revision: ctr.Spec.Revision, Role: api.Role(strings.ToLower(string(ctr.Spec.Role))),
		Peer: ctr.Spec.Peer, Resources: quantities(ctr.Spec.Resources), State: api.State(ctr.Status.State), Why: ctr.Status.Why,
		Document: ctr.Spec.Document,
	}
	if v.State == "" {
		v.State = api.StateContracted
	}
	if ctr.DeletionTimestamp != nil {
		v.State = api.StateEnding
	}
	var used corev1.ResourceList
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		used = c.Host.Used(ctr.Spec.ID)
	} else {
		used = f.used[v1alpha1.VirtualNodePrefix+ctr.Spec.Peer]
	}
	v.Used = quantities(used)
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		v.Why = err.Error()
		return v
	}
	v.Created, v.NotBefore, v.NotAfter = doc.Created, doc.NotBefore, doc.NotAfter
	v.PeerID = doc.Provider.ID.String()
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		v.PeerID = doc.Consumer.ID.String()
	}
	// As the document spells them: that is what verifying compares.
	v.Resources, v.Prices, v.Reoffer, v.Network = doc.Resources, doc.Prices, doc.Reoffer, doc.Network
	if api.Lends(doc.Resources) {
		v.KeepVolumes = doc.Keeps().String()
	}
	if doc.Notice != 0 {
		v.Notice = doc.NoticeTime().String()
	}
	v.Wake = int32(doc.Wake)
	v.Woken, v.WakeSaid = woken(ctr, time.Now())
	if l := ctr.Status.Lowering; l != nil {
		v.Lowering = &api.Lowering{Resources: sharing.Words(l.Resources, ctr.Spec.Resources), From: l.From.Time}
	}
	v.Signatures = verdict.Signatures(contract.Signed{
		Document: ctr.Spec.Document, ConsumerSignature: ctr.Spec.ConsumerSignature, ProviderSignature: ctr.Spec.ProviderSignature,
	})
	return v
}

// woken is how often a consumer woke the provider's machine within the day before now and, at the consumer, how that stands. What the provider wrote down
// when it counted last is hours old, and no sentence about now.
func woken(ctr *v1alpha1.Contract, now time.Time) (times int32, said string) {
	is := ctr.Status.Wake
	if is == nil {
		return 0, ""
	}
	if ctr.Spec.Role == v1alpha1.RoleConsumer {
		said = is.Message
	}
	return int32(waking.Within(is.Times, now)), said
}

// VerifyContract checks document and signatures.
func (b *Backend) VerifyContract(_ context.Context, ctr api.Contract) (api.VerifyResult, error) {
	return verdict.Of(ctr), nil
}

// measured bounds how long those are waited for who measure.
const measured = 8 * time.Second

// amountsUsed are those of pods, by namespace and name in this cluster.
type amountsUsed = map[types.NamespacedName]corev1.ResourceList

// Top tells what is used under each contract: what this cluster's pods at peers use, then what guests use here.
func (b *Backend) Top(ctx context.Context) ([]api.Top, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, internal(err)
	}
	onNode, inTwin := map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.LabelConsumer] != "" {
			inTwin[pod.Namespace] = append(inTwin[pod.Namespace], pod)
		} else if offloading.Abroad(pod) {
			peer, _ := v1alpha1.PeerOfNode(pod.Spec.NodeName)
			onNode[v1alpha1.VirtualNode(peer)] = append(onNode[v1alpha1.VirtualNode(peer)], pod)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, measured)
	defer cancel()
	agreed := c.Client.Now()
	var asking sync.WaitGroup
	var guestsUse amountsUsed
	var guestsErr error
	asking.Go(func() { guestsUse, guestsErr = c.Host.Uses(ctx) })
	list := make([]api.Top, len(agreed.Contracts))
	for i, ctr := range agreed.Contracts {
		if ctr.Spec.Role == v1alpha1.RoleConsumer {
			asking.Go(func() {
				used, err := b.usedAt(ctx, c, ctr.Spec.Peer)
				list[i] = top(ctr, onNode[v1alpha1.VirtualNodePrefix+ctr.Spec.Peer], used, err)
			})
		}
	}
	asking.Wait()
	for i, ctr := range agreed.Contracts {
		if ctr.Spec.Role != v1alpha1.RoleProvider {
			continue
		}
		var theirs []*corev1.Pod
		for _, twin := range c.Host.TwinsOf(ctr.Spec.ID) {
			theirs = append(theirs, inTwin[twin.Name]...)
		}
		list[i] = top(ctr, theirs, guestsUse, guestsErr)
	}
	slices.SortFunc(list, func(a, b api.Top) int {
		return cmp.Or(-cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Peer, b.Peer))
	})
	return list, nil
}

// usedAt asks a peer what this cluster's pods there use, if it is there to be asked.
func (b *Backend) usedAt(ctx context.Context, c *Cluster, peer string) (amountsUsed, error) {
	for _, k := range b.Directory.All() {
		if k.Peer != nil && k.Peer.Name == peer && !k.Contact.Reachable() {
			return nil, errors.New("it cannot be reached: " + k.Contact.Why)
		}
	}
	return c.Fleet.Uses(ctx, peer)
}

// top puts together what is known of the pods under a contract.
func top(ctr *v1alpha1.Contract, pods []*corev1.Pod, used amountsUsed, failed error) api.Top {
	t := api.Top{Peer: ctr.Spec.Peer, Direction: api.Outgoing, Granted: quantities(ctr.Spec.Resources)}
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		t.Direction = api.Incoming
	}
	if failed != nil {
		t.Unknown = failed.Error()
	}
	requested, sum, count := corev1.ResourceList{}, corev1.ResourceList{}, int64(0)
	for _, pod := range pods {
		if v1alpha1.Ended(pod.Status.Phase) {
			continue
		}
		count++
		add(requested, requestsOf(pod))
		use := used[client.ObjectKeyFromObject(pod)]
		add(sum, use)
		t.Pods = append(t.Pods, api.TopPod{Namespace: pod.Namespace, Name: pod.Name, Requested: quantities(requestsOf(pod)), Used: quantities(use)})
	}
	if failed == nil {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, any := sum[name]; !any {
				sum[name] = resource.Quantity{}
			}
		}
	}
	sum[corev1.ResourcePods] = *resource.NewQuantity(count, resource.DecimalSI)
	t.Requested, t.Used = quantities(requested), quantities(sum)
	slices.SortFunc(t.Pods, func(a, b api.TopPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return t
}

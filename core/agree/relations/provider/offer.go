package provider

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// holds is how long an offer holds at most that ends with a policy's hours.
const holds = 10 * time.Minute

func (p *Provider) offer(ctx context.Context, caller peering.Caller, request *v1alpha1.PeeringRequest) (peering.Outcome, error) {
	now := p.Client.Now()
	peer := asPeer(now, caller.ID, request.Spec.PeerName)
	if request.Spec.Tether {
		return p.tether(ctx, peer)
	}
	resources, policy, err := p.terms(ctx, now, peer, request, holds)
	if refusal, ok := errors.AsType[*sharing.Refusal](err); ok {
		return peering.Outcome{State: peering.OutcomeDeclined, Reason: refusal.Reason}, nil
	}
	if err != nil {
		return peering.Outcome{}, err
	}
	at, until := time.Now(), request.Spec.Expires.Time
	if !sharing.Hours(policy, at).Changes.IsZero() && until.After(at.Add(holds)) {
		until = at.Add(holds).UTC().Truncate(time.Second)
	}
	runs, _ := sharing.Until(policy, at, until) // whenever it is signed it ends with the policy's hours
	amounts := record.Amounts(resources)
	terms := contract.Terms{Resources: amounts, PodSecurity: string(sharing.Level(policy)), Prices: sharing.Prices(policy, amounts)}
	if api.Lends(amounts) {
		terms.KeepVolumes = contract.KeepFor(sharing.Keeps(policy))
	}
	terms.Notice, terms.Wake = contract.NoticeOf(sharing.Notice(policy)), contract.WakeOf(sharing.Wake(policy))
	terms.Reoffer, terms.Network = sharing.Reoffer(policy), networkFor(wantsNetwork(request), policy)
	if terms.Network == contract.NetworkNone {
		terms.Reoffer = false
	}
	labels := p.nodeLabels(ctx, resources)
	maps.Copy(labels, sharing.BandwidthLabels(policy))
	return peering.Outcome{State: peering.OutcomeAccepted, Offer: &peering.Offer{
		Terms:      terms,
		NodeLabels: labels,
		ValidUntil: until,
		ValidFor:   int64(runs / time.Second),
	}}, nil
}

// nodeLabels are what a scheduler elsewhere needs to know of the machine, and of the devices that are offered.
func (p *Provider) nodeLabels(ctx context.Context, offered corev1.ResourceList) map[string]string {
	labels := map[string]string{}
	var devices []string
	for name := range offered {
		devices = append(devices, string(name))
	}
	var nodes corev1.NodeList
	if p.Client.List(ctx, &nodes) != nil {
		return labels
	}
	for _, node := range nodes.Items {
		if !v1alpha1.Fenced(&node) {
			continue
		}
		for _, key := range []string{corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			if v := node.Labels[key]; v != "" {
				labels[key] = v
			}
		}
		maps.Copy(labels, api.DeviceLabels(node.Labels, devices))
	}
	return labels
}

// terms is what the peer can have now, and under which policy: by a request that the owner accepted, or, without one, by a
// renewal. That is nothing new, so a policy that is paused, or whose conditions are not met, lets it pass. It is signed after so long, at the latest.
func (p *Provider) terms(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, request *v1alpha1.PeeringRequest, after time.Duration) (corev1.ResourceList, *v1alpha1.SharingPolicy, error) {
	var network v1alpha1.Network
	if request != nil {
		network = wantsNetwork(request)
	}
	in, _, err := p.offerable(ctx, now, peer, network)
	if err != nil {
		return nil, nil, err
	}
	in.SignedBy = in.Now.Add(after)
	switch {
	case request != nil:
		in.Asked = request.Spec.Resources
		if grant := request.Status.Grant; grant != nil { // what the owner started since his yes takes nothing of it back
			in.Most, in.Supply.Own = &grant.Resources, nil
		}
	case in.Policy != nil && (in.Policy.Spec.Paused || in.Policy.Spec.Only != nil):
		in.Policy = in.Policy.DeepCopy()
		in.Policy.Spec.Paused, in.Policy.Spec.Only = false, nil
	}
	resources, err := sharing.Offer(in)
	return resources, in.Policy, err
}

// offerable is what an offer to the peer follows from, but for the amounts that it asks for, and the contract in force with it; nil without one.
func (p *Provider) offerable(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, network v1alpha1.Network) (in sharing.OfferInput, ctr *v1alpha1.Contract, err error) {
	if in.Policy, err = p.policyFor(ctx, now, peer); err != nil {
		return in, nil, err
	}
	in.Now = time.Now()
	in.SignedBy = in.Now.Add(holds)
	if in.Policy != nil && in.Policy.Spec.Only != nil {
		in.Laptop = p.Laptop()
	}
	ctr = ledger.Live(slices.DeleteFunc(now.With(peer.Name, v1alpha1.RoleProvider), func(ctr *v1alpha1.Contract) bool { return record.OfAnotherKey(ctr, peer) }))
	if ctr != nil {
		in.Has = ctr.Grants(in.Now).DeepCopy() // it goes into a grant, and that into an object that is written
	}
	if in.Supply, err = p.Supply(ctx); err != nil || in.Policy == nil {
		return in, ctr, err
	}
	if networkFor(network, in.Policy) != contract.NetworkNone && (ctr == nil || !sharing.NoNetwork(ctr)) { // guests go on by a network
		if err := p.addReoffered(ctx, now, &in, peer); err != nil {
			return in, ctr, err
		}
	}
	in.Supply.Granted, in.InForce, in.Peers = p.promised(ctx, now, in.Policy, peer)
	return in, ctr, nil
}

func (p *Provider) policyFor(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer) (*v1alpha1.SharingPolicy, error) {
	policy := sharing.Select(now.Policies, peer)
	if policy == nil { // a memory that does not have yet what the owner wrote a moment ago would refuse in his name
		var policies v1alpha1.SharingPolicyList
		if err := p.Fresh.List(ctx, &policies); err != nil {
			return nil, fmt.Errorf("read the sharing policies: %w", err)
		}
		policy = sharing.Select(policies.Items, peer)
	}
	if !p.tetheredTo(peer.Spec.ID) {
		return policy, nil
	}
	var nodes corev1.NodeList
	if err := p.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("see what the nodes here can allocate: %w", err)
	}
	return whole(policy, supply.Nodes(nodes.Items)), nil
}

// promised are the amounts of contracts with other peers: all, and those under the same policy, which so many peers hold.
func (p *Provider) promised(ctx context.Context, now *ledger.Snapshot, policy *v1alpha1.SharingPolicy, peer *v1alpha1.Peer) (all, same []corev1.ResourceList, peers int) {
	at, holders, names := time.Now(), map[string]bool{}, make(map[string]*v1alpha1.Peer, len(now.Peers))
	for _, other := range now.Peers {
		names[other.Name] = other
	}
	policies, err := p.policies(ctx, now, policy)
	if err != nil { // then each contract counts as one under it: what is offered is less
		p.Log.Warn("which policies there are is not known, and less is offered meanwhile", "policy", policy.Name, "err", err)
	}
	choose := sharing.NewChooser(policies)
	for _, ctr := range now.Contracts {
		if ctr.Spec.Role != v1alpha1.RoleProvider || ctr.Spec.Peer == peer.Name {
			continue
		}
		all = append(all, ctr.Grants(at))
		other := cmp.Or(names[ctr.Spec.Peer], &v1alpha1.Peer{})
		if p.tetheredTo(other.Spec.ID) {
			if policy.Name != wholeName {
				continue
			}
		} else if used := choose.Of(other); err == nil && (used == nil || used.Name != policy.Name) {
			continue
		}
		same, holders[ctr.Spec.Peer] = append(same, ctr.Grants(at)), true
	}
	return all, same, len(holders)
}

// classes are the storage classes of this cluster whose volumes peers can have: Kith's own are of others, or of guests already.
func (p *Provider) classes(ctx context.Context) ([]string, error) {
	var all storagev1.StorageClassList
	if err := p.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("see which storage classes there are here: %w", err)
	}
	names := []string{}
	for i := range all.Items {
		if _, ofGuests := v1alpha1.ClassOfGuests(all.Items[i].Name); !ofGuests && all.Items[i].Provisioner != v1alpha1.StorageProvisioner {
			names = append(names, all.Items[i].Name)
		}
	}
	return names, nil
}

// policies are all there are. A memory that does not have yet the one that an offer is made under has them read anew.
func (p *Provider) policies(ctx context.Context, now *ledger.Snapshot, under *v1alpha1.SharingPolicy) ([]v1alpha1.SharingPolicy, error) {
	if under.Name == wholeName || slices.ContainsFunc(now.Policies, func(known v1alpha1.SharingPolicy) bool { return known.Name == under.Name }) {
		return now.Policies, nil
	}
	var fresh v1alpha1.SharingPolicyList
	err := p.Fresh.List(ctx, &fresh)
	return fresh.Items, err
}

// Supply is what there is to promise here, but for what is granted of it.
func (p *Provider) Supply(ctx context.Context) (there supply.Supply, err error) {
	// For each question: what is not meant is not copied.
	there, nodes, err := p.nodes(ctx)
	if err != nil {
		return there, err
	}
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return there, fmt.Errorf("see what the pods here request: %w", err)
	}
	there.Own = supply.Own(pods.Items, nodes)
	if there.Classes, err = p.classes(ctx); err != nil {
		return there, err
	}
	return there, nil
}

// nodes is what there is of nodes and disks.
func (p *Provider) nodes(ctx context.Context) (there supply.Supply, nodes []corev1.Node, err error) {
	var list corev1.NodeList
	if err := p.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return there, nil, fmt.Errorf("see what the nodes here can allocate: %w", err)
	}
	there.Nodes = supply.Nodes(list.Items)
	if there.Room = supply.Room(list.Items, p.Disk); there.Room != nil {
		there.Nodes[corev1.ResourceStorage] = there.Nodes[corev1.ResourceEphemeralStorage] // of the same disks; no node says how much it has for volumes
	}
	return there, list.Items, nil
}

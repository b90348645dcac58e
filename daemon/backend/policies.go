package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Policies gives the owner's words on sharing.
func (b *Backend) Policies(ctx context.Context) ([]api.Policy, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	show, err := c.policyViewer(ctx)
	if err != nil {
		return nil, internal(err)
	}
	var list []api.Policy
	for _, policy := range c.Client.Now().Policies {
		list = append(list, show(&policy))
	}
	return list, nil
}

// policyViewer reads what views of policies need beside the policies: the nodes and the peers.
func (c *Cluster) policyViewer(ctx context.Context) (func(*v1alpha1.SharingPolicy) api.Policy, error) {
	there, err := c.Provider.Supply(ctx)
	if err != nil {
		return nil, err
	}
	now := c.Client.Now()
	return func(p *v1alpha1.SharingPolicy) api.Policy {
		v := policyView(p)
		there := there
		if under, err := c.Provider.SupplyUnder(ctx, p, there); err == nil { // else it is shown without what others grant
			there = under
		}
		for _, id := range slices.Concat(p.Spec.Peers, p.Spec.Catalogues, p.Spec.ReofferFrom) {
			if peer := now.Peer(id); peer != nil {
				if v.Names == nil {
					v.Names = map[string]string{}
				}
				v.Names[id] = peer.Name
			}
		}
		if len(there.Nodes) > 0 {
			v.Offered = quantities(sharing.Offered(p, there))
		}
		v.Notes = sharing.Notes(p, there, now.Peers)
		if class := v.DeviceRuntimeClass; c.Host.Refuses(class) {
			v.Notes = append(v.Notes, "guests here cannot have the RuntimeClass "+class+", for it would take the place of the one that fences them: those that ask for devices are refused; nvidia can be combined with it")
		}
		return v
	}, nil
}

func policyView(p *v1alpha1.SharingPolicy) api.Policy {
	v := api.Policy{
		Name: p.Name, Generation: p.Generation, Peers: p.Spec.Peers, Amounts: api.Resources{}, AutoAccept: p.Spec.AutoAccept,
		PodSecurity: api.PodSecurity(sharing.Level(p)), Paused: p.Spec.Paused, NoInternet: !sharing.Internet(p), NoTunnel: sharing.NoTunnel(p), Direct: sharing.Direct(p), SameName: sharing.SameName(p), Services: sharing.Services(p),
		Catalogues:         p.Spec.Catalogues,
		DeviceRuntimeClass: p.Spec.DeviceRuntimeClass,
		Bandwidth:          bandwidthOf(p),
	}
	for _, h := range p.Spec.Hours {
		hours := api.Hours{From: h.From, To: h.To}
		for _, d := range h.Days {
			hours.Days = append(hours.Days, string(d))
		}
		v.Hours = append(v.Hours, hours)
	}
	if p.Spec.KeepVolumes != nil {
		v.KeepVolumes = sharing.Keeps(p).String()
	}
	if p.Spec.Notice != nil {
		v.Notice = sharing.Notice(p).String()
	}
	v.Wake = sharing.Wake(p)
	v.Reoffer, v.ReofferFrom, v.Margin = p.Spec.Reoffer == v1alpha1.AccessAllow, p.Spec.ReofferFrom, p.Spec.Margin
	v.Each = p.Spec.ReofferAs == v1alpha1.ReofferAsEach
	if v.TimeZone = p.Spec.TimeZone; p.Spec.PeerSelector != nil {
		v.Selector = metav1.FormatLabelSelector(p.Spec.PeerSelector)
	}
	for name, amount := range p.Spec.Amounts {
		v.Amounts[name] = string(amount)
	}
	if only := p.Spec.Only; only != nil {
		v.OnMains, v.BatteryAbove, v.NotMetered, v.Cool = only.OnMains, only.BatteryAbove, only.NotMetered, only.Cool
		if only.IdleFor != nil {
			v.IdleFor = only.IdleFor.Duration.String()
		}
	}
	v.Reserve, v.MaxPerPeer = written(p.Spec.Reserve), written(p.Spec.MaxPerPeer)
	if p.Spec.MaxPeers != nil {
		v.MaxPeers = *p.Spec.MaxPeers
	}
	for name, price := range p.Spec.Prices {
		if v.Prices == nil {
			v.Prices = map[string]string{}
		}
		v.Prices[name] = string(price)
	}
	return v
}

func bandwidthOf(p *v1alpha1.SharingPolicy) api.Bandwidth {
	if p.Spec.Network == nil || p.Spec.Network.Bandwidth == nil {
		return api.Bandwidth{}
	}
	return api.Bandwidth{Ingress: string(p.Spec.Network.Bandwidth.Ingress), Egress: string(p.Spec.Network.Bandwidth.Egress)}
}

// written are amounts as a policy says them; nil for none.
func written(amounts map[string]v1alpha1.Amount) api.Resources {
	if len(amounts) == 0 {
		return nil
	}
	words := api.Resources{}
	for name, amount := range amounts {
		words[name] = string(amount)
	}
	return words
}

// amountsOf is what written writes.
func amountsOf(words api.Resources) map[string]v1alpha1.Amount {
	amounts := map[string]v1alpha1.Amount{}
	for name, amount := range words {
		amounts[name] = v1alpha1.Amount(amount)
	}
	if len(amounts) == 0 {
		return nil
	}
	return amounts
}

// policy is the one of that name. Where the memory has none the API server is asked: kubectl may have made it a moment ago. With
// NotFound comes an empty one of that name.
func (c *Cluster) policy(ctx context.Context, name string) (*v1alpha1.SharingPolicy, error) {
	policy := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := c.Client.Get(ctx, named(name), policy)
	if apierrors.IsNotFound(err) {
		err = c.Fresh.Get(ctx, named(name), policy)
	}
	return policy, err
}

// SetPolicy applies a change to a policy, or makes it.
func (b *Backend) SetPolicy(ctx context.Context, name string, change api.PolicyChange, dry api.DryRun) (api.Policy, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Policy{}, err
	}
	policy, err := c.policy(ctx, name)
	fresh := apierrors.IsNotFound(err)
	if err != nil && !fresh {
		return api.Policy{}, internal(err)
	}
	if change.Generation != 0 && change.Generation != policy.Generation {
		return api.Policy{}, changedSince(name)
	}
	before, was := policy.DeepCopy(), policyView(policy)
	if change.Amounts, err = c.nameGPU(ctx, change.Amounts, was.Amounts); err != nil {
		return api.Policy{}, err
	}
	if change.Prices, err = c.nameGPU(ctx, change.Prices, was.Amounts); err != nil {
		return api.Policy{}, err
	}
	if change.Catalogues != nil {
		if change.Catalogues, err = c.resolve(*change.Catalogues); err != nil {
			return api.Policy{}, err
		}
	}
	if change.Peers != nil {
		if change.Peers, err = c.resolve(*change.Peers); err != nil {
			return api.Policy{}, err
		}
	}
	if change.ReofferFrom != nil && !slices.Equal(*change.ReofferFrom, api.List[string]{sharing.AllProviders}) {
		if change.ReofferFrom, err = c.resolve(*change.ReofferFrom); err != nil {
			return api.Policy{}, err
		}
	}
	if err := putPolicy(policy, change.Apply(was)); err != nil {
		return api.Policy{}, err
	}
	if err := sharing.Validate(policy); err != nil {
		var field *sharing.FieldError
		if errors.As(err, &field) {
			return api.Policy{}, &api.Error{Code: api.CodeInvalid, Message: err.Error(), Field: field.Field}
		}
		return api.Policy{}, &api.Error{Code: api.CodeInvalid, Message: err.Error()}
	}
	switch to := c.writer(dry); {
	case fresh:
		err = to.Create(ctx, policy)
	case change.Generation != 0: // of that version and no other
		err = to.Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	default:
		err = to.Patch(ctx, policy, client.MergeFrom(before))
	}
	if change.Generation != 0 && apierrors.IsConflict(err) {
		return api.Policy{}, changedSince(name)
	}
	if err != nil {
		return api.Policy{}, internal(fmt.Errorf("write the policy %s: %w", name, err))
	}
	is := policyView(policy)
	changed := is.Since(was)
	if changed != "" && !bool(dry) {
		b.changes.note(lastChange{was: was, is: is, made: fresh})
		b.Publish(api.Event{Type: api.EventPolicyChanged, Severity: api.SeverityInfo, Object: "policy/" + name, Message: "the sharing policy " + name + " was changed: " + changed})
	}
	show, err := c.policyViewer(ctx)
	if err != nil {
		return api.Policy{}, internal(err)
	}
	shown := show(policy)
	shown.Changed = changed
	return shown, nil
}

// resolve gives the IDs of the peers that a policy is to be for.
func (c *Cluster) resolve(refs []string) (*api.List[string], error) {
	ids, err := sharing.Resolve(refs, c.Client.Now().Peers)
	var unknown *sharing.UnknownName
	if errors.As(err, &unknown) {
		no := &api.Error{Code: api.CodeInvalid, Field: "peers", Message: err.Error(), Do: "give the whole ID; `kith status` shows it on that laptop"}
		if unknown.ID != "" {
			no.Reason = "the one that calls itself " + unknown.Name + " is " + unknown.ID
			no.Do = "compare that with what `kith status` shows on that laptop, and give the ID if it is the same"
		}
		return nil, no
	}
	if err != nil {
		return nil, internal(err)
	}
	list := api.List[string](ids)
	return &list, nil
}

func access(allowed bool) v1alpha1.Access {
	if allowed {
		return v1alpha1.AccessAllow
	}
	return v1alpha1.AccessDeny
}

// putPolicy writes a view back into the object; what views do not show stays.
func putPolicy(policy *v1alpha1.SharingPolicy, v api.Policy) error {
	policy.Spec.Peers, policy.Spec.AutoAccept, policy.Spec.Paused = v.Peers, v.AutoAccept, v.Paused
	policy.Spec.PodSecurity, policy.Spec.DeviceRuntimeClass = v1alpha1.PodSecurityLevel(v.PodSecurity), v.DeviceRuntimeClass
	if v.NoInternet == sharing.Internet(policy) || v.Direct != sharing.Direct(policy) { // it differs
		policy.Spec.Network = cmp.Or(policy.Spec.Network, &v1alpha1.GuestNetwork{})
		policy.Spec.Network.Internet, policy.Spec.Network.Direct = access(!v.NoInternet), access(v.Direct)
	}
	if v.Bandwidth != bandwidthOf(policy) {
		policy.Spec.Network = cmp.Or(policy.Spec.Network, &v1alpha1.GuestNetwork{})
		policy.Spec.Network.Bandwidth = nil
		if b := v.Bandwidth; b != (api.Bandwidth{}) {
			policy.Spec.Network.Bandwidth = &v1alpha1.GuestBandwidth{Ingress: v1alpha1.BitRate(b.Ingress), Egress: v1alpha1.BitRate(b.Egress)}
		}
	}
	if v.NoTunnel != sharing.NoTunnel(policy) { // it differs
		policy.Spec.Tunnel = access(!v.NoTunnel)
	}
	policy.Spec.Services, policy.Spec.Catalogues = v.Services, v.Catalogues
	only := v1alpha1.SharingConditions{OnMains: v.OnMains, BatteryAbove: v.BatteryAbove, NotMetered: v.NotMetered, Cool: v.Cool}
	if v.IdleFor != "" {
		d, err := time.ParseDuration(v.IdleFor)
		if err != nil {
			return api.Invalid("idleFor", v.IdleFor, sharing.IdleAllowed)
		}
		only.IdleFor = &metav1.Duration{Duration: d}
	}
	if policy.Spec.Only = nil; only != (v1alpha1.SharingConditions{}) {
		policy.Spec.Only = &only
	}
	policy.Spec.Reserve, policy.Spec.MaxPerPeer = amountsOf(v.Reserve), amountsOf(v.MaxPerPeer)
	if policy.Spec.MaxPeers = nil; v.MaxPeers > 0 {
		policy.Spec.MaxPeers = &v.MaxPeers
	}
	policy.Spec.Hours, policy.Spec.TimeZone = nil, v.TimeZone
	for _, h := range v.Hours {
		hours := v1alpha1.SharingHours{From: h.From, To: h.To}
		for _, d := range h.Days {
			hours.Days = append(hours.Days, v1alpha1.Weekday(d))
		}
		policy.Spec.Hours = append(policy.Spec.Hours, hours)
	}
	if v.SameName != sharing.SameName(policy) { // it differs; the owner's list of reserved names stays
		if policy.Spec.Namespaces == nil {
			policy.Spec.Namespaces = &v1alpha1.GuestNamespaces{}
		}
		policy.Spec.Namespaces.SameName = access(v.SameName)
	}
	if policy.Spec.ReofferFrom = v.ReofferFrom; v.Reoffer != (policy.Spec.Reoffer == v1alpha1.AccessAllow) { // it differs
		policy.Spec.Reoffer = access(v.Reoffer)
	}
	if v.Each != (policy.Spec.ReofferAs == v1alpha1.ReofferAsEach) { // it differs
		if policy.Spec.ReofferAs = v1alpha1.ReofferAsOne; v.Each {
			policy.Spec.ReofferAs = v1alpha1.ReofferAsEach
		}
	}
	policy.Spec.Margin = v.Margin
	policy.Spec.KeepVolumes = nil
	if v.KeepVolumes != "" {
		d, err := time.ParseDuration(v.KeepVolumes)
		if err != nil {
			return api.Invalid("keepVolumes", v.KeepVolumes, "a duration from 1h to 8760h")
		}
		policy.Spec.KeepVolumes = &metav1.Duration{Duration: d}
	}
	if policy.Spec.Wake = nil; v.Wake > 0 {
		policy.Spec.Wake = new(v.Wake)
	}
	policy.Spec.Notice = nil
	if v.Notice != "" {
		d, err := time.ParseDuration(v.Notice)
		if err != nil {
			return api.Invalid("notice", v.Notice, sharing.NoticeAllowed)
		}
		policy.Spec.Notice = &metav1.Duration{Duration: d}
	}
	policy.Spec.PeerSelector = nil
	if v.Selector != "" {
		selector, err := metav1.ParseToLabelSelector(v.Selector)
		if err != nil {
			return api.Invalid("selector", v.Selector, "a label selector such as trust=family")
		}
		policy.Spec.PeerSelector = selector
	}
	if policy.Spec.ContractValidity != nil { // of before there were bounds; contracts run so long already
		policy.Spec.ContractValidity = &metav1.Duration{Duration: sharing.Validity(policy)}
	}
	policy.Spec.Amounts = map[string]v1alpha1.Amount{}
	for name, amount := range v.Amounts {
		policy.Spec.Amounts[name] = v1alpha1.Amount(amount)
	}
	policy.Spec.Prices = nil
	for name, price := range v.Prices {
		if policy.Spec.Prices == nil {
			policy.Spec.Prices = map[string]v1alpha1.UnitPrice{}
		}
		policy.Spec.Prices[name] = v1alpha1.UnitPrice(price)
	}
	return nil
}

// changes remembers the last change of a policy that this process made.
type changes struct {
	mu   sync.Mutex
	last *lastChange
}

// lastChange is what a policy was and is; made says that there was none of the name before.
type lastChange struct {
	was, is api.Policy
	made    bool
}

func (c *changes) note(l lastChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = &l
}

// get gives the last change; nil without one.
func (c *changes) get() *lastChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Undo takes the last change of a policy back, unless another one came after it.
func (b *Backend) Undo(ctx context.Context, dry api.DryRun) (api.Policy, error) {
	last := b.changes.get()
	if last == nil {
		return api.Policy{}, &api.Error{
			Code: api.CodeConflict, Message: "there is no change of sharing to take back", Reason: "none was made by `kith share` or in the tray since kithd started",
			Do: "`kith share` shows what is shared, and sets it",
		}
	}
	if last.made {
		return b.unmake(ctx, last, dry)
	}
	return b.SetPolicy(ctx, last.is.Name, last.is.Undo(last.was), dry)
}

// unmake takes a policy away that there was none of before.
func (b *Backend) unmake(ctx context.Context, last *lastChange, dry api.DryRun) (api.Policy, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Policy{}, err
	}
	name := last.is.Name
	policy, err := c.policy(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && policy.Generation != last.is.Generation {
		return api.Policy{}, changedSince(name)
	}
	if err == nil {
		err = c.writer(dry).Delete(ctx, policy, client.Preconditions{UID: &policy.UID, ResourceVersion: &policy.ResourceVersion})
	}
	switch {
	case apierrors.IsConflict(err):
		return api.Policy{}, changedSince(name)
	case err != nil:
		return api.Policy{}, internal(err)
	}
	was := last.is
	was.Changed = "there is none of that name any more, as before"
	if !dry {
		b.changes.mu.Lock()
		if b.changes.last == last {
			b.changes.last = nil
		}
		b.changes.mu.Unlock()
		b.Publish(api.Event{Type: api.EventPolicyChanged, Severity: api.SeverityInfo, Object: "policy/" + name, Message: "the sharing policy " + name + " was taken away"})
	}
	return was, nil
}

func changedSince(name string) error {
	return &api.Error{
		Code: api.CodeConflict, Message: "nothing was changed", Reason: "the sharing policy " + name + " has changed since", Do: "`kith share` shows what is shared now",
	}
}

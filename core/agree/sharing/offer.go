package sharing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// OfferInput is what an offer follows from.
type OfferInput struct {
	// Policy is the one that counts for the peer; nil when none does.
	Policy *v1alpha1.SharingPolicy
	// Supply is what there is here; the peer's own contract is not among what is granted of it.
	Supply supply.Supply
	// InForce are the amounts of the other contracts under the same policy.
	InForce []corev1.ResourceList
	// Peers is how many other peers hold contracts under the same policy.
	Peers int
	// Has is what the peer has already, by the contract in force with it; nil without one. What was signed stays: the supply takes
	// nothing of it back.
	Has corev1.ResourceList
	// Asked is what the peer wants; a resource left out is up to the policy.
	Asked corev1.ResourceList
	// Now is when it is offered, by the clock and in the time zone of this machine; SignedBy, when a contract of it is signed at the latest. Only
	// policies with hours, or with conditions, look at them.
	Now, SignedBy time.Time
	// Laptop is how this machine is used now. Only policies with conditions look at it.
	Laptop Laptop
	// Most is the grant that the owner saw when accepting: no more is offered, and nothing that it does not name. Nil: no such limit.
	Most *corev1.ResourceList
}

// Refusal is the error of Offer: nothing can be offered, and why.
type Refusal struct {
	Why    api.NoOffer
	Of     corev1.ResourceName // that there is none of, where it is about one
	Reason string              // in words that the peer's owner may read
	Passes bool                // by itself: nobody decided so
	// Changes is when the policy's hours begin, or end; zero where it is not about them.
	Changes time.Time
}

func (r *Refusal) Error() string { return r.Reason }

// essential resources: without any of them no ordinary pod runs.
var essential = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}

// Offer says how much the peer may have: of every resource the policy names, what other contracts leave,
// bounded by what is asked, by what the owner said yes to and by what there is. The error is
// a *Refusal when that is nothing at all, or nothing of cpu, memory or pods.
func Offer(in OfferInput) (corev1.ResourceList, error) {
	offer, _, no := Weigh(in)
	if no != nil {
		return nil, no
	}
	return offer, nil
}

// Part is what is offered of one resource, and what keeps it from being more.
type Part struct {
	Name    corev1.ResourceName
	Amount  resource.Quantity // what the policy's amount comes to here
	Offered resource.Quantity
	Bound   api.BoundBy
}

// less bounds the part.
func (p *Part) less(most resource.Quantity, by api.BoundBy) {
	if most.Cmp(p.Offered) < 0 {
		p.Offered, p.Bound = most.DeepCopy(), by
	}
}

// Weigh is Offer, with the parts by resource. Parts are there when nothing is offered as well, unless that is for no policy or no node.
func Weigh(in OfferInput) (corev1.ResourceList, []Part, *Refusal) {
	no := in.closed()
	if in.Policy == nil || len(in.Supply.Nodes) == 0 {
		return nil, nil, no
	}
	in.Supply.Reserve = Reserve(in.Policy, in.Supply)
	amounts, each := Amounts(in.Policy, in.Supply), PerPeer(in.Policy, in.Supply)
	offer, parts := corev1.ResourceList{}, []Part{}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		part := in.free(name, amounts[name])
		if most, bounded := each[name]; bounded {
			if has := in.stays(name, in.Policy.Spec.MaxPerPeer, corev1.ResourceList{}); most.Cmp(has) < 0 {
				most = has
			}
			part.less(floor(name, most), api.BoundByPerPeer)
		}
		if asked, ok := in.Asked[name]; ok {
			part.less(asked, api.BoundByAsked)
		}
		if in.Most != nil {
			part.less((*in.Most)[name], api.BoundByAccepted)
		}
		if parts = append(parts, part); part.Offered.Sign() > 0 {
			offer[name] = part.Offered
		}
	}
	for _, name := range essential {
		if _, ok := offer[name]; !ok && no == nil {
			no = in.why(name, amounts)
		}
	}
	in.littleScratch(offer)
	in.noStorage(offer)
	for i := range parts {
		parts[i].less(offer[parts[i].Name], api.BoundByNotAsked)
	}
	return offer, parts, no
}

// closed says why nothing is offered whatever there is; nil when something may be.
func (in *OfferInput) closed() *Refusal {
	switch {
	case in.Policy == nil:
		return &Refusal{Why: api.NoOfferPolicy, Reason: "no SharingPolicy here offers anything to this peer"}
	case in.Policy.Spec.Paused:
		return &Refusal{Why: api.NoOfferPaused, Reason: fmt.Sprintf("sharing is paused (SharingPolicy %s)", in.Policy.Name)}
	}
	if no := in.outside(); no != nil {
		return no
	}
	if no := in.unmet(); no != nil {
		return no
	}
	if most := in.Policy.Spec.MaxPeers; most != nil && in.Has == nil && in.Peers >= int(*most) {
		return &Refusal{Why: api.NoOfferPeers, Reason: fmt.Sprintf("SharingPolicy %s is for %d peers at once, and so many hold contracts under it", in.Policy.Name, *most)}
	}
	if len(in.Supply.Nodes) == 0 { // a policy's absolute amounts would be promised on no node at all
		return &Refusal{Why: api.NoOfferNodes, Reason: "no node here takes guests now", Passes: true}
	}
	return nil
}

// noStorage: room for volumes is promised to those who ask for it, and stays promised to those who have it.
func (in *OfferInput) noStorage(offer corev1.ResourceList) {
	for name, left := range offer {
		_, storage := api.StorageClass(string(name))
		if _, asked := in.Asked[name]; asked || !storage {
			continue
		}
		switch has := in.Has[name]; {
		case has.Sign() <= 0:
			delete(offer, name)
		case has.Cmp(left) < 0:
			offer[name] = has
		}
	}
}

// scratchEach is the scratch space for each pod of a contract whose consumer did not ask for any. Logs and some files fit.
const scratchEach = 1 << 30

// littleScratch reduces scratch space that was not asked for, so that no contract gets half a disk by default. What a peer has already it keeps.
func (in *OfferInput) littleScratch(offer corev1.ResourceList) {
	const name = corev1.ResourceEphemeralStorage
	left, offered := offer[name]
	if _, asked := in.Asked[name]; asked || !offered {
		return
	}
	pods := offer[corev1.ResourcePods]
	most := resource.NewQuantity(pods.Value()*scratchEach, resource.BinarySI)
	if has := in.Has[name]; most.Cmp(has) < 0 {
		most = &has
	}
	if most.Cmp(left) < 0 {
		offer[name] = *most
	}
}

// free is what of the amount is promised to nobody, and is there: in use by none of the owner's pods, or the peer's already.
func (in *OfferInput) free(name corev1.ResourceName, amount resource.Quantity) Part {
	part := Part{Name: name, Amount: amount, Offered: amount.DeepCopy(), Bound: api.BoundByAmount}
	if all, known := in.Supply.Nodes[name]; known && all.Cmp(amount) == 0 {
		part.Bound = api.BoundByAllocatable
	}
	left := amount.DeepCopy()
	left.Sub(in.Promised(name))
	part.less(left, api.BoundByOthers)
	if has := in.stays(name, in.Policy.Spec.Amounts, corev1.ResourceList{name: in.Promised(name)}); part.Offered.Cmp(has) < 0 {
		part.Offered = has
	}
	if rest, by, known := in.Supply.Left(name); known {
		if has := in.Has[name]; rest.Cmp(has) < 0 {
			rest = has.DeepCopy()
		}
		part.less(rest, by)
	}
	part.Offered = floor(name, part.Offered)
	return part
}

// stays is what the peer keeps of an amount of free: what it has, as long as that is within the share of all there is, less what others have of that.
// The owner decided on the share, not on what is free at this moment.
func (in *OfferInput) stays(name corev1.ResourceName, of map[string]v1alpha1.Amount, others corev1.ResourceList) resource.Quantity {
	has, amount := in.Has[name].DeepCopy(), of[string(name)]
	if !ofFree(amount) || has.Sign() <= 0 {
		return resource.Quantity{}
	}
	whole := resolve(map[string]v1alpha1.Amount{string(name): amount}, supply.Supply{Nodes: in.Supply.Nodes})[name]
	whole.Sub(others[name])
	if whole.Cmp(has) < 0 {
		return whole
	}
	return has
}

// Promised is what others have under the policy.
func (in *OfferInput) Promised(name corev1.ResourceName) resource.Quantity {
	return supply.Supply{Granted: in.InForce}.Promised(name)
}

// floor keeps offers readable: no fractions of a byte, of a pod or of a device, no half mebibytes.
func floor(name corev1.ResourceName, q resource.Quantity) resource.Quantity {
	if name == corev1.ResourceCPU || q.Sign() <= 0 {
		return q
	}
	n := q.Value()
	if resource.NewQuantity(n, q.Format).Cmp(q) > 0 { // Value rounds up
		n--
	}
	if step := granularity(name); n > step {
		n -= n % step
	}
	return *resource.NewQuantity(n, format(name, q))
}

// Readable is an amount as offers have it, rounded down.
func Readable(name corev1.ResourceName, q resource.Quantity) resource.Quantity { return floor(name, q) }

// why says for what reason the offer has nothing of the resource name.
func (in *OfferInput) why(name corev1.ResourceName, amounts corev1.ResourceList) *Refusal {
	amount, ok := amounts[name]
	asked, isAsked := in.Asked[name]
	promised := in.Promised(name)
	unseen := false
	if in.Most != nil {
		most := (*in.Most)[name]
		unseen = most.Sign() <= 0
	}
	no := func(why api.NoOffer, format string, args ...any) *Refusal {
		return &Refusal{Why: why, Of: name, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case unseen:
		return no(api.NoOfferNotAccepted, "it was accepted when no %s could be granted", name)
	case !ok:
		return no(api.NoOfferNotShared, "SharingPolicy %s offers no %s (it names %s)", in.Policy.Name, name, listed(in.Policy.Spec.Amounts))
	case amount.Sign() <= 0:
		return no(api.NoOfferZero, "SharingPolicy %s offers no %s: %q of it comes to nothing here", in.Policy.Name, name, in.Policy.Spec.Amounts[string(name)])
	case in.noneEach(name):
		return no(api.NoOfferZero, "SharingPolicy %s lets one peer have no %s", in.Policy.Name, name)
	case isAsked && asked.Sign() <= 0:
		return no(api.NoOfferAskedZero, "%s %s was asked for, and without %s no pod can run", name, asked.String(), name)
	case promised.Cmp(amount) >= 0:
		return no(api.NoOfferUsedUp, "all %s that SharingPolicy %s offers (%s) is promised to other peers", name, in.Policy.Name, amount.String())
	default:
		all, own, promised, kept := in.Supply.Nodes[name], in.Supply.Own[name], in.Supply.Promised(name), in.Supply.Reserve[name]
		if kept.Sign() > 0 {
			return no(api.NoOfferNothingFree, "no %s is free: of %s here, %s is promised to other peers, the owner's own pods request %s and the owner keeps %s free",
				name, all.String(), promised.String(), own.String(), kept.String())
		}
		return no(api.NoOfferNothingFree, "no %s is free: of %s here, %s is promised to other peers and the owner's own pods request %s",
			name, all.String(), promised.String(), own.String())
	}
}

// noneEach reports whether the policy lets one peer have nothing of a resource.
func (in *OfferInput) noneEach(name corev1.ResourceName) bool {
	most, bounded := PerPeer(in.Policy, in.Supply)[name]
	return bounded && most.Sign() <= 0
}

func listed(amounts map[string]v1alpha1.Amount) string {
	if len(amounts) == 0 {
		return "nothing"
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(amounts)))
}

// Grant is the result of Offer for a request, in numbers and in words. The refusal is nil if anything is granted.
func Grant(in OfferInput) (v1alpha1.Grant, *Refusal) {
	offer, _, no := Weigh(in)
	if no != nil {
		return v1alpha1.Grant{InForce: in.Has, Refusal: no.Reason, Summary: "nothing: " + no.Reason}, no
	}
	grant := v1alpha1.Grant{Resources: offer, InForce: in.Has}
	grant.Summary = api.Change(Words(in.Has, offer), Words(offer), Words(in.Asked, offer))
	return grant, nil
}

// Words are amounts for people: whole numbers are written out (100000, not 100k), and one that is as much as in a list of those
// beside is written as there.
func Words(list corev1.ResourceList, beside ...corev1.ResourceList) api.Resources {
	words := api.Resources{}
	for name, q := range list {
		for _, other := range beside {
			if same, ok := other[name]; ok && same.Cmp(q) == 0 {
				q = same
			}
		}
		words[string(name)] = word(name, q)
	}
	return words
}

func word(name corev1.ResourceName, q resource.Quantity) string {
	if n, whole := q.AsInt64(); whole && (granularity(name) == 1 || q.Format == resource.DecimalExponent) {
		return strconv.FormatInt(n, 10)
	}
	number, suffix := q.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}

// Less says which amounts are less than was asked for: "asked cpu 100000, granted 8"; "" when none is.
func Less(asked, granted corev1.ResourceList) string {
	wanted, got := Words(asked), Words(granted)
	var parts []string
	for _, name := range wanted.Names() {
		want, has := asked[corev1.ResourceName(name)], granted[corev1.ResourceName(name)]
		if has.Cmp(want) >= 0 {
			continue
		}
		if got[name] == "" {
			got[name] = "none"
		}
		parts = append(parts, fmt.Sprintf("asked %s %s, granted %s", api.Called(name), wanted[name], got[name]))
	}
	return strings.Join(parts, "; ")
}

// Same reports whether two lists grant the same; what a list does not name is none.
func Same(a, b corev1.ResourceList) bool {
	within := func(a, b corev1.ResourceList) bool {
		for name, q := range a {
			if other := b[name]; other.Cmp(q) != 0 {
				return false
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}

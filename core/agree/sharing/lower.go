package sharing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Lower says what a policy leaves to the first of the contracts in force under it, by what each has: no more than maxPerPeer and, where all have more than
// the amounts together, an equal part of these, or what it has if that is less. So who has most gives most, and when some have signed what they are lowered
// to it comes to the same for the others. What does not divide goes to those that come first in others, the oldest, and before these to itself if it is older:
// place is how many of others are. Storage is never lowered below what is used of it: data does not vanish.
//
// It goes by the owner's word alone, which is an amount, or a share of what the nodes here have, and not by hours, conditions, reserve, own pods and how much
// there is at the moment: these are looked at before something new is offered. Nil: nothing is less. An empty list: nothing would be left of cpu, memory or pods. Such a contract is not renewed,
// and runs out.
func Lower(policy *v1alpha1.SharingPolicy, there supply.Supply, has corev1.ResourceList, others []corev1.ResourceList, place int, used corev1.ResourceList) corev1.ResourceList {
	all := slices.Insert(slices.Clone(others), place, has)
	left, less := corev1.ResourceList{}, false
	for name, is := range has {
		each, bounded := said(policy.Spec.MaxPerPeer, name, there)
		bounded = bounded && policy.Spec.MaxPerPeer[string(name)] != ""
		wants, most := make([]int64, len(all)), is
		for i, other := range all {
			want := other[name]
			if bounded && each.Cmp(want) < 0 {
				want = each
			}
			if wants[i] = units(name, want, true); i == place {
				most = want
			}
		}
		if amount, known := said(policy.Spec.Amounts, name, there); known {
			if got := parts(units(name, amount, false), wants)[place]; got < wants[place] {
				most = ofUnits(name, got, is)
			}
		}
		if _, storage := api.StorageClass(string(name)); storage {
			if lent := used[name]; most.Cmp(lent) < 0 {
				most = lent
			}
		}
		if most.Cmp(is) < 0 {
			less = true
		} else {
			most = is
		}
		if most.Sign() > 0 {
			left[name] = most.DeepCopy()
		}
	}
	for _, name := range essential {
		if _, some := left[name]; !some {
			return corev1.ResourceList{}
		}
	}
	if !less {
		return nil
	}
	return left
}

// said is what amounts say of a resource, nothing of one that they do not name. known is false for a share of what no node has, as while a node starts, and
// for what cannot be meant.
func said(amounts map[string]v1alpha1.Amount, name corev1.ResourceName, there supply.Supply) (amount resource.Quantity, known bool) {
	text, named := amounts[string(name)]
	if !named {
		return amount, true
	}
	percent, quantity, err := parse(text)
	all := there.Nodes[name]
	switch {
	case err != nil, quantity == nil && all.Sign() <= 0:
		return amount, false
	case quantity != nil:
		return *quantity, true
	}
	return share(name, all, percent), true // also of one that is of what is free: what is free at the moment is nobody's word
}

// parts divides an amount among those who want some of it, the oldest first: as much for each as there can be for all who want as much.
func parts(amount int64, wants []int64) []int64 {
	got, order := make([]int64, len(wants)), make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	for k, i := range order {
		n := int64(len(order) - k)
		if wants[i] <= amount/n {
			got[i], amount = wants[i], amount-wants[i]
			continue
		}
		rest := slices.Sorted(slices.Values(order[k:])) // each of them wants more than there is for each
		for rank, j := range rest {
			if got[j] = amount / n; int64(rank) < amount%n {
				got[j]++
			}
		}
		break
	}
	return got
}

// units are in what a resource is divided: thousandths of a CPU, mebibytes, pods, devices.
func units(name corev1.ResourceName, q resource.Quantity, up bool) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	n, unit := q.Value(), granularity(name)
	if up && n%unit != 0 {
		return n/unit + 1
	}
	return n / unit
}

func ofUnits(name corev1.ResourceName, n int64, like resource.Quantity) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n*granularity(name), format(name, like))
}

// Notify says what becomes of the notice by which a contract is lowered. was is the one before, nil without one, and to what is left to the peer; nil: what
// it has, and an empty list: nothing, by which the contract runs out with what was told. What goes further than was told is told anew, all of it, and what was told before holds until then if its time has come. What goes less far
// holds from the time that was told.
func Notify(was *v1alpha1.Lowering, to corev1.ResourceList, notice time.Duration, now time.Time) *v1alpha1.Lowering {
	switch {
	case to == nil:
		return nil
	case len(to) == 0:
		return was
	}
	is := &v1alpha1.Lowering{Resources: to, From: metav1.NewTime(now.Add(notice + time.Second - 1).Truncate(time.Second))} // no less than was agreed on
	if was == nil {
		return is
	}
	begun := !now.Before(was.From.Time)
	switch further := !within(was.Resources, to); {
	case further && begun:
		is.Until = was.Resources
	case further:
		is.Until = was.Until
	default:
		if is.From = was.From; !begun {
			is.Until = was.Until
		}
	}
	if is.Until != nil { // where it goes less far
		is.Until = atLeast(is.Until, to)
	}
	return is
}

// within reports whether of each resource a list has no more than another one.
func within(a, b corev1.ResourceList) bool {
	for name, q := range a {
		if other := b[name]; other.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// atLeast raises the amounts of a list to those of another one.
func atLeast(list, least corev1.ResourceList) corev1.ResourceList {
	most := maps.Clone(list)
	for name, q := range least {
		if is := most[name]; is.Cmp(q) < 0 {
			most[name] = q
		}
	}
	return most
}

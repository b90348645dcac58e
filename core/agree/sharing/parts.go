package sharing

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api/v1alpha1"
)

// OfferedOn are the resources that go on: a volume, or a device that a scheduler here would choose, is where it is.
var OfferedOn = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}

// EachProvider reports whether peers under the policy see the providers behind this cluster one by one.
func EachProvider(policy *v1alpha1.SharingPolicy) bool {
	return policy != nil && policy.Spec.ReofferAs == v1alpha1.ReofferAsEach && len(policy.Spec.ReofferFrom) > 0
}

// Share is what one peer has by its contract, and by which contracts of this cluster it may go on.
type Share struct {
	Granted corev1.ResourceList
	By      []*v1alpha1.Contract // see Reoffered
}

// Divide says where what these peers have together is, each by itself: the first amounts of every answer are those of this cluster's own nodes, which have
// own at most, the others those of Share.By, in that order. They come to what is granted, never more. Of a resource each place gives the same, as far as it
// has that much: so small places are used as well as large ones. What one grants now is divided once; who comes first in the list has it. What no place has is
// this cluster's to provide, as all of it is.
func Divide(own corev1.ResourceList, shares []Share, now time.Time) [][]corev1.ResourceList {
	left := map[string]corev1.ResourceList{"": own.DeepCopy()} // by contract
	all := make([][]corev1.ResourceList, len(shares))
	for i, share := range shares {
		parts := make([]corev1.ResourceList, len(share.By)+1)
		places := []string{""}
		for _, ctr := range share.By {
			if left[ctr.Spec.ID] == nil {
				left[ctr.Spec.ID] = ctr.Grants(now).DeepCopy()
			}
			places = append(places, ctr.Spec.ID)
		}
		for j := range parts {
			parts[j] = corev1.ResourceList{}
		}
		for name, granted := range share.Granted {
			if !slices.Contains(OfferedOn, name) {
				parts[0][name] = granted.DeepCopy()
				continue
			}
			for j, q := range level(name, granted, places, left) {
				parts[j][name] = q
			}
		}
		all[i] = parts
	}
	return all
}

// level takes an amount from places, the same from each, or all that it has left; the first gives what is not there.
func level(name corev1.ResourceName, amount resource.Quantity, places []string, left map[string]corev1.ResourceList) []resource.Quantity {
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	has := func(i int) int64 { return smallest(name, left[places[i]][name]) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(has(a), has(b)) })
	rest, parts := smallest(name, amount), make([]resource.Quantity, len(places))
	own := amount.DeepCopy()
	for n, i := range order {
		take := min(has(i), rest/int64(len(order)-n))
		if step := granularity(name); take > step {
			take -= take % step
		}
		rest -= take
		parts[i] = *resource.NewQuantity(take, amount.Format)
		if name == corev1.ResourceCPU {
			parts[i] = *resource.NewMilliQuantity(take, amount.Format)
		}
		q := left[places[i]][name].DeepCopy()
		q.Sub(parts[i])
		left[places[i]][name] = q
		if i > 0 {
			own.Sub(parts[i])
		}
	}
	parts[0] = own
	return parts
}

// smallest are the units that an amount is divided in, rounded down: thousandths of a core, else whole ones.
func smallest(name corev1.ResourceName, q resource.Quantity) int64 {
	n, is := q.Value(), resource.NewQuantity(q.Value(), q.Format)
	if name == corev1.ResourceCPU {
		n, is = q.MilliValue(), resource.NewMilliQuantity(q.MilliValue(), q.Format)
	}
	if is.Cmp(q) > 0 {
		n--
	}
	return max(n, 0)
}

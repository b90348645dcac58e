package sharing

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Amounts resolves the policy's amounts against what the nodes can allocate together and, of those of free, what the owner's own pods request of
// that. A share is rounded down, to a thousandth of a CPU, a mebibyte, or a whole of anything else. An absolute amount is never
// more than what can be allocated, when that is known for the resource; of devices that no node has there is nothing. Malformed amounts
// are left out.
func Amounts(policy *v1alpha1.SharingPolicy, there supply.Supply) corev1.ResourceList {
	return resolve(policy.Spec.Amounts, there)
}

func resolve(amounts map[string]v1alpha1.Amount, there supply.Supply) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range amounts {
		r := corev1.ResourceName(name)
		all, known := there.Nodes[r]
		percent, quantity, err := parse(amount)
		switch {
		case err != nil:
		case classMissing(name, there): // whatever it is called: nobody would make its volumes
		case quantity == nil && known:
			if own, used := there.Own[r]; used && ofFree(amount) {
				if all = all.DeepCopy(); all.Cmp(own) < 0 {
					own = all
				}
				all.Sub(own)
			}
			out[r] = share(r, all, percent)
		case !known && (quantity == nil || api.Extended(name)): // a part of nothing
		case known && all.Cmp(*quantity) < 0:
			out[r] = all.DeepCopy()
		default:
			out[r] = *quantity
		}
	}
	return out
}

// classMissing reports whether a resource is storage of a class that is not there.
func classMissing(name string, there supply.Supply) bool {
	class, is := api.StorageClass(name)
	return is && class != "" && there.Classes != nil && !slices.Contains(there.Classes, class)
}

// ofFree reports whether an amount is a share of what is free.
func ofFree(amount v1alpha1.Amount) bool { return strings.HasSuffix(string(amount), api.OfFree) }

// Offered are Amounts for people: no more of the disks than they have room for.
func Offered(policy *v1alpha1.SharingPolicy, there supply.Supply) corev1.ResourceList {
	amounts := Amounts(policy, there)
	for _, name := range []corev1.ResourceName{corev1.ResourceEphemeralStorage, corev1.ResourceStorage} {
		if all, shared := amounts[name]; shared {
			if room := there.RoomFor(name); room != nil && room.Cmp(all) < 0 {
				amounts[name] = *room
			}
		}
	}
	return amounts
}

// Reserve is what the policy keeps free for the owner; all of a resource where what it says of that cannot be meant.
func Reserve(policy *v1alpha1.SharingPolicy, there supply.Supply) corev1.ResourceList {
	return bound(policy.Spec.Reserve, there, there.Nodes)
}

// PerPeer is what the policy lets one peer have at most, of the resources that it bounds so; nothing where that cannot be meant, or is a part of what
// is not known.
func PerPeer(policy *v1alpha1.SharingPolicy, there supply.Supply) corev1.ResourceList {
	return bound(policy.Spec.MaxPerPeer, there, nil)
}

// bound resolves amounts that bound others: what cannot be resolved bounds as far as it can.
func bound(amounts map[string]v1alpha1.Amount, there supply.Supply, most corev1.ResourceList) corev1.ResourceList {
	out := resolve(amounts, there)
	for name := range amounts {
		r := corev1.ResourceName(name)
		if _, resolved := out[r]; !resolved {
			out[r] = most[r].DeepCopy()
		}
	}
	return out
}

// parse gives either a percentage or, when it is not one, a quantity.
func parse(amount v1alpha1.Amount) (percent int64, quantity *resource.Quantity, err error) {
	if digits, ok := strings.CutSuffix(strings.TrimSuffix(string(amount), api.OfFree), "%"); ok {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || n > 100 {
			return 0, nil, fmt.Errorf("%q is not a whole percentage from 0%% to 100%%", amount)
		}
		return int64(n), nil, nil
	}
	q, err := resource.ParseQuantity(string(amount))
	if err != nil || q.Sign() < 0 {
		return 0, nil, fmt.Errorf("%q is not a Kubernetes quantity such as 2, 500m or 4Gi", amount)
	}
	return 0, &q, nil
}

func share(name corev1.ResourceName, all resource.Quantity, percent int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(part(all.MilliValue(), percent), all.Format)
	}
	n := part(all.Value(), percent)
	if step := granularity(name); n > step {
		n -= n % step
	}
	return *resource.NewQuantity(n, format(name, all))
}

// part is computed wide: bytes of a large cluster times a hundred still fit, quantities near MaxInt64 too.
func part(all, percent int64) int64 {
	wide := new(big.Int).Mul(big.NewInt(all), big.NewInt(percent))
	return wide.Div(wide, big.NewInt(100)).Int64()
}

// format writes bytes as people read them, 126426Mi rather than 132570415104; a node's disk comes in plain numbers.
func format(name corev1.ResourceName, q resource.Quantity) resource.Format {
	if granularity(name) > 1 {
		return resource.BinarySI
	}
	return q.Format
}

func granularity(name corev1.ResourceName) int64 {
	switch {
	case api.InBytes(string(name)):
		return 1 << 20
	default:
		return 1
	}
}

package sharing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Grant is what a yes to a request gives: what Offer says of it, in numbers and in words.
func Grant(in OfferInput) v1alpha1.Grant {
	offer, err := Offer(in)
	grant := v1alpha1.Grant{Resources: offer, InForce: in.Has}
	var no *Refusal
	if errors.As(err, &no) {
		grant.Refusal, grant.Summary = no.Reason, "nothing: "+no.Reason
		return grant
	}
	grant.Summary = api.Change(Words(in.Has, offer), Words(offer), Words(in.Asked, offer))
	return grant
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
		parts = append(parts, fmt.Sprintf("asked %s %s, granted %s", name, wanted[name], got[name]))
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

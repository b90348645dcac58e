package sharing

import (
	"iter"
	"maps"
	"slices"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// Prices are those that the policy has for the resources of an offer, or of a contract; nil when all of it is free.
func Prices(policy *v1alpha1.SharingPolicy, resources map[string]string) map[string]string {
	var prices map[string]string
	if policy == nil {
		return nil
	}
	for name := range withTraffic(resources) {
		price, named := policy.Spec.Prices[name]
		if !named || !contract.Priced(name) {
			continue
		}
		if prices == nil {
			prices = map[string]string{}
		}
		prices[name] = string(price)
	}
	return prices
}

// withTraffic are the names of resources, and that of what guests send and receive, of which nothing is granted.
func withTraffic(resources map[string]string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range resources {
			if !yield(name) {
				return
			}
		}
		if _, is := resources[contract.Traffic]; !is {
			yield(contract.Traffic)
		}
	}
}

// checkPrices says what is wrong with the prices of a policy.
func checkPrices(prices map[string]v1alpha1.UnitPrice, bad func(field, value, allowed string)) {
	plain := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		plain[name] = string(prices[name])
		if _, storage := api.StorageClass(name); !storage && name != contract.Traffic && !api.Countable(name) || !contract.Priced(name) {
			bad("spec.prices", name, "the name of a resource that has a price, such as cpu, memory or nvidia.com/gpu")
			return
		}
		if _, err := contract.ParsePrice(plain[name]); err != nil {
			bad("spec.prices."+name, plain[name], "a price such as 0.02 EUR")
			return
		}
	}
	if err := contract.CheckPrices(plain); err != nil {
		bad("spec.prices", "", "in one currency: "+err.Error())
	}
}

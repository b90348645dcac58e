package sharing

import (
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// WithMargin is the policy with the prices that hold for an offer of what contracts of providers grant. Where it has a margin, each price is the
// highest of its own and of theirs with the margin added: which pod runs where is not known when a price is agreed on. from are of those that are
// Reoffered under the policy.
func WithMargin(policy *v1alpha1.SharingPolicy, from []*v1alpha1.Contract) *v1alpha1.SharingPolicy {
	if policy == nil || policy.Spec.Margin == "" {
		return policy
	}
	priced := policy.DeepCopy()
	for _, ctr := range from {
		for name, price := range pricesOf(ctr) {
			more, fits := withMargin(price, policy.Spec.Margin)
			own, err := contract.ParsePrice(string(priced.Spec.Prices[name]))
			if !fits || err == nil && own.Amount.Cmp(more.Amount) >= 0 {
				continue
			}
			if priced.Spec.Prices == nil {
				priced.Spec.Prices = map[string]v1alpha1.UnitPrice{}
			}
			priced.Spec.Prices[name] = v1alpha1.UnitPrice(written(more))
		}
	}
	return priced
}

// pricesOf are the prices of a provider's contract of what is offered on, and of traffic, that are not zero.
func pricesOf(ctr *v1alpha1.Contract) map[string]contract.Price {
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return nil
	}
	prices := map[string]contract.Price{}
	for name, text := range doc.Prices {
		price, err := contract.ParsePrice(text)
		if err == nil && price.Amount.Sign() > 0 && (name == contract.Traffic || slices.Contains(OfferedOn, corev1.ResourceName(name))) {
			prices[name] = price
		}
	}
	return prices
}

// decimals are those of a price.
const decimals = 9

// withMargin adds a margin to a price, in whole billionths, rounded up. It reports whether that is a price yet: they have twelve digits before the point.
func withMargin(price contract.Price, margin string) (more contract.Price, fits bool) {
	percent, ok := api.ParseMargin(margin)
	if !ok {
		return price, false
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(decimals), nil)
	billionths := new(big.Rat).Mul(price.Amount, new(big.Rat).SetInt(unit))
	billionths.Mul(billionths, new(big.Rat).Add(big.NewRat(1, 1), new(big.Rat).Quo(percent, big.NewRat(100, 1))))
	whole, rest := new(big.Int).QuoRem(billionths.Num(), billionths.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	more = contract.Price{Amount: new(big.Rat).SetFrac(whole, unit), Currency: price.Currency}
	_, err := contract.ParsePrice(written(more))
	return more, err == nil
}

// written is a price as it stands in a policy.
func written(p contract.Price) string {
	amount := p.Amount.FloatString(decimals)
	return strings.TrimSuffix(strings.TrimRight(amount, "0"), ".") + " " + p.Currency
}

// payable parts contracts by whether their prices can be those of an offer under the policy with its margin: all are in the currency of the policy's
// own prices, or, where it has none, of the first that has some.
func payable(policy *v1alpha1.SharingPolicy, from []*v1alpha1.Contract) (are, not []*v1alpha1.Contract) {
	if policy.Spec.Margin == "" {
		return from, nil
	}
	currency := ""
	for _, text := range policy.Spec.Prices {
		if price, err := contract.ParsePrice(string(text)); err == nil {
			currency = price.Currency
		}
	}
	for _, ctr := range from {
		fit, in := true, currency
		for _, price := range pricesOf(ctr) { // of one currency, as in every contract
			_, fits := withMargin(price, policy.Spec.Margin)
			fit, in = fit && fits && (currency == "" || currency == price.Currency), price.Currency
		}
		if !fit {
			not = append(not, ctr)
			continue
		}
		are, currency = append(are, ctr), in
	}
	return are, not
}

package consumer

import (
	"math/big"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// millionths of a currency are what labels count in: whole numbers, which the largest price there is does not make too large for 64 bits.
var millionths = big.NewRat(1e6, 1)

// priceLabels tell the scheduler what was signed about prices. A price of less than a millionth counts as one: nothing but what is free is free.
func priceLabels(ctr *v1alpha1.Contract) map[string]string {
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return nil
	}
	labels := map[string]string{}
	for name, text := range doc.Prices {
		key := v1alpha1.LabelPrice + strings.ReplaceAll(name, "/", ".")
		price, err := contract.ParsePrice(text)
		if err != nil || price.Amount.Sign() == 0 || len(validation.IsQualifiedName(key)) > 0 { // a name that is too long
			continue
		}
		count := new(big.Rat).Mul(price.Amount, millionths)
		whole, rest := new(big.Int).QuoRem(count.Num(), count.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		labels[key], labels[v1alpha1.LabelPriceCurrency] = whole.String(), price.Currency
	}
	return labels
}

package api

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// written is a price as people write it, with or without a space before the currency.
var written = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([A-Za-z]{1,16})$`)

// price is a price as it is kept, and as it stands in contracts.
var price = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,9})? [A-Za-z]{1,16}$`)

// maxPrices is how many a policy has at most.
const maxPrices = 32

// Traffic is the name of the price of what guests send and receive by the tunnel, for each GB.
const Traffic = "network"

// priced reports whether a resource can have a price: pods have none, for what they hold has.
func priced(name string) bool {
	_, storage := StorageClass(name)
	return storage || name == GPU || name == Traffic || Countable(name) && name != Pods && !hugePages.MatchString(name)
}

// ReadPrice reads a price as people write it, "0.02EUR", and gives it as it is kept, "0.02 EUR". Zero, with a currency or without, is "": no price.
// The error is an *Error with CodeInvalid that names field.
func ReadPrice(field, text string) (string, error) {
	if strings.Trim(text, "0.") == "" && text != "" && text != "." {
		return "", nil
	}
	m := written.FindStringSubmatch(text)
	if m == nil {
		return "", Invalid(field, text, "a price for one unit and hour, such as 0.02EUR, or 0")
	}
	if strings.Trim(m[1], "0.") == "" {
		return "", nil
	}
	return m[1] + " " + m[2], nil
}

// CheckPrices says whether every name and price is well formed, and all are in one currency. The error is an *Error with CodeInvalid.
func CheckPrices(field string, prices map[string]string) error {
	first, currency := "", ""
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		if !priced(name) {
			return Invalid(field, name, "the name of a resource that has a price, such as cpu, memory or nvidia.com/gpu: pods have none")
		}
		if !price.MatchString(prices[name]) {
			return Invalid(field+"."+name, prices[name], "a price such as 0.02 EUR")
		}
		_, unit, _ := strings.Cut(prices[name], " ")
		if first == "" {
			first, currency = name, unit
		}
		if unit != currency {
			return Invalid(field+"."+name, prices[name], fmt.Sprintf("in %s, as the price of %s is", currency, first))
		}
	}
	if len(prices) > maxPrices {
		return Invalid(field, fmt.Sprintf("%d prices", len(prices)), fmt.Sprintf("at most %d", maxPrices))
	}
	return nil
}

// PricesInWords are prices for people: "cpu 0.02 EUR, memory 0.005 EUR"; "" of none.
func PricesInWords(prices map[string]string) string { return Resources(prices).String() }

// pricesSince says which prices are otherwise than they were.
func pricesSince(was, is map[string]string) (parts []string) {
	all := Resources{}
	maps.Copy(all, was)
	maps.Copy(all, is)
	for _, name := range all.Names() {
		if before, now := cmp.Or(was[name], "nothing"), cmp.Or(is[name], "nothing"); before != now {
			parts = append(parts, fmt.Sprintf("%s costs %s → %s", Called(name), before, now))
		}
	}
	return parts
}

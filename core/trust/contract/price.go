package contract

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Price is what one unit of a resource costs for one hour. A unit is a core of cpu, a GiB (2^30 bytes) of memory or storage, one device.
type Price struct {
	Amount   *big.Rat // a decimal number, exactly: of at most 12 digits before the point and 9 behind it
	Currency string   // a code of ISO 4217 ("EUR"), or any unit of account that the two know ("credits")
}

var price = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,9})?) ([A-Za-z]{1,16})$`)

// Traffic is the name by which a price is for what guests send and receive by the tunnel, for each GB (10^9 bytes) and not for hours. Nothing of it is
// granted: it is counted where it has a price.
const Traffic = "network"

// ParsePrice reads a price as it stands in terms, "0.02 EUR".
func ParsePrice(text string) (Price, error) {
	m := price.FindStringSubmatch(text)
	if m == nil {
		return Price{}, fmt.Errorf("%.40q is not a price such as \"0.02 EUR\"", text)
	}
	amount, _ := new(big.Rat).SetString(m[1]) // a decimal number, by the pattern
	return Price{Amount: amount, Currency: m[2]}, nil
}

// CheckPrices checks names and prices; none at all is fine. All are in one currency, so that there is a sum of what they come to.
func CheckPrices(prices map[string]string) error {
	if len(prices) > MaxResources {
		return fmt.Errorf("prices: %d entries, at most %d are allowed", len(prices), MaxResources)
	}
	first, currency := "", ""
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		if err := CheckQualified(name); err != nil {
			return fmt.Errorf("prices: %w", err)
		}
		p, err := ParsePrice(prices[name])
		switch {
		case err != nil:
			return fmt.Errorf("prices: %s: %w", name, err)
		case first == "":
			first, currency = name, p.Currency
		case p.Currency != currency:
			return fmt.Errorf("prices: %s is in %s and %s in %s, and they must be in one currency", first, currency, name, p.Currency)
		}
	}
	return nil
}

// Unit is what a price of the resource is for, in words: "core", "GiB"; "" of devices, which are counted.
func Unit(resource string) string {
	switch resource {
	case "cpu":
		return "core"
	case "memory", "storage", "ephemeral-storage":
		return "GiB"
	case Traffic:
		return "GB"
	}
	if strings.HasSuffix(resource, ".storageclass.storage.k8s.io/requests.storage") { // storage of one class, as a ResourceQuota names it
		return "GiB"
	}
	return ""
}

// Priced reports whether a resource can have a price: pods have none, for what they hold has.
func Priced(resource string) bool {
	return resource != "pods" && !strings.HasPrefix(resource, "hugepages-")
}

// PerHour says a price, of traffic without an hour, in words: "0.02 EUR an hour for each core".
func PerHour(resource, price string) string {
	if resource == Traffic {
		return price + " for each " + Unit(resource)
	}
	if unit := Unit(resource); unit != "" {
		return price + " an hour for each " + unit
	}
	return price + " an hour for each"
}

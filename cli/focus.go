package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// focusLine is what one resource comes to in one receipt.
type focusLine struct {
	receiptRow
	resource string
}

// focusLines has a line for each resource of closed receipts that was used, pods left out: they are no quantity that is billed.
func focusLines(rows []receiptRow) (lines []focusLine) {
	for _, row := range rows {
		if row.Sequence == 0 { // not signed yet
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(row.Used)) {
			if contract.Priced(name) {
				lines = append(lines, focusLine{row, name})
			}
		}
	}
	return lines
}

// unit is what the quantities of a resource are counted in, as FOCUS writes units.
func (l focusLine) unit() string {
	switch contract.Unit(l.resource) {
	case "core":
		return "Core-Hours"
	case "GiB":
		return "GiB-Hours"
	case "GB":
		return "GB"
	}
	return "Unit-Hours"
}

func (l focusLine) quantity() string {
	n, err := receipt.Hours(l.resource, l.Used[l.resource])
	if err != nil {
		return "0"
	}
	return shortened(n.FloatString(9))
}

func (l focusLine) cost() string { return cmp.Or(l.Due[l.resource], "0") }

func (l focusLine) unitPrice() string {
	p, err := contract.ParsePrice(l.Prices[l.resource])
	if err != nil {
		return "0"
	}
	return shortened(p.Amount.FloatString(9))
}

// noCurrency is what ISO 4217 has where no currency is involved.
const noCurrency = "XXX"

// currency is that of the bill, which FOCUS wants to be a code of ISO 4217: what is free is in none, and so are units of account that only the two know.
func (l focusLine) currency() string {
	if isCurrency(l.Currency) {
		return l.Currency
	}
	return noCurrency
}

// currencies are the codes of ISO 4217, as of 2026.
const currencies = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC " +
	"CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW " +
	"KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG " +
	"QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES " +
	"VND VUV WST XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG"

func isCurrency(code string) bool {
	return len(code) == 3 && slices.Contains(strings.Fields(currencies), code)
}

// month is the billing period: a month of UTC.
func (l focusLine) month() time.Time {
	t := l.From.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// focusColumns are columns of FOCUS 1.2, in the order of its text, and Kith's own. me is this laptop: the provider of what others used here.
func focusColumns(me api.Status) []screen.Column[focusLine] {
	moment := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	column := func(title string, cell func(focusLine) string) screen.Column[focusLine] {
		return screen.Column[focusLine]{Title: title, Cell: cell}
	}
	same := func(title, text string) screen.Column[focusLine] {
		return column(title, func(focusLine) string { return text })
	}
	side := func(here bool) func(focusLine) (name, id string) {
		return func(l focusLine) (string, string) {
			if here == (l.Direction == api.Incoming) {
				return me.Name, me.ID
			}
			return l.Peer, l.PeerID
		}
	}
	name := func(of func(focusLine) (string, string)) func(focusLine) string {
		return func(l focusLine) string { name, _ := of(l); return name }
	}
	id := func(of func(focusLine) (string, string)) func(focusLine) string {
		return func(l focusLine) string { _, id := of(l); return id }
	}
	consumed := func(of func(focusLine) string) func(focusLine) string { // null for what nobody used
		return func(l focusLine) string {
			if l.part == partUnused {
				return ""
			}
			return of(l)
		}
	}
	provider, consumer := side(true), side(false)
	return []screen.Column[focusLine]{
		column("BilledCost", focusLine.cost),
		column("BillingAccountId", id(consumer)),
		column("BillingAccountName", name(consumer)),
		column("BillingCurrency", focusLine.currency),
		column("BillingPeriodEnd", func(l focusLine) string { return moment(l.month().AddDate(0, 1, 0)) }),
		column("BillingPeriodStart", func(l focusLine) string { return moment(l.month()) }),
		column("CapacityReservationId", func(l focusLine) string { return l.Contract }),
		column("CapacityReservationStatus", func(l focusLine) string {
			if l.part == partUnused {
				return "Unused"
			}
			return "Used"
		}),
		same("ChargeCategory", "Usage"),
		same("ChargeClass", ""),
		column("ChargeDescription", func(l focusLine) string {
			if l.part == partUnused {
				return fmt.Sprintf("%s that the contract reserved at %s, and no pod requested", l.resource, name(provider)(l))
			}
			if l.resource == contract.Traffic {
				return fmt.Sprintf("traffic between pods of %s at %s and their home", name(consumer)(l), name(provider)(l))
			}
			return fmt.Sprintf("%s that pods of %s requested at %s", l.resource, name(consumer)(l), name(provider)(l))
		}),
		same("ChargeFrequency", "Usage-Based"),
		column("ChargePeriodEnd", func(l focusLine) string { return moment(l.To) }),
		column("ChargePeriodStart", func(l focusLine) string { return moment(l.From) }),
		column("ConsumedQuantity", consumed(focusLine.quantity)),
		column("ConsumedUnit", consumed(focusLine.unit)),
		column("ContractedCost", focusLine.cost),
		column("ContractedUnitPrice", focusLine.unitPrice),
		column("EffectiveCost", focusLine.cost),
		column("InvoiceIssuerName", name(provider)),
		column("ListCost", focusLine.cost),
		column("ListUnitPrice", focusLine.unitPrice),
		same("PricingCategory", "Standard"),
		column("PricingQuantity", focusLine.quantity),
		column("PricingUnit", focusLine.unit),
		column("ProviderName", name(provider)),
		column("PublisherName", name(provider)),
		column("ResourceId", func(l focusLine) string { return l.Contract + "/" + l.resource }),
		same("ResourceName", ""), // it has no other than its ID
		column("ResourceType", func(l focusLine) string { return l.resource }),
		column("ServiceCategory", func(l focusLine) string {
			if _, storage := api.StorageClass(l.resource); storage {
				return "Storage"
			}
			if l.resource == contract.Traffic {
				return "Networking"
			}
			return "Compute"
		}),
		same("ServiceName", "Kith"),
		column("SubAccountId", func(l focusLine) string { return l.Contract }),
		column("SubAccountName", func(l focusLine) string { return "contract " + l.Contract }),
		column("x_KithCurrency", func(l focusLine) string { return l.Currency }),
		column("x_KithNamespace", func(l focusLine) string { return l.namespace }),
		column("x_KithDirection", func(l focusLine) string { return string(l.Direction) }),
		column("x_KithProviderId", id(provider)),
		column("x_KithReceipt", func(l focusLine) string { return fmt.Sprint(l.Sequence) }),
		column("x_KithAnswer", func(l focusLine) string { return string(l.Verdict) }),
	}
}

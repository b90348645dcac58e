package cli

import (
	"bytes"
	"encoding/csv"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
)

// What FOCUS 1.2 asks of a column, where Kith has it: the normative requirements and content constraints of the column's page in the specification,
// https://focus.finops.org/focus-specification/v1-2/, and of the attributes (formats) that it refers to. Every line Kith writes is of ChargeCategory
// "Usage" and no correction, so what the pages say of other charges is left out.
type focusRule struct {
	mandatory bool // feature level Mandatory, or Conditional on what Kith has: unit prices, usage, capacity reservations, sub accounts
	nulls     bool // NullHandling: what has no value is null, which in CSV is nothing at all
	values    []string
	form      *regexp.Regexp
}

var (
	// DateTimeFormat: ISO 8601 in UTC, with a Z.
	focusMoment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
	// NumericFormat: digits with a point, no separators, no units; costs and prices of use are not below nothing.
	focusDecimal = regexp.MustCompile(`^\d+(\.\d+)?$`)
	// CurrencyFormat: a code of ISO 4217, three letters.
	focusCurrency = regexp.MustCompile(`^[A-Z]{3}$`)
	// UnitFormat: a unit of data, or a unit in the singular and a unit of time in the plural: GB, GiB-Hours.
	focusUnit = regexp.MustCompile(`^((Core|GiB|Unit)-Hours|GB)$`)
	focusAny  = regexp.MustCompile(`\S`)
)

var focusRules = map[string]focusRule{
	"BilledCost":                {mandatory: true, form: focusDecimal},
	"BillingAccountId":          {mandatory: true, form: focusAny},
	"BillingAccountName":        {mandatory: true, nulls: true, form: focusAny},
	"BillingCurrency":           {mandatory: true, form: focusCurrency}, // MUST NOT be null, MUST be a national currency
	"BillingPeriodEnd":          {mandatory: true, form: focusMoment},
	"BillingPeriodStart":        {mandatory: true, form: focusMoment},
	"CapacityReservationId":     {mandatory: true, nulls: true, form: focusAny}, // MUST NOT be null for the unused portion of a reservation
	"CapacityReservationStatus": {mandatory: true, nulls: true, values: []string{"Used", "Unused"}},
	"ChargeCategory":            {mandatory: true, values: []string{"Usage", "Purchase", "Tax", "Credit", "Adjustment"}},
	"ChargeClass":               {mandatory: true, nulls: true, values: []string{"Correction"}}, // MUST be null when it is none
	"ChargeDescription":         {mandatory: true, nulls: true, form: focusAny},
	"ChargeFrequency":           {values: []string{"One-Time", "Recurring", "Usage-Based"}}, // Recommended
	"ChargePeriodEnd":           {mandatory: true, form: focusMoment},                       // exclusive
	"ChargePeriodStart":         {mandatory: true, form: focusMoment},                       // inclusive
	"ConsumedQuantity":          {mandatory: true, nulls: true, form: focusDecimal},         // MUST be null for the unused portion of a reservation alone
	"ConsumedUnit":              {mandatory: true, nulls: true, form: focusUnit},
	"ContractedCost":            {mandatory: true, form: focusDecimal},
	"ContractedUnitPrice":       {mandatory: true, form: focusDecimal},
	"EffectiveCost":             {mandatory: true, form: focusDecimal},
	"InvoiceIssuerName":         {mandatory: true, form: focusAny},
	"ListCost":                  {mandatory: true, form: focusDecimal},
	"ListUnitPrice":             {mandatory: true, form: focusDecimal},
	"PricingCategory":           {mandatory: true, values: []string{"Standard", "Dynamic", "Committed", "Other"}},
	"PricingQuantity":           {mandatory: true, form: focusDecimal},
	"PricingUnit":               {mandatory: true, form: focusUnit},
	"ProviderName":              {mandatory: true, form: focusAny},
	"PublisherName":             {mandatory: true, form: focusAny},
	"ResourceId":                {mandatory: true, nulls: true, form: focusAny},
	"ResourceName":              {mandatory: true, nulls: true, form: focusAny}, // MUST NOT be the ID again
	"ResourceType":              {mandatory: true, nulls: true, form: focusAny},
	"ServiceCategory": {mandatory: true, values: []string{
		"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things",
		"Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security", "Storage", "Web", "Other",
	}},
	"ServiceName":    {mandatory: true, form: focusAny},
	"SubAccountId":   {mandatory: true, nulls: true, form: focusAny},
	"SubAccountName": {mandatory: true, nulls: true, form: focusAny},
}

// focusFaults are what of the rules a file breaks.
func focusFaults(t *testing.T, file []byte) (faults []string) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	fault := func(column, value, why string) { faults = append(faults, column+" "+why+": "+value) }
	titles := rows[0]
	for i, title := range titles {
		if slices.Index(titles, title) != i {
			fault(title, "", "is there twice")
		}
		// ColumnHandling: columns of others begin with x_, in Pascal case without special characters.
		if _, known := focusRules[title]; !known && !regexp.MustCompile(`^x_[A-Z][A-Za-z0-9]*$`).MatchString(title) {
			fault(title, "", "is no column of FOCUS")
		}
	}
	for title, rule := range focusRules {
		if rule.mandatory && !slices.Contains(titles, title) {
			fault(title, "", "is missing")
		}
	}
	for _, row := range rows[1:] {
		cell := map[string]string{}
		for i, title := range titles {
			cell[title] = row[i]
			rule, value := focusRules[title], row[i]
			switch {
			case strings.EqualFold(value, "null") || value != "" && strings.TrimSpace(value) == "":
				fault(title, value, "is a placeholder")
			case value == "" && !rule.nulls && !strings.HasPrefix(title, "x_"):
				fault(title, value, "must not be null")
			case value == "":
			case rule.values != nil && !slices.Contains(rule.values, value):
				fault(title, value, "is not among the allowed values")
			case rule.form != nil && !rule.form.MatchString(value):
				fault(title, value, "has another format")
			}
		}
		if !isCurrency(cell["BillingCurrency"]) {
			fault("BillingCurrency", cell["BillingCurrency"], "is no code of ISO 4217")
		}
		when := func(title string) time.Time {
			at, err := time.Parse(time.RFC3339, cell[title])
			if err != nil {
				fault(title, cell[title], "is no moment")
			}
			return at
		}
		// ends are exclusive, so a period has a length, and a charge is of the billing period in which it begins
		if !when("ChargePeriodStart").Before(when("ChargePeriodEnd")) || !when("BillingPeriodStart").Before(when("BillingPeriodEnd")) {
			fault("ChargePeriodEnd", cell["ChargePeriodEnd"], "is not after its start")
		}
		if start := when("ChargePeriodStart"); start.Before(when("BillingPeriodStart")) || !start.Before(when("BillingPeriodEnd")) {
			fault("ChargePeriodStart", cell["ChargePeriodStart"], "is not in the billing period")
		}
		if (cell["CapacityReservationId"] == "") != (cell["CapacityReservationStatus"] == "") {
			fault("CapacityReservationStatus", cell["CapacityReservationStatus"], "is there without a reservation, or is not there with one")
		}
		if (cell["ResourceId"] == "") != (cell["ResourceType"] == "") {
			fault("ResourceType", cell["ResourceType"], "is there without a resource, or is not there with one")
		}
		if cell["ResourceName"] != "" && cell["ResourceName"] == cell["ResourceId"] {
			fault("ResourceName", cell["ResourceName"], "is the ID again")
		}
		if cell["SubAccountName"] != "" && cell["SubAccountId"] == "" {
			fault("SubAccountName", cell["SubAccountName"], "is there without an ID")
		}
		for _, title := range []string{"ConsumedQuantity", "ConsumedUnit"} {
			if (cell[title] == "") != (cell["CapacityReservationStatus"] == "Unused") {
				fault(title, cell[title], "is there though nothing was consumed, or is not there")
			}
		}
		// "the product of PricingQuantity and a unit price MUST match the corresponding cost metric", to the billionths that are dropped
		number := func(title string) *big.Rat {
			n, ok := new(big.Rat).SetString(cell[title])
			if !ok {
				return new(big.Rat)
			}
			return n
		}
		for price, cost := range map[string]string{"ContractedUnitPrice": "ContractedCost", "ListUnitPrice": "ListCost"} {
			slack := new(big.Rat).Mul(new(big.Rat).Add(number(price), big.NewRat(2, 1)), big.NewRat(1, 1_000_000_000))
			off := new(big.Rat).Sub(new(big.Rat).Mul(number("PricingQuantity"), number(price)), number(cost))
			if off.Abs(off).Cmp(slack) > 0 {
				fault(cost, cell[cost], "is not quantity times price")
			}
		}
	}
	return faults
}

// Every line of the bill holds to the rules, also what is free, in a unit of account that is no currency, split by namespace, or reserved and unused.
func TestWhatIsWrittenIsFOCUS(t *testing.T) {
	from := time.Date(2026, 11, 30, 23, 0, 0, 0, time.FixedZone("west", -3*3600))
	receipt := func(currency string, direction api.Direction, used map[string]string) receiptRow {
		r := receiptRow{Contract: "abcdefgh12345678", Peer: "bob", PeerID: "BOB", Direction: direction, Receipt: api.Receipt{
			Sequence: 7, From: from, To: from.Add(time.Hour), Used: used, Reserved: map[string]string{"cpu": "14400000", "pods": "72000"}, Verdict: api.ReceiptAgreed, Total: "0",
		}}
		if currency != "" {
			r.Currency, r.Prices, r.Due, r.Total = currency, map[string]string{"cpu": "0.3333 " + currency}, map[string]string{"cpu": "0.11110"}, "0.1111"
			r.Shares = api.List[api.ReceiptShare]{
				{Namespace: "shop", Used: map[string]string{"cpu": "400000"}, Due: map[string]string{"cpu": "0.037033334"}, Total: "0.037033334"},
				{Used: map[string]string{"cpu": "800000"}, Due: map[string]string{"cpu": "0.074066666"}, Total: "0.074066666"},
			}
		}
		return r
	}
	used := map[string]string{"cpu": "1200000", "memory": "7730941132800", "storage": "3865470566400", "nvidia.com/gpu": "1800", "pods": "3600", "network": "1500000000"}
	rows := []receiptRow{receipt("EUR", api.Outgoing, used), receipt("EUR", api.Incoming, used), receipt("", api.Incoming, used), receipt("credits", api.Outgoing, used), receipt("eur", api.Outgoing, used)}
	columns := focusColumns(api.Status{Name: "alice", ID: "ALICE"})
	for name, rows := range map[string][]receiptRow{"whole": rows, "by namespace": byNamespaces(rows), "nothing": nil} {
		var file bytes.Buffer
		if err := writeCSV(&file, columns, focusLines(rows)); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(file.String(), "\n"); n < 2 && rows != nil {
			t.Errorf("%s: %d lines", name, n)
		}
		for _, fault := range focusFaults(t, file.Bytes()) {
			t.Errorf("%s: %s", name, fault)
		}
		if name == "whole" && (!strings.Contains(file.String(), ",credits,") || !strings.Contains(file.String(), ",XXX,")) {
			t.Errorf("what is no currency:\n%s", file.String())
		}
	}
	// Nothing of that would be found if it were not looked for.
	var good bytes.Buffer
	if err := writeCSV(&good, columns, focusLines(rows[:1])); err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		"BilledCost,": "billed_cost,", ",Usage-Based,": ",Hourly,", "T02:00:00Z": " 02:00:00", ",EUR,": ",Euro,", "0.3333": "1.3333", ",Standard,": ",,", ",Core-Hours,": ",Cores,",
		",abcdefgh12345678/cpu,,cpu,": ",abcdefgh12345678/cpu,,,", ",abcdefgh12345678/memory,,": ",abcdefgh12345678/memory,abcdefgh12345678/memory,", ",Compute,": ",Computers,",
		",Used,": ",,", ",2026-12-01T03:00:00Z,": ",2026-12-01T01:00:00Z,", ",Usage,,": ",Usage,null,",
	} {
		if bad := strings.ReplaceAll(good.String(), was, is); len(focusFaults(t, []byte(bad))) == 0 {
			t.Errorf("%q in place of %q is taken:\n%s", is, was, bad)
		}
	}
}

package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	// Version and AnswerVersion are what the documents call themselves, and Version2 receipts of traffic, which readers of the first would take for
	// a device.
	Version       = "kith.dev/receipt/v1"
	Version2      = "kith.dev/receipt/v2"
	AnswerVersion = "kith.dev/receipt-answer/v1"
	// MaxDocument bounds a receipt or an answer, in bytes: 32 resources of long names, five times.
	MaxDocument = 32 << 10
	// maxSequence keeps the number exact in JSON (RFC 8785): hours for a quarter of a million years.
	maxSequence = 1 << 31
)

// Sums are amounts of resources multiplied with the seconds that they were held, as decimal integers: thousandths of a core times seconds of cpu,
// bytes times seconds of memory and storage, numbers times seconds of all else; bytes of traffic. They are exact, and as large as need be.
type Sums map[string]string

// Receipt is what was held under a contract in an interval. Times have whole seconds, in UTC.
type Receipt struct {
	Version  string      `json:"version"`
	Contract string      `json:"contract"` // its ID
	Revision int64       `json:"revision"` // of the contract, whose prices hold
	Sequence int64       `json:"sequence"` // from 1, without gaps
	Consumer identity.ID `json:"consumer"`
	Provider identity.ID `json:"provider"`
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	// Reserved is what the contract grants, for as long as it was in force and the provider awake; Used is what pods and claims requested of it.
	Reserved Sums `json:"reserved"`
	Used     Sums `json:"used"`
	// Prices are those of the contract. Due is what Used comes to by them, see Due, and Total the sum, in Currency; "" when all is free.
	Prices   map[string]string `json:"prices,omitempty"`
	Due      map[string]string `json:"due,omitempty"`
	Total    string            `json:"total"`
	Currency string            `json:"currency,omitempty"`
	// Previous is the SHA-256 of the document of the receipt before, in hexadecimal; "" of the first.
	Previous string `json:"previous,omitempty"`
	// Last says that the contract ended, and no receipt follows.
	Last bool `json:"last,omitempty"`
}

// Verdict is what a consumer says to a receipt.
type Verdict string

// The verdicts.
const (
	Agreed   Verdict = "agreed"   // it is what the consumer counted, as nearly as two clocks are the same
	Disputed Verdict = "disputed" // the consumer counted less; both keep its word
)

// Answer is what the consumer says to a receipt. An agreed one is its countersignature.
type Answer struct {
	Version  string  `json:"version"`
	Contract string  `json:"contract"`
	Sequence int64   `json:"sequence"`
	Receipt  string  `json:"receipt"` // SHA-256 of the receipt's document, in hexadecimal
	Verdict  Verdict `json:"verdict"`
	Used     Sums    `json:"used,omitempty"` // what the consumer counted, of a dispute
}

// Signed is a document, signed by its author: the provider of a receipt, the consumer of an answer.
type Signed canonical.Signed

// Hash names a document in those that refer to it.
func (s Signed) Hash() string {
	sum := sha256.Sum256(s.Document)
	return hex.EncodeToString(sum[:])
}

var (
	integer = regexp.MustCompile(`^(0|[1-9][0-9]{0,39})$`)
	decimal = regexp.MustCompile(`^[0-9]{1,60}(\.[0-9]{1,9})?$`)
	hash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Validate says what in the receipt cannot be meant. What is due must be what follows from use and prices.
func (r Receipt) Validate() error {
	switch want := r.wants(); r.Version {
	case want:
	case Version, Version2:
		return fmt.Errorf("version %s, and what it says is of %s", r.Version, want)
	default:
		return fmt.Errorf("version %.64q, this Kith reads %s and %s", r.Version, Version, Version2)
	}
	if err := contract.CheckID(r.Contract); err != nil {
		return err
	}
	switch {
	case r.Revision < 1 || r.Revision > maxSequence:
		return fmt.Errorf("revision %d, want 1 to %d", r.Revision, maxSequence)
	case r.Sequence < 1 || r.Sequence > maxSequence:
		return fmt.Errorf("sequence %d, want 1 to %d", r.Sequence, maxSequence)
	case r.Consumer == r.Provider:
		return errors.New("consumer and provider are the same cluster")
	case r.From.Year() < 2000 || r.To.Year() > 9999:
		return errors.New("its years cannot be meant")
	case r.To.Before(r.From):
		return errors.New("it ends before it begins")
	case (r.Sequence == 1) != (r.Previous == "") || r.Previous != "" && !hash.MatchString(r.Previous):
		return fmt.Errorf("previous: %.64q is not the SHA-256 of the receipt before", r.Previous)
	}
	for name, sums := range map[string]Sums{"reserved": r.Reserved, "used": r.Used} {
		if err := sums.check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := contract.CheckPrices(r.Prices); err != nil {
		return err
	}
	due, total, currency, err := Due(r.Used, r.Prices)
	if err != nil {
		return err
	}
	if !maps.Equal(due, r.Due) || total != r.Total || currency != r.Currency {
		return fmt.Errorf("what is due, %.64s %.16s, does not follow from use and prices, by which it is %s %s", r.Total, r.Currency, total, currency)
	}
	return nil
}

// wants is the version of a receipt that says this: one content has one form.
func (r Receipt) wants() string {
	_, priced := r.Prices[contract.Traffic]
	_, used := r.Used[contract.Traffic]
	_, reserved := r.Reserved[contract.Traffic]
	if priced || used || reserved {
		return Version2
	}
	return Version
}

func (s Sums) check() error {
	if len(s) > contract.MaxResources {
		return fmt.Errorf("%d entries, at most %d are allowed", len(s), contract.MaxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if err := contract.CheckQualified(name); err != nil {
			return err
		}
		if !integer.MatchString(s[name]) {
			return fmt.Errorf("%s: %.48q is not a whole number", name, s[name])
		}
	}
	return nil
}

// Validate says what in the answer cannot be meant.
func (a Answer) Validate() error {
	if a.Version != AnswerVersion {
		return fmt.Errorf("version %.64q, this Kith reads %s", a.Version, AnswerVersion)
	}
	if err := contract.CheckID(a.Contract); err != nil {
		return err
	}
	switch {
	case a.Sequence < 1 || a.Sequence > maxSequence:
		return fmt.Errorf("sequence %d, want 1 to %d", a.Sequence, maxSequence)
	case !hash.MatchString(a.Receipt):
		return fmt.Errorf("receipt: %.64q is not a SHA-256", a.Receipt)
	case a.Verdict != Agreed && a.Verdict != Disputed:
		return fmt.Errorf("verdict: %.32q is neither %s nor %s", a.Verdict, Agreed, Disputed)
	}
	if err := a.Used.check(); err != nil {
		return fmt.Errorf("used: %w", err)
	}
	return nil
}

// perHour is how many of the sums' units one unit of a price makes in an hour; of traffic, at all.
func perHour(resource string) *big.Int {
	one := int64(1)
	switch contract.Unit(resource) {
	case "GB": // by no time
		return big.NewInt(1_000_000_000)
	case "core":
		one = 1000
	case "GiB":
		one = 1 << 30
	}
	return big.NewInt(one * 3600)
}

// Hours is a sum in the units of prices, exactly: hours of cores, of GiB, of devices; GB of traffic.
func Hours(resource, sum string) (*big.Rat, error) {
	n, ok := new(big.Int).SetString(sum, 10)
	if !ok || !integer.MatchString(sum) {
		return nil, fmt.Errorf("%s: %.48q is not a whole number", resource, sum)
	}
	return new(big.Rat).SetFrac(n, perHour(resource)), nil
}

// places is how many digits of an amount of money stand behind the point. What is less is dropped, for each resource: nobody pays what was not used.
const places = 9

// Due is what use comes to by prices: per resource that has one, in all, and in which currency. Total is "0" when all is free.
func Due(used Sums, prices map[string]string) (due map[string]string, total, currency string, err error) {
	sum := new(big.Int)
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		price, err := contract.ParsePrice(prices[name])
		if err != nil {
			return nil, "", "", err
		}
		currency = price.Currency
		hours := new(big.Rat)
		if held, some := used[name]; some {
			if hours, err = Hours(name, held); err != nil {
				return nil, "", "", err
			}
		}
		amount := hours.Mul(hours, price.Amount)
		amount.Mul(amount, new(big.Rat).SetInt(scale))
		whole := new(big.Int).Quo(amount.Num(), amount.Denom())
		if due == nil {
			due = map[string]string{}
		}
		due[name] = Money(whole)
		sum.Add(sum, whole)
	}
	return due, Money(sum), currency, nil
}

// Billionths reads an amount of money.
func Billionths(amount string) (*big.Int, error) {
	n, ok := new(big.Rat).SetString(amount)
	if !ok || !decimal.MatchString(amount) {
		return nil, fmt.Errorf("%.64q is not an amount of money", amount)
	}
	n.Mul(n, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)))
	return n.Num(), nil
}

// Money writes billionths as a decimal number without zeros at its end.
func Money(billionths *big.Int) string {
	text := new(big.Rat).SetFrac(billionths, new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)).FloatString(places)
	return string(bytes.TrimRight(bytes.TrimRight([]byte(text), "0"), "."))
}

// write gives the one form of a Receipt or an Answer.
func write(d canonical.Document) ([]byte, error) { return canonical.Write(d, MaxDocument) }

var (
	types        = &wire.Types{Fold: true}
	receiptShape = types.Of(reflect.TypeFor[Receipt]())
	answerShape  = types.Of(reflect.TypeFor[Answer]())
)

// Parse reads a receipt.
func Parse(doc []byte) (Receipt, error) {
	r, err := canonical.Read[Receipt](doc, receiptShape, MaxDocument)
	if err != nil {
		return r, fmt.Errorf("receipt: %w", err)
	}
	return r, nil
}

// ParseAnswer reads an answer.
func ParseAnswer(doc []byte) (Answer, error) {
	a, err := canonical.Read[Answer](doc, answerShape, MaxDocument)
	if err != nil {
		return a, fmt.Errorf("answer to a receipt: %w", err)
	}
	return a, nil
}

// Sign writes a receipt down as its provider.
func Sign(r Receipt, provider *identity.Identity) (Signed, error) {
	r.From, r.To = r.From.UTC().Truncate(time.Second), r.To.UTC().Truncate(time.Second)
	if r.Provider != provider.ID() {
		return Signed{}, errors.New("receipt: its provider is not this cluster")
	}
	r.Version = r.wants()
	return sign(r, r.Version, provider)
}

// SignAnswer writes an answer down; who signs it must be the consumer.
func SignAnswer(a Answer, consumer *identity.Identity) (Signed, error) {
	return sign(a, AnswerVersion, consumer)
}

func sign(d canonical.Document, version string, who *identity.Identity) (Signed, error) {
	doc, err := write(d)
	if err != nil {
		return Signed{}, fmt.Errorf("%s: %w", version, err)
	}
	return Signed(canonical.Sign(doc, version, who)), nil
}

// Verify checks that a receipt was signed by the provider of a contract.
func (s Signed) Verify(provider contract.Party) (Receipt, error) {
	r, err := Parse(s.Document)
	if err != nil {
		return r, err
	}
	return r, s.by(provider, r.Version)
}

// VerifyAnswer checks that an answer was signed by the consumer of a contract.
func (s Signed) VerifyAnswer(consumer contract.Party) (Answer, error) {
	a, err := ParseAnswer(s.Document)
	if err != nil {
		return a, err
	}
	return a, s.by(consumer, AnswerVersion)
}

func (s Signed) by(who contract.Party, version string) error {
	if err := canonical.Signed(s).Check(version, who.Key, who.ID); err != nil {
		return fmt.Errorf("it was changed, or signed with another key than that of the contract's party: %w", err)
	}
	return nil
}

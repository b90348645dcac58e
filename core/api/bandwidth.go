package api

import (
	"regexp"
	"strconv"
	"strings"
)

// Bandwidth is the most that guests under a policy get and send, all together, as bits a second ("20M"); "" is no bound.
type Bandwidth struct {
	Ingress string `json:"ingress,omitempty"`
	Egress  string `json:"egress,omitempty"`
}

// BitRateAllowed are the values of a rate, in words.
const BitRateAllowed = "bits a second from 100k to 99G, such as 20M"

// bitRate is the pattern of the custom resource.
var bitRate = regexp.MustCompile(`^([1-9][0-9]{2,5}k|[1-9][0-9]{0,4}M|[1-9][0-9]?G)$`)

// ParseBitRate reads a rate, in bits a second. It reports whether the text is one.
func ParseBitRate(text string) (bits uint64, ok bool) {
	if !bitRate.MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 64)
	return n * map[byte]uint64{'k': 1e3, 'M': 1e6, 'G': 1e9}[text[len(text)-1]], err == nil
}

// ParseBandwidth reads what a person says of it: one rate for both directions ("20M"), or each with its name ("ingress=50M,egress=10M"), where one that
// is left out has no bound; "" is none for either. The error is an *Error with CodeInvalid and the field.
func ParseBandwidth(field, text string) (b Bandwidth, err error) {
	const allowed = BitRateAllowed + " for both directions, or ingress=50M,egress=10M"
	if text == "" {
		return b, nil
	}
	if _, ok := ParseBitRate(text); ok {
		return Bandwidth{text, text}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, rate, _ := strings.Cut(strings.TrimSpace(part), "=")
		of := map[string]*string{"ingress": &b.Ingress, "egress": &b.Egress}[name]
		if _, ok := ParseBitRate(rate); !ok || of == nil || *of != "" {
			return Bandwidth{}, Invalid(field, text, allowed)
		}
		*of = rate
	}
	return b, nil
}

// String is the bandwidth as ParseBandwidth reads it.
func (b Bandwidth) String() string {
	switch {
	case b.Ingress == b.Egress:
		return b.Ingress
	case b.Egress == "":
		return "ingress=" + b.Ingress
	case b.Ingress == "":
		return "egress=" + b.Egress
	}
	return "ingress=" + b.Ingress + ",egress=" + b.Egress
}

func (b Bandwidth) check() error {
	for _, rate := range []struct{ field, is string }{{"bandwidth.ingress", b.Ingress}, {"bandwidth.egress", b.Egress}} {
		if _, ok := ParseBitRate(rate.is); !ok && rate.is != "" {
			return Invalid(rate.field, rate.is, BitRateAllowed)
		}
	}
	return nil
}

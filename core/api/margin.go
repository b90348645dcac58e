package api

import (
	"math/big"
	"regexp"
	"strings"
)

// MarginAllowed are the values of a margin, in words.
const MarginAllowed = "a percentage from 0% to 999.99%, such as 10%"

// margin is the pattern of the custom resource.
var margin = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})([.][0-9]{1,2})?%$`)

// ParseMargin reads a margin ("10%"), exactly, as a percentage. It reports whether the text is one.
func ParseMargin(text string) (percent *big.Rat, ok bool) {
	if !margin.MatchString(text) {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSuffix(text, "%"))
}

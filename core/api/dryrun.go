package api

import (
	"net/url"
	"strconv"
)

// DryRun has a call say what it would do, and write nothing: what it refuses, it refuses then, too. It is the query ?dryRun=true of the calls
// that take it; other calls refuse that.
type DryRun bool

// Query is what ParseDryRun reads.
func (d DryRun) Query() url.Values {
	if !d {
		return url.Values{}
	}
	return url.Values{QueryDryRun: {"true"}}
}

// QueryDryRun is its name in a query.
const QueryDryRun = "dryRun"

// ParseDryRun reads it; what is not there is false.
func ParseDryRun(q url.Values) (DryRun, error) {
	text := q.Get(QueryDryRun)
	if text == "" {
		return false, nil
	}
	dry, err := strconv.ParseBool(text)
	if err != nil {
		return false, Invalid(QueryDryRun, text, "true or false")
	}
	return DryRun(dry), nil
}

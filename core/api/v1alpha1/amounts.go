package v1alpha1

import "regexp"

var plainAmount = regexp.MustCompile(`^[-+]?[0-9.]{0,40}([A-Za-z]{0,2}|[eE][-+]?[0-9]{1,2})$`)

// PlainAmount tells whether somebody else's amount may be parsed at all: resource.ParseQuantity works for hours at
// "1e-99999999", and comparing takes as long for "1e99999999", on all that memory holds. Nobody's amounts exceed it.
func PlainAmount(text string) bool { return plainAmount.MatchString(text) }

package frontdoor

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What an API server would not take for a user leaves who asks who he is: it would be answered as whoever brought the request, and audited so.
func TestWhoNamesNobodyAsksAsHimself(t *testing.T) {
	for what, c := range map[string]struct {
		header http.Header
		want   string // names of headers that are passed on; "-" is refused
	}{
		"nothing":                   {http.Header{"Accept": {"x"}}, ""},
		"what no API server knows":  {http.Header{"Impersonate-Foo": {"x"}}, ""},
		"nobody":                    {http.Header{"Impersonate-User": {""}}, ""},
		"nobody, and then somebody": {http.Header{"Impersonate-User": {"", "bob"}}, ""},
		"somebody":                  {http.Header{"Impersonate-User": {"bob"}}, "Impersonate-User"},
		"all, and more": {http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"a", "b"}, "Impersonate-Uid": {"1"}, "Impersonate-Extra-Scopes": {"x"}, "Impersonate-Foo": {"x"}},
			"Impersonate-Extra-Scopes Impersonate-Group Impersonate-Uid Impersonate-User"},
		"a group of nobody":            {http.Header{"Impersonate-Group": {"system:masters"}}, "-"},
		"a group, and an empty user":   {http.Header{"Impersonate-Group": {"a"}, "Impersonate-User": {""}}, "-"},
		"an ID of nobody":              {http.Header{"Impersonate-Uid": {"1"}}, "-"},
		"something of nobody's":        {http.Header{"Impersonate-Extra-A": {"1"}}, "-"},
		"an extra field without a key": {http.Header{"Impersonate-Extra-": {"1"}}, ""},
	} {
		got, err := impersonated(c.header)
		names := strings.Join(slices.Sorted(maps.Keys(got)), " ")
		if err != nil {
			names = "-"
		}
		if names != c.want || err == nil && c.want == "" && got != nil {
			t.Errorf("%s: %q (%v), want %q", what, names, err, c.want)
		}
	}
}

package api

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestWhatIsAskedAboutIsRead(t *testing.T) {
	for query, want := range map[string]WhyOptions{
		"name=web":                                    {"default", "pod", "web"},
		"name=web&namespace=shop&kind=deploy":         {"shop", "deployment", "web"},
		"name=web-0.a&namespace=shop&kind=sts":        {"shop", "statefulset", "web-0.a"},
		"name=":                                       {},
		"name=../../secrets":                          {},
		"name=Web":                                    {},
		"name=-web":                                   {},
		"name=" + strings.Repeat("a", 254):            {},
		"name=web&namespace=a/b":                      {},
		"name=web&kind=cronjob":                       {},
		"name=web&namespace=shop%00":                  {},
		"name=" + strings.Repeat("a", 253) + "&kind=": {"default", "pod", strings.Repeat("a", 253)},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseWhyOptions(values)
		if want == (WhyOptions{}) {
			if !errors.Is(err, &Error{Code: CodeInvalid}) {
				t.Errorf("%s: %+v, %v", query, got, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", query, got, err)
		}
		if again, err := ParseWhyOptions(got.Query()); err != nil || again != got {
			t.Errorf("%s: read again it is %+v, %v", query, again, err)
		}
	}
}

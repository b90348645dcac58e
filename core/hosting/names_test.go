package hosting

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api"
)

var (
	bob = Consumer{ID: "BOB", Compact: "bbbbbbbccccccc" + strings.Repeat("d", 42), Name: "bob"}
)

func TestNamesOfTwins(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		home string
		want []string
	}{
		{"shop", []string{"shop-bbbbbbb", "shop-bbbbbbbccccccc"}},
		{"default", []string{"default-bbbbbbb", "default-bbbbbbbccccccc"}},
		{"kube-system", []string{"kube-system-bbbbbbb", "kube-system-bbbbbbbccccccc"}},
		{"kith-bob", []string{"kith-bob-bbbbbbb", "kith-bob-bbbbbbbccccccc"}},
		{long[:55], []string{long[:55] + "-bbbbbbb", long[:39] + "-9f4390f8-bbbbbbbccccccc"}},
	} {
		got := twinNames(c.home, bob)
		if !slices.Equal(got, c.want) || slices.ContainsFunc(got, func(name string) bool { return !isTwinName(name, c.home, bob.Compact) }) {
			t.Errorf("%s: %q", c.home, got)
		}
	}
}

func TestLongNamesStayApartAndValid(t *testing.T) {
	seen := map[string]string{}
	for _, tail := range []string{"x", "y", "-", "-x", strings.Repeat("-", 8) + "z"} {
		home := strings.Repeat("a", 54) + tail
		home += strings.Repeat("b", 63-len(home))
		for _, name := range twinNames(home, bob) {
			if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
				t.Errorf("%s gives %s: %v", home, name, msgs)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s are both %s", home, other, name)
			}
			seen[name] = home
		}
	}
}

func TestBadNames(t *testing.T) {
	for _, home := range []string{"", "Shop", "a.b", "-a", "a/b", "..", strings.Repeat("a", 64)} {
		var e *api.Error
		if err := checkHome(home); !errors.As(err, &e) || e.Code != api.CodeInvalid || e.Field != "home" {
			t.Errorf("%q: %v", home, err)
		}
	}
}

func TestLabelValues(t *testing.T) {
	for in, want := range map[string]string{
		"bob": "bob", "a." + strings.Repeat("b", 60) + ".c": "a." + strings.Repeat("b", 60), strings.Repeat("x", 253): strings.Repeat("x", 63),
	} {
		if got := labelValue(in); got != want || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%s: %s", in, got)
		}
	}
}

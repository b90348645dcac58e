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
		{"shop", []string{"shop", "shop-bbbbbbb", "shop-bbbbbbbccccccc"}},
		{"default", []string{"default-bbbbbbb", "default-bbbbbbbccccccc"}},
		{"kube-system", []string{"kube-system-bbbbbbb", "kube-system-bbbbbbbccccccc"}},
		{"kith-bob", []string{"kith-bob-bbbbbbb", "kith-bob-bbbbbbbccccccc"}},
		{"kubernetes", []string{"kubernetes", "kubernetes-bbbbbbb", "kubernetes-bbbbbbbccccccc"}},
		{long[:55], []string{long[:55], long[:55] + "-bbbbbbb", long[:39] + "-9f4390f8-bbbbbbbccccccc"}},
	} {
		got, err := twinNames(c.home, bob, false)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", c.home, got, err)
		}
	}
}

func TestLongNamesStayApartAndValid(t *testing.T) {
	seen := map[string]string{}
	for _, tail := range []string{"x", "y", "-", "-x", strings.Repeat("-", 8) + "z"} {
		home := strings.Repeat("a", 54) + tail
		home += strings.Repeat("b", 63-len(home))
		got, err := twinNames(home, bob, false)
		if err != nil {
			t.Fatal(home, err)
		}
		for _, name := range got {
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
		if _, err := twinNames(home, bob, false); !errors.As(err, &e) || e.Code != api.CodeInvalid || e.Field != "home" {
			t.Errorf("%q: %v", home, err)
		}
	}
	for _, home := range []string{"default", "kube-public", "kith-x"} {
		if _, err := twinNames(home, bob, true); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
			t.Errorf("SameName of %s: %v", home, err)
		}
	}
	if got, err := twinNames("shop", bob, true); err != nil || !slices.Equal(got, []string{"shop"}) {
		t.Errorf("SameName of shop: %q, %v", got, err)
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

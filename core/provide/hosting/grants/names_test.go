package grants

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/hostingtest"
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
		got := TwinNames(c.home, bob)
		if !slices.Equal(got, c.want) || slices.ContainsFunc(got, func(name string) bool { return !v1alpha1.IsTwinName(name, c.home, bob.Compact) }) {
			t.Errorf("%s: %q", c.home, got)
		}
	}
}

func TestLongNamesStayApartAndValid(t *testing.T) {
	seen := map[string]string{}
	for _, tail := range []string{"x", "y", "-", "-x", strings.Repeat("-", 8) + "z"} {
		home := strings.Repeat("a", 54) + tail
		home += strings.Repeat("b", 63-len(home))
		for _, name := range TwinNames(home, bob) {
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
		if err := CheckHome(home); !errors.As(err, &e) || e.Code != api.CodeInvalid || e.Field != "home" {
			t.Errorf("%q: %v", home, err)
		}
	}
}

func TestLabelValues(t *testing.T) {
	for in, want := range map[string]string{
		"bob": "bob", "a." + strings.Repeat("b", 60) + ".c": "a." + strings.Repeat("b", 60), strings.Repeat("x", 253): strings.Repeat("x", 63),
	} {
		if got := LabelValue(in); got != want || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// TestTwoHomesNeverShareATwin has two consumers, whose IDs begin alike as far as somebody could search for, ask for names
// that are made to collide: those of each other's twins, and long ones that are cut.
func TestTwoHomesNeverShareATwin(t *testing.T) {
	alike := func(name, tail string) Consumer {
		return Consumer{ID: name, Compact: "aaaaaaa" + strings.Repeat(tail, 49), Name: name}
	}
	bob, mallory := alike("bob", "b"), alike("mallory", "m")
	random := rand.New(rand.NewPCG(1, 2))
	homes := []string{"a", "b", "shop", strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"}
	taken := map[string]string{} // name here → consumer and home
	for range 20_000 {
		who := []Consumer{bob, mallory}[random.IntN(2)]
		home := homes[random.IntN(len(homes))]
		switch random.IntN(5) {
		case 0:
			home = v1alpha1.TwinName(home, who.Compact[:v1alpha1.ShortIDs[random.IntN(2)]])
		case 1:
			home = strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(63))
		case 2: // what is left of a long name without the ID is a name too
			long := v1alpha1.TwinName(strings.Repeat("a", 63), who.Compact[:7])
			home = strings.TrimSuffix(long, "-"+who.Compact[:7])
		case 3:
			home = home[:len(home)-random.IntN(len(home))]
		}
		if len(validation.IsDNS1123Label(home)) > 0 {
			continue
		}
		homes = append(homes, home)
		for _, name := range TwinNames(home, who) {
			if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
				t.Fatalf("%s gives %s: %v", home, name, msgs)
			}
			if name == home || !v1alpha1.IsTwinName(name, home, who.Compact) {
				t.Fatalf("%s may be called %s", home, name)
			}
			// The first that comes has the name; whoever else could have it must see by the labels that it is not its own.
			mine := who.Name + "/" + home
			if taken[name] == "" {
				taken[name] = mine
			}
			owner, ownerHome, _ := strings.Cut(taken[name], "/")
			labels := hostingtest.Twin(name, ownerHome, "c", map[string]Consumer{"bob": bob, "mallory": mallory}[owner].Compact)
			tw, ok := TwinOf(labels)
			if !ok {
				t.Fatalf("%s of %s is not known as its twin", name, taken[name])
			}
			if (tw.Home == home && tw.Consumer == who.Compact) != (taken[name] == mine) {
				t.Fatalf("%s belongs to %s and to %s", name, taken[name], mine)
			}
			if taken[name] == mine {
				break
			}
		}
	}
	if len(taken) < 1000 {
		t.Fatalf("only %d names were tried", len(taken))
	}
}

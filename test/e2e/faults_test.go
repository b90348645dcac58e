//go:build lab && soak

package e2e

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestKillsEndNoPod kills every program of Kith on either side, under traffic, and then the power. How fast all is well again
// depends on what else the machine does; group "recovery" of the bench measures it.
func TestKillsEndNoPod(t *testing.T) {
	w := newWorld(t).spread(4)
	server := w.server()
	for _, fault := range []struct {
		program string
		of      []*lab.Laptop
	}{
		{"kithd", []*lab.Laptop{w.alice}},
		{"kithd", []*lab.Laptop{w.bob}},
		{"kithd", []*lab.Laptop{w.alice, w.bob}},
		{"kith-k8s", []*lab.Laptop{w.alice}},
		{"kith-k8s", []*lab.Laptop{w.bob}},
		{"containerd", []*lab.Laptop{w.bob}},
	} {
		name := fault.program
		for _, p := range fault.of {
			name += " of " + p.Name()
		}
		w.run(name, func(t *testing.T) {
			before, old := w.lives(), map[string]string{}
			ended := w.stream("stream", server, 15*time.Second)
			for _, p := range fault.of {
				old[p.Name()] = pid(t, p, fault.program)
				if _, _, err := p.Exec(t.Context(), "kill", "-9", old[p.Name()]); err != nil {
					t.Fatal(err)
				}
			}
			took := eventually(t, time.Minute, "all is well", func() string {
				for _, p := range fault.of {
					if now := pid(t, p, fault.program); now == "" || now == old[p.Name()] {
						return fault.program + " of " + p.Name() + " does not run again"
					}
				}
				return w.well()
			})
			r := ended()
			if r.Broken != "" || r.OutOfOrder != 0 || r.Bytes == 0 {
				t.Errorf("the TCP stream across the tunnel: %+v", r)
			}
			if got := kubectl(t, w.alice, "-n", "shop", "run", "probe", "--image=kith.dev/echo:1", "--dry-run=server", "-o", "jsonpath={.spec.tolerations[*].key}"); !strings.Contains(got, "kith.dev/peer") {
				t.Errorf("a pod made now stays at home: it tolerates %s", got)
			}
			if after := w.lives(); !maps.Equal(before, after) {
				t.Errorf("containers changed:\n%v\n%v", before, after)
			}
			t.Logf("well after %s, longest gap in a TCP stream %.0f ms", took.Round(10*time.Millisecond), r.Gap)
		})
	}
	w.run("power of bob", func(t *testing.T) {
		if err := w.bob.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := w.bob.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := eventually(t, time.Minute, "all is well", w.consistent)
		t.Logf("well %s after power came back", took.Round(10*time.Millisecond))
	})
	for _, p := range []*lab.Laptop{w.bob, w.alice} {
		w.run(p.Name()+" moves", func(t *testing.T) { w.moves(t, p) })
	}
}

// moves has a laptop change its address, under traffic.
func (w *world) moves(t *testing.T, p *lab.Laptop) {
	server := w.server()
	before := w.lives()
	ended := w.stream("stream", server, 12*time.Second)
	if _, err := p.Move(t.Context(), netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 20*time.Second, "all is well", w.well)
	r := ended()
	if r.Broken != "" || r.OutOfOrder != 0 || r.Bytes == 0 || r.Gap > 3000 {
		t.Errorf("the TCP stream across the tunnel: %+v", r)
	}
	if after := w.lives(); !maps.Equal(before, after) {
		t.Errorf("containers changed:\n%v\n%v", before, after)
	}
	t.Logf("gap in a TCP stream %.0f ms, all well after %s", r.Gap, took.Round(10*time.Millisecond))
}

// consistent is well, and exact.
func (w *world) consistent() string {
	for _, check := range []func() string{w.well, w.paired, w.agreed, func() string { return w.webOn() }} {
		if not := check(); not != "" {
			return not
		}
	}
	return ""
}

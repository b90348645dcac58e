//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// endpoint is one address of a service, as its EndpointSlices have it.
type endpoint struct {
	address        string
	ready, serving bool
}

// endpointsOf gives those of a service at a laptop.
func endpointsOf(t *testing.T, p *lab.Laptop, namespace, service string) (all []endpoint) {
	t.Helper()
	out := kubectl(t, p, "-n", namespace, "get", "endpointslices", "-l", "kubernetes.io/service-name="+service, "-o",
		`jsonpath={range .items[*].endpoints[*]}{.addresses[0]} {.conditions.ready} {.conditions.serving}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, endpoint{f[0], f[1] == "true", f[2] == "true"})
		}
	}
	return all
}

// hang stops bob, and then alice, for as long as it takes to be noticed: kernels acknowledge for both.
func hang(t *testing.T, alice, bob *lab.Laptop) {
	const limit = 15 * time.Second
	twin := twinAt(t, bob, "shop")
	abroad := func(e endpoint) bool { // of the endpoints at alice
		return slices.ContainsFunc(pods(t, alice, "-n", "shop", "-l", "app=web"), func(p pod) bool {
			return p.Status.PodIP == e.address && p.Spec.NodeName == "kith-bob"
		})
	}
	guest := func(e endpoint) bool { // of those at bob
		return slices.ContainsFunc(pods(t, bob, "-n", twin), func(p pod) bool { return p.Status.PodIP == e.address })
	}
	// ready tells what is not right unless exactly the endpoints of web that are left up are ready.
	ready := func(p *lab.Laptop, namespace string, up func(endpoint) bool) string {
		all, some := endpointsOf(t, p, namespace, "web"), 0
		for _, e := range all {
			if e.ready != up(e) || e.serving != up(e) {
				return fmt.Sprintf("%s: %+v", p.Name(), all)
			}
			if !up(e) {
				some++
			}
		}
		if len(all) != 4 || some == 4 {
			return fmt.Sprintf("%s: %+v", p.Name(), all)
		}
		return ""
	}
	every := func(endpoint) bool { return true }
	well := func() string {
		out, in := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		if !out.Reachable || out.Outgoing != "connected" || !in.Reachable || in.Incoming != "connected" {
			return fmt.Sprintf("alice: %+v; bob: %+v", out, in)
		}
		if not := ready(alice, "shop", every); not != "" {
			return not
		}
		return ready(bob, twin, every)
	}
	eventually(t, 30*time.Second, "all is well before", well)
	freeze := func(p *lab.Laptop) time.Time {
		t.Helper()
		if err := p.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	thaw := func(p *lab.Laptop) {
		t.Helper()
		if err := p.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := eventually(t, 20*time.Second, "all is well after "+p.Name()+" goes on", well)
		t.Logf("all well %s after %s went on", took.Round(10*time.Millisecond), p.Name())
	}

	since := peerSince(t, alice, "bob")
	freeze(bob)
	time.Sleep(4 * time.Second)
	thaw(bob)
	if now := peerSince(t, alice, "bob"); now != since {
		t.Errorf("bob stood still for 4 s, and that shows: connected since %s, before since %s", now, since)
	}

	frozen := freeze(bob)
	eventually(t, limit-time.Since(frozen), "bob is not reachable, his node not Ready, his endpoints neither", func() string {
		if p := peerOf(t, alice, "bob"); p.Reachable || p.Outgoing != "unreachable" {
			return fmt.Sprintf("%+v", p)
		}
		if out := kubectl(t, alice, "get", "node", "kith-bob", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "False" {
			return "the node is Ready: " + out
		}
		return ready(alice, "shop", func(e endpoint) bool { return !abroad(e) })
	})
	t.Logf("bob was given up %s after he stood still", time.Since(frozen).Round(10*time.Millisecond))
	thaw(bob)

	frozen = freeze(alice)
	eventually(t, limit+5*time.Second-time.Since(frozen), "the endpoints of alice are not ready at bob", func() string {
		return ready(bob, twin, guest)
	})
	t.Logf("alice's endpoints at bob were not ready %s after she stood still", time.Since(frozen).Round(10*time.Millisecond))
	thaw(alice)
}

// peerSince is since when the peer is in its state.
func peerSince(t *testing.T, p *lab.Laptop, name string) string {
	t.Helper()
	return kubectl(t, p, "get", "peer", name, "-o", "jsonpath={.status.outgoing.state} {.status.outgoing.since}")
}

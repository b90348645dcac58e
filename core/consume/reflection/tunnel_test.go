package reflection

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestWhoServesAtThePeer(t *testing.T) {
	endpoint := func(node, pod string, ready bool) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{"10.42.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}}
		if node != "" {
			e.NodeName = &node
		}
		return e
	}
	ends := endpoint("kith-bob", "up", false)
	ends.Conditions.Terminating = new(true)
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
		endpoint("alice", "home", true),
		endpoint("kith-bob", "up", false), // not ready at home, since it is not reached from there
		endpoint("kith-bob", "down", false),
		endpoint("kith-carol", "up", true),
		endpoint("", "nowhere", true),
		ends,
	}}
	r := reflector(t, &Home{})
	r.cfg.GuestReady = func(_, pod string) bool { return pod == "up" }
	ready := func(e *discoveryv1.Endpoint) bool { return r.guestReady("shop", e) }
	for _, c := range []struct {
		apart, unready bool
		want           string // ready/serving
	}{
		{true, false, "false/false true/true false/false false/false false/false false/false "},
		{true, true, "true/false false/true false/false true/false true/false false/false "},
		{false, false, "true/true true/true false/false true/true true/true false/false "},
		{false, true, "true/true false/true false/false true/true true/true false/false "},
	} {
		got := ""
		for _, e := range seenThere(slice, c.apart, c.unready, ready).Endpoints {
			got += fmt.Sprintf("%v/%v ", *e.Conditions.Ready, *e.Conditions.Serving)
		}
		if got != c.want {
			t.Errorf("apart from home %v, published ready or not %v: ready/serving %s, want %s", c.apart, c.unready, got, c.want)
		}
	}
	if !*slice.Endpoints[0].Conditions.Ready {
		t.Error("the slice of home was changed")
	}
}

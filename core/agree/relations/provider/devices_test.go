package provider

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// With devices goes what the node's labels say of them, and of no others.
func TestLabelsOfDevicesGoWithTheOffer(t *testing.T) {
	d := newWorld(t)
	var node corev1.Node
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: "bob"}, &node); err != nil {
		t.Fatal(err)
	}
	maps.Copy(node.Labels, map[string]string{
		corev1.LabelArchStable: "arm64", "example.com/fpga.model": "x1", "nvidia.com/gpu.product": "RTX", "example.com/secret": "x", "team": "x",
	})
	if err := d.client.Update(t.Context(), &node); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ offered, want map[string]string }{
		{nil, map[string]string{corev1.LabelArchStable: "arm64"}},
		{map[string]string{"example.com/fpga": "1"}, map[string]string{corev1.LabelArchStable: "arm64", "example.com/fpga.model": "x1"}},
	} {
		offered := list("cpu", "1")
		for name := range c.offered {
			maps.Copy(offered, list(name, "1"))
		}
		if got := d.nodeLabels(t.Context(), offered); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.offered, got, c.want)
		}
	}
}

// TestAnOfferNamesTheBandwidth that guests have under the policy, and none that it does not bound.
func TestAnOfferNamesTheBandwidth(t *testing.T) {
	d, alice := newWorld(t, sharing.Default(50)), stranger(1, "192.0.2.11")
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	r := d.requests(t)[0]
	if err := d.Accept(t.Context(), &r, nil, ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		network *v1alpha1.GuestNetwork
		want    map[string]string
	}{
		{nil, map[string]string{}},
		{&v1alpha1.GuestNetwork{Bandwidth: &v1alpha1.GuestBandwidth{Ingress: "20M"}}, map[string]string{v1alpha1.LabelIngress: "20000000"}},
		{&v1alpha1.GuestNetwork{Bandwidth: &v1alpha1.GuestBandwidth{Ingress: "1G", Egress: "500k"}}, map[string]string{v1alpha1.LabelIngress: "1000000000", v1alpha1.LabelEgress: "500000"}},
	} {
		d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Network = c.network })
		outcome, err := d.Outcome(t.Context(), alice, id)
		if err != nil || outcome.Offer == nil {
			t.Fatalf("%+v, %v", outcome, err)
		}
		got := outcome.Offer.NodeLabels
		maps.DeleteFunc(got, func(name, _ string) bool { return name != v1alpha1.LabelIngress && name != v1alpha1.LabelEgress })
		if !maps.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

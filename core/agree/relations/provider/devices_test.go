package provider

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

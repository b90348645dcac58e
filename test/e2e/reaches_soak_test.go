//go:build lab && soak

package e2e

import (
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestWhatGuestsReachOnTwoNodes is the table for a kithd that attached to a cluster of two nodes, and runs on the first alone.
func TestWhatGuestsReachOnTwoNodes(t *testing.T) {
	l := laptops(t, lab.Options{Names: []string{"alice", "carol"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 2}}})
	o := attachedToNodes(l)
	o.start(t)
	o.settle(t)
	o.table(t)
	t.Run("with a range of pods that is wrong", o.wrongRange)
}

// TestWhatGuestsReachOnOtherEngines is the table for a laptop with the interface of K3s, and for one whose kithd attached to its cluster.
func TestWhatGuestsReachOnOtherEngines(t *testing.T) {
	for _, one := range []struct {
		name    string
		engines map[string]string
		attach  bool
	}{
		{"k3s", map[string]string{"bob": lab.K3s}, false},
		{"kubeconfig", nil, true},
	} {
		t.Run(one.name, func(t *testing.T) {
			o := onLaptop(laptops(t, lab.Options{Laptops: 3, Engines: one.engines}))
			o.lapses = calmFor
			if one.attach {
				attach(t, o.at)
			}
			eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, o.at) })
			o.settle(t)
			o.laptop(false)
			o.table(t)
		})
	}
}

// TestWhatGuestsReachOnOneNode is the table for the built-in engine.
func TestWhatGuestsReachOnOneNode(t *testing.T) {
	o := onLaptop(laptops(t, lab.Options{Laptops: 3}))
	addressesFrom(t, o.at, "10.42.0.100") // such as no pod of alice's or carol's has
	o.settle(t)
	o.laptop(true)
	o.table(t)
}

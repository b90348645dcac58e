package v1alpha1

import "testing"

// TestWhoseNodeItIs: by its name; what comes behind the peer's is who is behind the peer.
func TestWhoseNodeItIs(t *testing.T) {
	for _, c := range []struct {
		node, peer string
		virtual    bool
	}{
		{VirtualNode("bob"), "bob", true}, {VirtualNodeBehind("bob", "carol"), "bob", true}, {VirtualNode("bob-carol"), "bob-carol", true},
		{"bob", "", false}, {"", "", false}, {VirtualNodeBehind("bob", VirtualNode("carol")), "bob", true},
	} {
		if peer, virtual := PeerOfNode(c.node); peer != c.peer || virtual != c.virtual || AtPeer(c.node, "bob") != (c.peer == "bob") {
			t.Errorf("%q: %q, %t", c.node, peer, virtual)
		}
	}
}

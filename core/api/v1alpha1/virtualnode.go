package v1alpha1

import "strings"

// behind stands between the name of a peer and that of a provider behind it. No name of a Peer has it.
const behind = "."

// VirtualNode is the name of the node of a peer.
func VirtualNode(peer string) string { return VirtualNodePrefix + peer }

// VirtualNodeBehind is the name of the node of a provider behind a peer.
func VirtualNodeBehind(peer, provider string) string {
	return VirtualNodePrefix + peer + behind + provider
}

// PeerOfNode is the peer that a node stands for, or a provider behind it: pods there are the peer's to run, in any case. virtual is false for nodes that are
// called otherwise. That a node is called so makes it nobody's yet: its labels do.
func PeerOfNode(node string) (peer string, virtual bool) {
	name, virtual := strings.CutPrefix(node, VirtualNodePrefix)
	if !virtual {
		return "", false
	}
	peer, _, _ = strings.Cut(name, behind)
	return peer, true
}

// AtPeer reports whether a node is that of a peer, or of a provider behind it, by their names.
func AtPeer(node, peer string) bool {
	of, virtual := PeerOfNode(node)
	return virtual && of == peer
}

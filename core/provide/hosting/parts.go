package hosting

import (
	"kith.dev/core/agree/sharing"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire"
)

// partsRef names the line of KindParts, which is about no object. It is told to those whose contract is divided.
var partsRef = objectRef{kind: remote.KindParts, name: "parts"}

// maxWhy bounds what a consumer is told of why a provider is not there.
const maxWhy = 256

// partsChanged tells a consumer among whom its contract is divided now.
func (v *views) partsChanged(consumerID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	parts := v.contracts.PartsOf(consumerID) // under the lock: of two that are told at once the later counts
	for _, one := range v.open[consumerID] {
		one.put(partsRef, partsLine(parts), len(parts) == 0)
	}
}

func partsLine(parts []grants.Part) remote.Parts {
	line := remote.Parts{Parts: []remote.Part{}}
	for _, p := range parts {
		line.Parts = append(line.Parts, remote.Part{ID: p.ID, Name: p.Peer, Resources: sharing.Words(p.Limit), Arch: p.Arch, Why: wire.Line(p.Why, maxWhy)})
	}
	return line
}

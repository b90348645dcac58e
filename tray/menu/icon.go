package menu

import (
	"slices"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
)

// Icon is the state that the icon shows. What is worst wins; then what this cluster has from others, then what it gives.
func Icon(s State) icon.State {
	status := s.Snapshot.Status
	switch {
	case s.Link != Up:
		return icon.Gone
	case wrong(status), status.Tether != nil && !status.Tether.DownSince.IsZero():
		return icon.Problem
	case status.Mode != api.Autonomous:
		return icon.Tethered
	}
	state := icon.Alone
	for _, p := range s.Snapshot.Peers {
		if p.Outgoing == api.StateConnected {
			return icon.Peered
		}
		if p.Incoming == api.StateConnected {
			state = icon.Offering
		}
	}
	return state
}

// Attention reports whether somebody waits for this owner: a peer's request, or a peer that accepted.
func Attention(s State) bool {
	return s.Link == Up && (slices.ContainsFunc(s.Snapshot.Requests, func(r api.Request) bool { return r.Direction == api.Incoming && r.State == api.StateRequested }) ||
		slices.ContainsFunc(s.Snapshot.Peers, func(p api.Peer) bool { return p.Confirm != nil }))
}

// wrong tells whether somebody should look: a cluster that is starting is none of that.
func wrong(s api.Status) bool {
	switch s.Engine.State {
	case api.EngineFailed, api.EngineDegraded:
		return true
	case api.EngineStopped:
		return s.Engine.Kind != api.EngineNone
	}
	return len(worthShowing(s.Problems)) > 0
}

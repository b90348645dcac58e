package doctor

import (
	"net/netip"

	"kith.dev/daemon/config"
)

// Machine is what of this machine matters to Kith.
type Machine struct {
	DataDir                    string
	PeerAPIPort, WireGuardPort uint16
	APIServerPort              uint16 // of the builtin engine; 0: it is not this one's
	PodRange, ServiceRange     netip.Prefix
	Aliases                    map[string][]netip.Prefix // under which the peers of these names are seen here
	HasTunnels                 bool                      // false with engine "none"
	PID                        int                       // of the kithd that asks; 0 when none runs
}

// ownDevices are the network devices that Kith makes: the tunnel, the node's address, the pods' bridge.
var ownDevices = []string{"kith0", "kith-node", "cni0"}

// Groups are the checks of the machine.
func (m Machine) Groups() []Group {
	return []Group{m.ports, m.addresses, m.kernel, m.disk}
}

// apiServerPort is where the builtin engine's API server listens (core/cluster).
const apiServerPort = 6443

// MachineOf takes what there is to know from the configuration.
func MachineOf(cfg config.Config) Machine {
	m := Machine{
		DataDir: cfg.DataDir, PeerAPIPort: cfg.PeerAPIPort, WireGuardPort: cfg.WireGuardPort,
		PodRange: cfg.PodRange, ServiceRange: cfg.ServiceRange, HasTunnels: cfg.Engine != config.EngineNone,
	}
	if cfg.Engine == config.EngineBuiltin {
		m.APIServerPort = apiServerPort
	}
	return m
}

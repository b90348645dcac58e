package doctor

import (
	"net/netip"

	"kith.dev/core/netplan"
	"kith.dev/daemon/config"
)

// Machine is what of this machine matters to Kith.
type Machine struct {
	DataDir                    string
	PeerAPIPort, WireGuardPort uint16
	APIServerPort              uint16 // of the cluster that Kith runs; 0: it runs none
	PodRange, ServiceRange     netip.Prefix
	Aliases                    map[string][]netip.Prefix // under which the peers of these names are seen here
	HasTunnels                 bool                      // false with engine "none"
	PID                        int                       // of the kithd that asks; 0 when none runs
}

// ownDevices are the network devices that Kith makes.
var ownDevices = []string{netplan.Tunnel, netplan.Node, netplan.Bridge}

// Groups are the checks of the machine.
func (m Machine) Groups() []Group {
	return []Group{m.ports, m.addresses, m.kernel, m.disk}
}

// MachineOf takes what there is to know from the configuration.
func MachineOf(cfg config.Config) Machine {
	m := Machine{
		DataDir: cfg.DataDir, PeerAPIPort: cfg.PeerAPIPort, WireGuardPort: cfg.WireGuardPort,
		PodRange: cfg.PodRange, ServiceRange: cfg.ServiceRange, HasTunnels: cfg.Engine != config.EngineNone,
	}
	if cfg.RunsCluster() {
		m.APIServerPort = netplan.APIPort
	}
	return m
}

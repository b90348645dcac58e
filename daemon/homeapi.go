package daemon

import (
	"net/netip"

	"kith.dev/daemon/config"
)

// apiPort is where the builtin engine's API server listens, on the node's address.
const apiPort = 6443

// homeAPI is where pods reach the API server of this cluster; the zero value with an engine whose nodes do not run it.
func (d *Daemon) homeAPI() netip.AddrPort {
	if d.cfg.Engine != config.EngineBuiltin {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(d.engine.NodeIP(), apiPort)
}

// hostPorts are those of the node's own address that pods at peers may connect to.
func (d *Daemon) hostPorts() []uint16 {
	if d.cfg.Engine != config.EngineBuiltin {
		return nil
	}
	return []uint16{apiPort}
}

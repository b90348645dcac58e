package daemon

import (
	"net/netip"

	"kith.dev/core/net/portmap"
	"kith.dev/daemon/config"
)

// makePortMapping has the router asked for the ports that the owner said; with portMapping: none nobody is asked.
func (d *Daemon) makePortMapping() {
	var ports []portmap.Port
	if d.cfg.PortMapping != config.PortMappingNone && d.gateway != nil {
		ports = append(ports, portmap.Port{Protocol: portmap.UDP, Number: d.cfg.WireGuardPort})
	}
	if d.cfg.PortMapping == config.PortMappingAll {
		ports = append(ports, portmap.Port{Protocol: portmap.TCP, Number: d.cfg.PeerAPIPort})
	}
	if len(ports) == 0 {
		if d.cfg.PortMapping != config.PortMappingNone {
			d.log.Warn("no router is asked to map a port: without a Kubernetes there are no tunnels", "portMapping", d.cfg.PortMapping)
		}
		return
	}
	d.ports = portmap.New(portmap.Config{Ports: ports, Kernel: &d.kernel, Changed: d.changed.Notify, Log: d.log})
}

// mapped is where a port of this laptop is reached from outside its router; the zero value while it is not.
func (d *Daemon) mapped(p portmap.Protocol) netip.AddrPort {
	if d.ports == nil {
		return netip.AddrPort{}
	}
	return d.ports.At(p)
}

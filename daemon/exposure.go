package daemon

import (
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/mdns"
	"kith.dev/daemon/config"
)

// exposed are the addresses at which neighbours on the LAN reach services here, if the owner says so.
func (d *Daemon) exposed() ([]netip.Addr, error) {
	if d.cfg.Expose != config.ExposeLAN {
		return nil, nil
	}
	all, err := mdns.LANAddresses(d.cfg.Discovery.Interfaces)
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.Is4() }), err // the cluster's services have IPv4 only
}

// exposeServices gives LoadBalancer services this laptop's addresses, or takes them back. Other clusters have their own way.
func (d *Daemon) exposeServices(mgr manager.Manager) error {
	if !d.engine.Facts().NodePorts {
		return nil
	}
	return d.exposure.SetupWithManager(mgr)
}

// exposedStatus is what the owner is told of it.
func (d *Daemon) exposedStatus() *api.Exposed {
	if d.cfg.Expose != config.ExposeLAN {
		return nil
	}
	e := &api.Exposed{To: d.cfg.Expose}
	addresses, err := d.exposed()
	if err != nil {
		d.log.Warn("own addresses are not known", "err", err)
	}
	for _, a := range addresses {
		e.Addresses = append(e.Addresses, a.String())
	}
	return e
}

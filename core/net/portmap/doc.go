// Package portmap has the router in front of this laptop lead a port of its own to one here, as the owner asked for: by NAT-PMP (RFC 6886), or by the
// Internet Gateway Device protocol of UPnP. Peers behind other routers then send to that port and need nobody to pass packets on.
//
// What is asked for is a lease, which ends by itself when nobody renews it, so that nothing stays open when the laptop is carried away or loses its
// power; a router that has none is not used. At the end of Run it is taken back.
//
// Called by the daemon (wiring) when the configuration has portMapping. It must ask nobody but the router of the default route, follow no address
// that it is told, and read no more of an answer than fits one.
package portmap

package backend

import (
	"context"
	"fmt"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/net/portmap"
)

// checkRouter tells what the router does that was asked to map ports.
func (b *Backend) checkRouter(_ context.Context, report func(api.Finding)) {
	if b.Ports == nil {
		return
	}
	f := api.Finding{Area: api.AreaNetwork, Name: "router", State: api.CheckOK}
	s := b.Ports.Status()
	var list []string
	for _, m := range s.Mappings {
		list = append(list, fmt.Sprintf("%s port %d at %s", m.Protocol, m.Number, m.At))
	}
	switch s.State {
	case portmap.Searching:
		f.What = "the router is being asked to map ports"
	case portmap.Mapped:
		f.What = fmt.Sprintf("the router, %s, maps by %s: %s", s.Router, s.By, strings.Join(list, ", "))
	case portmap.Nested:
		f.State, f.What = api.CheckWarning, fmt.Sprintf("the router, %s, maps by %s: %s", s.Router, s.By, strings.Join(list, ", "))
		f.Why, f.Do = "that is a private address: the router is behind another one, which lets nobody in", "have that one map the port, or use a common peer that relays"
	case portmap.NoRouter:
		f.State, f.What, f.Why, f.Do = api.CheckWarning, "no router maps ports of this laptop", s.Why, "turn UPnP or NAT-PMP on at the router, or set portMapping to none"
	case portmap.Refused:
		f.State, f.What = api.CheckWarning, fmt.Sprintf("the router, %s, answers by %s and maps no ports", s.Router, s.By)
		f.Why, f.Do = s.Why, "let this laptop map ports at the router, or set portMapping to none"
	}
	report(f)
}

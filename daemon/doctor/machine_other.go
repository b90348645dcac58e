//go:build !linux

package doctor

import (
	"context"
	"errors"
	"net/netip"

	"kith.dev/core/api"
)

// Elsewhere the checks of the machine are those of the disk and of the socket: ports, ranges and kernel are looked at on Linux only.

func (m Machine) ports(context.Context, func(api.Finding))     {}
func (m Machine) addresses(context.Context, func(api.Finding)) {}
func (m Machine) kernel(context.Context, func(api.Finding))    {}
func (m Machine) network(context.Context, func(api.Finding))   {}

func synchronised() (yes, known bool) { return false, false }

func carryOut(context.Context, []string) (done []string, err error) {
	return nil, errors.New("kithd mends nothing on this system")
}

func wayTo(netip.Addr) way { return way{} }

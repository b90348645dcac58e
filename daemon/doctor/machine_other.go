//go:build !linux

package doctor

import (
	"context"

	"kith.dev/core/api"
)

// Elsewhere the checks of the machine are those of the disk: ports, ranges and kernel are looked at on Linux only.

func (m Machine) ports(context.Context, func(api.Finding))     {}
func (m Machine) addresses(context.Context, func(api.Finding)) {}
func (m Machine) kernel(context.Context, func(api.Finding))    {}

//go:build !linux

package nodedevice

import (
	"errors"
	"net/netip"
)

// Ensure is for Linux alone: nothing else runs a node.
func Ensure(string, ...netip.Addr) error { return errors.ErrUnsupported }

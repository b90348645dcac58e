//go:build lab && soak

package e2e

import (
	"testing"

	"kith.dev/test/lab"
)

// TestTwoLaptopsShareAWebApplicationWithPodsOfBothFamilies is all of it with pods and services of both, the network over each.
func TestTwoLaptopsShareAWebApplicationWithPodsOfBothFamilies(t *testing.T) {
	shareAWebApplication(t, lab.DualStack, true)
}

// TestTwoLaptopsShareAWebApplicationOverIPv6 is all of it on a LAN whose router advertises a network of IPv6 alone.
func TestTwoLaptopsShareAWebApplicationOverIPv6(t *testing.T) {
	shareAWebApplication(t, lab.IPv6, false)
}

// TestTwoLaptopsShareAWebApplicationOverLinkLocal is all of it at a cable between two laptops, without IPv4 and without a router.
func TestTwoLaptopsShareAWebApplicationOverLinkLocal(t *testing.T) {
	shareAWebApplication(t, lab.LinkLocal, false)
}

package guestnet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/base/durable"
	"kith.dev/core/net/netplan"
)

// network is the file of a namespace, a range as the CNI plugin host-local takes it. The engine's plugin, which gives a guest its address,
// reads it by itself: guests start while kithd does not run.
type network struct {
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
	First   *netip.Addr  `json:"rangeStart,omitempty"`
	Last    *netip.Addr  `json:"rangeEnd,omitempty"` // behind it are shared pods (netplan.Shared), or guests that are elsewhere

	IPv6 *network `json:"ipv6,omitempty"` // the other range, which a plugin of before does not know
}

// WriteNetwork makes pods of a namespace that start from now on get their addresses out of these ranges. dir is the engine's
// (cluster.Facts.GuestNetworks); part is what of guests those here have, the zero value when all are here; guests6 is the IPv6 range, the zero value where there is none. The file is on the disk when this returns; one
// with the same content is not written again.
func WriteNetwork(dir, namespace string, guests, part, guests6 netip.Prefix) error {
	path, err := networkFile(dir, namespace)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkRange(guests), checkRange6(guests6)); err != nil {
		return fmt.Errorf("network of namespace %s: %w", namespace, err)
	}
	last := netplan.LastGuest(guests)
	says := network{Subnet: guests, Gateway: netplan.GuestGateway(guests), Last: &last}
	if part.IsValid() {
		if last = netplan.Last(part); part.Addr() != guests.Addr() {
			says.First = new(part.Addr())
		}
	}
	if guests6.IsValid() {
		says.IPv6 = &network{Subnet: guests6, Gateway: netplan.GuestGateway(guests6)}
	}
	b, err := json.Marshal(says)
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, b) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("network of namespace %s: %w", namespace, err)
	}
	if err := durable.WriteFile(path, b, 0o600); err != nil { // the file beside it has a dot in its name, as no namespace has
		return fmt.Errorf("network of namespace %s: %w", namespace, err)
	}
	return nil
}

// RemoveNetwork removes that file: pods of the namespace can no longer start. Those that run keep their addresses.
func RemoveNetwork(dir, namespace string) error {
	path, err := networkFile(dir, namespace)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("network of namespace %s: %w", namespace, err)
	}
	return nil
}

func networkFile(dir, namespace string) (string, error) {
	if dir == "" {
		return "", errors.New("this cluster's engine does not give guests addresses that Kith chose")
	}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return "", fmt.Errorf("%q is no name of a namespace: %s", namespace, wrong[0])
	}
	return filepath.Join(dir, namespace), nil
}

// checkRange: ranges of that one length are what the maps in the kernel are made for.
func checkRange(guests netip.Prefix) error {
	if err := netplan.CheckGuests(guests); err != nil {
		return err
	}
	if guests.Bits() != netplan.GuestBits {
		return fmt.Errorf("range for guests %s: want a /%d", guests, netplan.GuestBits)
	}
	return nil
}

// checkRange6 is checkRange of IPv6, of which there may be none.
func checkRange6(guests netip.Prefix) error {
	if guests == (netip.Prefix{}) {
		return nil
	}
	if err := netplan.CheckRange6(guests); err != nil {
		return err
	}
	if guests.Bits() != netplan.GuestBits6 {
		return fmt.Errorf("range for guests %s: want a /%d", guests, netplan.GuestBits6)
	}
	return nil
}

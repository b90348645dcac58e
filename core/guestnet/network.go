package guestnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/durable"
	"kith.dev/core/netplan"
)

// network is the file of a namespace, a range as the CNI plugin host-local takes it. The engine's plugin, which gives a guest its address,
// reads it by itself: guests start while kithd does not run.
type network struct {
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
}

// WriteNetwork has pods of a namespace that start from now on get their addresses out of a range for guests. dir is the engine's
// (cluster.Facts.GuestNetworks). It is on the disk when this returns; a file that says so already stays.
func WriteNetwork(dir, namespace string, guests netip.Prefix) error {
	path, err := networkFile(dir, namespace)
	if err != nil {
		return err
	}
	if err := checkRange(guests); err != nil {
		return fmt.Errorf("network of namespace %s: %w", namespace, err)
	}
	b, err := json.Marshal(network{guests, netplan.GuestGateway(guests)})
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

// RemoveNetwork has no pod of a namespace start any more. Those that run stay as they are.
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

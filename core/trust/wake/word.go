package wake

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	// Version is what the documents call themselves.
	Version = "kith.dev/wake/v1"
	// MaxDocument bounds a document, in bytes: in base64 it fits a line of a presence stream.
	MaxDocument = 2 << 10
	// MaxDevices bounds the devices of a word, and the networks of each.
	MaxDevices = 4
	// MaxTime is for how long a word holds at most: who has not used the machine for a month may be surprised by one that starts by itself.
	MaxTime = 30 * 24 * time.Hour
)

// Refusal is why a machine may not be woken.
type Refusal string

// The refusals.
const (
	OnBattery Refusal = "on-battery"
	Withdrawn Refusal = "withdrawn" // its owner lets nobody wake it any more, whatever was signed
	NoDevice  Refusal = "no-device" // nothing in it could be woken by
)

// Word says to one cluster whether it may wake the machine of another. Times have whole seconds, in UTC.
type Word struct {
	Version string            `json:"version"`
	Owner   identity.ID       `json:"owner"` // hash of Key
	Key     ed25519.PublicKey `json:"key"`
	Waker   identity.ID       `json:"waker"` // to whom it is said
	Refused Refusal           `json:"refused,omitempty"`
	// PerDay is how often it may be woken within 24 hours; 0 where it is refused.
	PerDay int64 `json:"perDay,omitempty"`
	// From is when it may be woken first: later than Issued when it was woken often enough. Until is how long the word holds.
	Issued  time.Time `json:"issued"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	Devices []Device  `json:"devices,omitempty"`
}

// Device is a network device that wakes its machine.
type Device struct {
	MAC      string         `json:"mac"`      // of Ethernet, "02:00:5e:10:00:01"
	Networks []netip.Prefix `json:"networks"` // of IPv4, to whose broadcast addresses packets go
}

// Validate says what in it cannot be meant.
func (w Word) Validate() error {
	if w.Version != Version {
		return fmt.Errorf("version %.40q, this Kith reads %s", w.Version, Version)
	}
	if len(w.Key) != ed25519.PublicKeySize {
		return fmt.Errorf("key has %d bytes, want %d", len(w.Key), ed25519.PublicKeySize)
	}
	if got := identity.IDOf(w.Key); got != w.Owner {
		return &identity.MismatchError{Want: w.Owner, Got: got}
	}
	if w.Owner == w.Waker {
		return errors.New("is said to its own machine")
	}
	for _, t := range []time.Time{w.Issued, w.From, w.Until} {
		if t.Year() < 2000 || t.Year() > 9999 || t.Location() != time.UTC || t.Nanosecond() != 0 {
			return errors.New("has a time that is none, or not of whole seconds in UTC")
		}
	}
	if w.From.Before(w.Issued) || w.Until.Before(w.Issued) || w.Until.Sub(w.Issued) > MaxTime {
		return fmt.Errorf("holds from %s until %s, and was said at %s", w.From.Format(time.RFC3339), w.Until.Format(time.RFC3339), w.Issued.Format(time.RFC3339))
	}
	switch w.Refused {
	case OnBattery, Withdrawn, NoDevice:
		if w.PerDay != 0 || len(w.Devices) != 0 {
			return errors.New("refuses, and says how it is woken all the same")
		}
		return nil
	case "":
	default:
		return fmt.Errorf("refused: %.32q is no refusal", w.Refused)
	}
	if w.PerDay < 1 || w.PerDay > contract.MaxWake {
		return fmt.Errorf("perDay: %d, want 1 to %d", w.PerDay, contract.MaxWake)
	}
	if len(w.Devices) < 1 || len(w.Devices) > MaxDevices {
		return fmt.Errorf("has %d devices, want 1 to %d", len(w.Devices), MaxDevices)
	}
	for _, d := range w.Devices {
		if err := d.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (d Device) validate() error {
	if _, err := d.Hardware(); err != nil {
		return err
	}
	if len(d.Networks) < 1 || len(d.Networks) > MaxDevices {
		return fmt.Errorf("device %s has %d networks, want 1 to %d", d.MAC, len(d.Networks), MaxDevices)
	}
	for _, n := range d.Networks {
		if !Network(n) {
			return fmt.Errorf("device %s: %s is not a network of IPv4 with a broadcast address", d.MAC, n)
		}
	}
	return nil
}

// Network reports whether a network has a broadcast address that a word may name.
func Network(n netip.Prefix) bool {
	return n.IsValid() && n.Addr().Is4() && n.Bits() >= 8 && n.Bits() <= 30 && n == n.Masked() &&
		!n.Addr().IsLoopback() && !n.Addr().IsMulticast() && !n.Addr().IsUnspecified()
}

// Hardware is the device's address: that of one device, not of a group.
func (d Device) Hardware() (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(d.MAC)
	if err != nil || len(mac) != 6 || mac.String() != d.MAC || mac[0]&1 != 0 || slices.Equal(mac, make(net.HardwareAddr, 6)) {
		return nil, fmt.Errorf("%.32q is not the address of a network device", d.MAC)
	}
	return mac, nil
}

// Holds reports whether a word says at a time that the machine may be woken.
func (w Word) Holds(now time.Time) bool {
	return w.Refused == "" && !now.Before(w.From) && now.Before(w.Until)
}

var shape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Word]())

// Sign writes a word down as the machine that it is about.
func Sign(w Word, owner *identity.Identity) (canonical.Signed, error) {
	w.Version, w.Owner, w.Key = Version, owner.ID(), owner.Public()
	for _, t := range []*time.Time{&w.Issued, &w.From, &w.Until} {
		*t = t.UTC().Truncate(time.Second)
	}
	doc, err := canonical.Write(w, MaxDocument)
	if err != nil {
		return canonical.Signed{}, fmt.Errorf("%s: %w", Version, err)
	}
	return canonical.Sign(doc, Version, owner), nil
}

// Verify reads a word, and checks that it is its owner's.
func Verify(s canonical.Signed) (Word, error) {
	w, err := canonical.Read[Word](s.Document, shape, MaxDocument)
	if err == nil {
		err = s.Check(Version, w.Key, w.Owner)
	}
	if err != nil {
		return Word{}, fmt.Errorf("%s: %w", Version, err)
	}
	return w, nil
}

// On reports whether an address is on a network of one of the devices.
func (w Word) On(a netip.Addr) bool {
	return slices.ContainsFunc(w.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Networks, func(n netip.Prefix) bool { return n.Contains(a) })
	})
}

package wake

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
)

func key(t testing.TB) *identity.Identity {
	t.Helper()
	id, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func good(waker identity.ID) Word {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return Word{Waker: waker, PerDay: 3, Issued: at, From: at, Until: at.Add(time.Hour), Devices: []Device{
		{MAC: "02:00:5e:10:00:01", Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}},
	}}
}

func TestAWordIsItsOwners(t *testing.T) {
	carol, alice, mallory := key(t), key(t), key(t)
	s, err := Sign(good(alice.ID()), carol)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Verify(s)
	if err != nil || w.Owner != carol.ID() || w.Waker != alice.ID() || w.Devices[0].MAC != "02:00:5e:10:00:01" {
		t.Fatalf("%+v, %v", w, err)
	}
	forged, err := Sign(good(alice.ID()), mallory)
	if err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]canonical.Signed{
		"another's signature":  {Document: s.Document, Signature: forged.Signature},
		"no signature":         {Document: s.Document},
		"more times a day":     {Document: bytes.Replace(s.Document, []byte(`"perDay":3`), []byte(`"perDay":9`), 1), Signature: s.Signature},
		"a cut document":       {Document: s.Document[:len(s.Document)-1], Signature: s.Signature},
		"something behind it":  {Document: append(bytes.Clone(s.Document), ' '), Signature: s.Signature},
		"nothing":              {},
		"a document too large": {Document: bytes.Repeat([]byte(" "), MaxDocument+1), Signature: s.Signature},
		"mallory as carol":     {Document: bytes.Replace(forged.Document, []byte(mallory.ID().String()), []byte(carol.ID().String()), 1), Signature: forged.Signature},
	} {
		if w, err := Verify(bad); err == nil {
			t.Errorf("%s: %+v", what, w)
		}
	}
}

func TestWhatAWordMaySay(t *testing.T) {
	carol, alice := key(t), key(t)
	for what, change := range map[string]func(*Word){
		"no device": func(w *Word) { w.Devices = nil },
		"five devices": func(w *Word) {
			w.Devices = []Device{w.Devices[0], w.Devices[0], w.Devices[0], w.Devices[0], w.Devices[0]}
		},
		"never":               func(w *Word) { w.PerDay = 0 },
		"too often":           func(w *Word) { w.PerDay = 25 },
		"for too long":        func(w *Word) { w.Until = w.Issued.Add(MaxTime + time.Second) },
		"over before":         func(w *Word) { w.Until = w.Issued.Add(-time.Second) },
		"before it was said":  func(w *Word) { w.From = w.Issued.Add(-time.Second) },
		"to itself":           func(w *Word) { w.Waker = carol.ID() },
		"another refusal":     func(w *Word) { w.Refused, w.PerDay, w.Devices = "mood", 0, nil },
		"refused with a way":  func(w *Word) { w.Refused = OnBattery },
		"everybody's address": func(w *Word) { w.Devices[0].MAC = "ff:ff:ff:ff:ff:ff" },
		"a group's address":   func(w *Word) { w.Devices[0].MAC = "01:00:5e:00:00:01" },
		"no address":          func(w *Word) { w.Devices[0].MAC = "00:00:00:00:00:00" },
		"another spelling":    func(w *Word) { w.Devices[0].MAC = "02-00-5e-10-00-01" },
		"eight bytes":         func(w *Word) { w.Devices[0].MAC = "02:00:5e:10:00:00:00:01" },
		"no network":          func(w *Word) { w.Devices[0].Networks = nil },
		"the whole internet":  func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("0.0.0.0/0") },
		"one address":         func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("8.8.8.8/32") },
		"a group":             func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("224.0.0.0/24") },
		"this machine":        func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("127.0.0.0/8") },
		"of IPv6":             func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("fd00::/64") },
		"not masked":          func(w *Word) { w.Devices[0].Networks[0] = netip.MustParsePrefix("192.168.1.7/24") },
	} {
		w := good(alice.ID())
		change(&w)
		if _, err := Sign(w, carol); err == nil {
			t.Errorf("%s: is signed", what)
		}
	}
	for _, r := range []Refusal{OnBattery, Withdrawn, NoDevice} {
		w := good(alice.ID())
		w.Refused, w.PerDay, w.Devices = r, 0, nil
		if s, err := Sign(w, carol); err != nil {
			t.Error(err)
		} else if got, err := Verify(s); err != nil || got.Refused != r || got.Holds(w.From) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	// The most that there may be fits a line of a presence stream (4 KiB), signature and all.
	w := good(alice.ID())
	w.Devices = nil
	for i := range MaxDevices {
		d := Device{MAC: "02:00:5e:10:00:0" + string(rune('0'+i))}
		for range MaxDevices {
			d.Networks = append(d.Networks, netip.MustParsePrefix("255.255.255.252/30"))
		}
		w.Devices = append(w.Devices, d)
	}
	if s, err := Sign(w, carol); err != nil {
		t.Error(err)
	} else if n := base64.StdEncoding.EncodedLen(len(s.Document)); n > 3000 {
		t.Errorf("a line would have more than %d bytes", n)
	}
}

func TestWhenAWordHolds(t *testing.T) {
	w := good(identity.ID{1})
	w.From = w.Issued.Add(time.Minute)
	for after, want := range map[time.Duration]bool{0: false, time.Minute - 1: false, time.Minute: true, time.Hour - 1: true, time.Hour: false, -time.Hour: false} {
		if got := w.Holds(w.Issued.Add(after)); got != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
}

// Whatever comes from the network: what is taken is of one spelling, and names no machine and no network that packets must not go to.
func FuzzVerify(f *testing.F) {
	carol, alice := key(f), key(f)
	s, err := Sign(good(alice.ID()), carol)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Document)
	f.Add([]byte(strings.Replace(string(s.Document), "192.168.1.0/24", "0.0.0.0/0", 1)))
	f.Add([]byte(`{"version":"kith.dev/wake/v1"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		w, err := Verify(canonical.Sign(doc, Version, carol))
		if err != nil {
			return
		}
		again, err := Sign(w, carol)
		if err != nil || !bytes.Equal(again.Document, doc) {
			t.Fatalf("%q is read as %q: %v", doc, again.Document, err)
		}
		for _, d := range w.Devices {
			for _, n := range d.Networks {
				if n.Addr().IsMulticast() || n.Addr().IsLoopback() || n.Bits() < 8 {
					t.Fatalf("%s is sent to", n)
				}
			}
		}
	})
}

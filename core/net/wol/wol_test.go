package wol

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestTheMagicPacket(t *testing.T) {
	mac, err := net.ParseMAC("02:00:5e:10:00:01")
	if err != nil {
		t.Fatal(err)
	}
	p := Packet(mac)
	if len(p) != 102 || !bytes.Equal(p[:6], []byte{255, 255, 255, 255, 255, 255}) {
		t.Fatalf("%x", p)
	}
	for i := 6; i < len(p); i += 6 {
		if !bytes.Equal(p[i:i+6], mac) {
			t.Errorf("at %d: %x", i, p[i:i+6])
		}
	}
}

func TestBroadcast(t *testing.T) {
	for network, want := range map[string]string{
		"192.168.1.0/24": "192.168.1.255", "10.0.0.0/8": "10.255.255.255", "172.16.4.0/22": "172.16.7.255", "192.0.2.4/30": "192.0.2.7", "192.168.1.130/25": "192.168.1.255",
	} {
		if got := Broadcast(netip.MustParsePrefix(network)); got.String() != want {
			t.Errorf("%s: %s, want %s", network, got, want)
		}
	}
}

func TestNothingIsSentToOtherNetworks(t *testing.T) {
	here := []Device{{Name: "eth0", Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}, addrs: []netip.Addr{netip.MustParseAddr("192.168.1.7")}}}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, other := range []string{"192.168.0.0/16", "192.168.1.0/25", "10.0.0.0/8"} {
		if err := Send(t.Context(), here, mac, []netip.Prefix{netip.MustParsePrefix(other)}); !errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := Send(t.Context(), nil, mac, here[0].Networks); !errors.Is(err, ErrElsewhere) {
		t.Errorf("without a device: %v", err)
	}
}

// A series goes out over the machine's own loop, whose broadcast address Linux has too.
func TestASeriesIsThreePackets(t *testing.T) {
	listener, err := net.ListenPacket("udp4", "127.255.255.255:9")
	if err != nil {
		t.Skipf("port 9 cannot be taken here: %v", err)
	}
	defer listener.Close()
	lo := netip.MustParsePrefix("127.0.0.0/8")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		sent <- Send(ctx, []Device{{Name: "lo", Networks: []netip.Prefix{lo}, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, mac, []netip.Prefix{lo})
	}()
	listener.SetReadDeadline(time.Now().Add(30 * time.Second))
	for range series {
		buf := make([]byte, 256)
		n, _, err := listener.ReadFrom(buf)
		if err != nil || !bytes.Equal(buf[:n], Packet(mac)) {
			t.Fatalf("%x, %v", buf[:n], err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// An error says that no packet went out, so that who counts them can take a time back; a network that fails does not hinder another.
func TestAnErrorSaysThatNothingWasSent(t *testing.T) {
	lo, foreign := netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")
	gone := Device{Name: "eth9", Networks: []netip.Prefix{foreign}, addrs: []netip.Addr{netip.MustParseAddr("203.0.113.9")}} // an address that is not this machine's any more
	works := Device{Name: "lo", Networks: []netip.Prefix{lo}, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for what, tt := range map[string]struct {
		from []Device
		sent bool
	}{
		"none works": {[]Device{gone}, false}, "the second works": {[]Device{gone, works}, true}, "the first works": {[]Device{works, gone}, true},
	} {
		if err := Send(t.Context(), tt.from, mac, []netip.Prefix{lo, foreign}); (err == nil) != tt.sent || errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), pause/2)
	defer cancel()
	if err := Send(ctx, []Device{works}, mac, []netip.Prefix{lo}); err != nil {
		t.Errorf("ended after the first packet: %v", err)
	}
}

func TestWhatADeviceReaches(t *testing.T) {
	d := Device{Name: "eth0", Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}, six: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64")}}
	for addr, want := range map[string]bool{
		"192.168.1.20": true, "::ffff:192.168.1.20": true, "192.168.2.20": false, "2001:db8:1::7": true, "2001:db8:2::7": false,
		"fe80::7%eth0": true, "fe80::7%eth1": false, "fe80::7": false, "169.254.0.7": false,
	} {
		if got := d.Reaches(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if d.Reaches(netip.Addr{}) {
		t.Error("no address is reached")
	}
}

func TestDevicesThatAreGoneAreLeftOut(t *testing.T) {
	list, err := Devices([]string{"lo", "none-such"}) // no address of Ethernet; none at all
	if err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

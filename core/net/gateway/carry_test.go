package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"

	"kith.dev/core/net/netplan"
)

func TestFrames(t *testing.T) {
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:6450"), netip.MustParseAddrPort("[2001:db8::7]:1")}
	stream := appendFrame(nil, frameEndpoints, formatEndpoints(endpoints, netip.AddrPort{}))
	packet := bytes.Repeat([]byte{7}, maxPacketFrame)
	stream = appendFrame(appendFrame(stream, framePacket, packet), framePacket, packet[:minPacketFrame])
	in, buf := bufio.NewReader(bytes.NewReader(stream)), make([]byte, maxPacketFrame)
	kind, content, err := readFrame(in, buf)
	if got, _ := parseEndpoints(content); err != nil || kind != frameEndpoints || !slices.Equal(got, endpoints) {
		t.Errorf("endpoints: %d, %v, %v", kind, got, err)
	}
	if kind, content, err = readFrame(in, buf); err != nil || kind != framePacket || !bytes.Equal(content, packet) {
		t.Errorf("the largest packet: %d, %d bytes, %v", kind, len(content), err)
	}
	if kind, content, err = readFrame(in, buf); err != nil || kind != framePacket || len(content) != minPacketFrame {
		t.Errorf("the smallest: %d, %d bytes, %v", kind, len(content), err)
	}
	for name, hostile := range map[string][]byte{
		"no such kind":           {0, 0, 0},
		"too large a packet":     {byte(framePacket), 0xff, 0xff},
		"too small a packet":     appendFrame(nil, framePacket, make([]byte, minPacketFrame-1)),
		"too many endpoints":     appendFrame(nil, frameEndpoints, make([]byte, maxEndpointsFrame+1)),
		"broken off":             {byte(framePacket), 0, 9, 1},
		"broken off in its head": {byte(framePacket), 0},
	} {
		if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(hostile)), buf); err == nil {
			t.Errorf("%s: is taken", name)
		}
	}
}

func TestEndpointsThatLeadNowhereAreNotTried(t *testing.T) {
	for _, told := range []string{"127.0.0.1:6450", "224.0.0.1:6450", "0.0.0.0:6450", "[fe80::1%lo]:6450", "[fe80::1]:6450", "198.51.100.1:0", "bob:6450", "", "198.51.100.1"} {
		if got, _ := parseEndpoints([]byte(told + "\n")); len(got) > 0 {
			t.Errorf("%q would be tried", told)
		}
	}
	if got, _ := parseEndpoints(bytes.Repeat([]byte("198.51.100.1:9\n"), 9)); len(got) != 4 {
		t.Errorf("%d endpoints are tried", len(got))
	}
}

func TestWhatIsTried(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}
	for a, want := range map[string]bool{"203.0.113.7": true, "2001:db8::7": true, "192.168.7.9": true, "192.168.8.9": false, "10.0.0.1": false, "fd00::1": false, "100.64.0.1": false} {
		if got := mayTry(netip.MustParseAddr(a), lan); got != want {
			t.Errorf("%s is tried: %t", a, got)
		}
	}
}

// TestEndpointsAreToldAsTheyAre: which of them a router maps, and to older versions, which know nothing of that, all of them.
func TestEndpointsAreToldAsTheyAre(t *testing.T) {
	at := netip.MustParseAddrPort
	seen, mapped := []netip.AddrPort{at("203.0.113.7:6450"), at("203.0.113.7:40000")}, at("203.0.113.7:6450")
	list, byRouter := parseEndpoints(formatEndpoints(seen, mapped))
	if !slices.Equal(list, seen) || !slices.Equal(byRouter, []netip.AddrPort{mapped}) {
		t.Errorf("%v are told, %v of them mapped", list, byRouter)
	}
	for range netplan.MaxEndpoints {
		seen = append(seen, at("[2001:db8:1111:2222:3333:4444:5555:6666]:65535"))
	}
	content := formatEndpoints(seen, at("[2001:db8:1111:2222:3333:4444:5555:7777]:65535"))
	if list, byRouter = parseEndpoints(content); len(content) > maxEndpointsFrame || len(list) != netplan.MaxEndpoints || len(byRouter) != 1 {
		t.Errorf("%d bytes, %d endpoints, %d mapped", len(content), len(list), len(byRouter))
	}
	if _, byRouter := parseEndpoints([]byte("mapped 203.0.113.7:6450\n")); len(byRouter) != 0 {
		t.Error("a mapped endpoint counts that is none of the list")
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, frameEndpoints, []byte("203.0.113.7:6450\n")), framePacket, []byte("x")))
	f.Add(append(appendFrame(appendFrame(nil, framePacket, make([]byte, minPacketFrame)), framePacket, make([]byte, minPacketFrame)), byte(framePacket), 0xff, 0xff))
	f.Fuzz(func(t *testing.T, stream []byte) {
		in, buf := bufio.NewReader(bytes.NewReader(stream)), make([]byte, maxPacketFrame)
		for left := len(stream); ; {
			there := frameThere(in)
			kind, content, err := readFrame(in, buf)
			if there && errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal("a frame is there, and is waited for")
			}
			if err != nil {
				return
			}
			if left -= frameHeader + len(content); left < 0 {
				t.Fatal("more was read than there is")
			}
			if kind == frameEndpoints {
				list, mapped := parseEndpoints(content)
				for _, e := range slices.Concat(list, mapped) {
					if e.Addr().IsLoopback() || e.Port() == 0 {
						t.Fatalf("%s would be tried", e)
					}
				}
			}
		}
	})
}

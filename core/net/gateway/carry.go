package gateway

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"kith.dev/core/net/netplan"
)

// Where UDP does not lead to a peer, a connection with it carries what WireGuard sends: frames of a kind, a length and so many bytes.
type frameKind byte

const (
	framePacket    frameKind = 1 // a message of WireGuard
	frameEndpoints frameKind = 2 // where the sender's WireGuard was seen, one endpoint a line: to be tried
)

// Bounds of frames. A message of WireGuard is as large as an outer packet on Ethernet at most.
const (
	minPacketFrame    = 32 // a keepalive, the smallest of them
	maxPacketFrame    = 1500
	maxEndpointsFrame = 256
	frameHeader       = 3
)

// appendFrame writes a frame behind b.
func appendFrame(b []byte, kind frameKind, content []byte) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint16(b, uint16(len(content)))
	return append(b, content...)
}

// readFrame reads a frame into buf, which has room for the largest. An error is the end: nothing behind it can be told apart.
func readFrame(in *bufio.Reader, buf []byte) (kind frameKind, content []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	kind = frameKind(head[0])
	var most int
	switch kind {
	case framePacket:
		most = maxPacketFrame
	case frameEndpoints:
		most = maxEndpointsFrame
	default:
		return 0, nil, fmt.Errorf("a frame of kind %d, which there is not", kind)
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if kind == framePacket && n < minPacketFrame {
		return 0, nil, fmt.Errorf("a packet of %d bytes, which is no message of WireGuard", n)
	}
	if n > most {
		return 0, nil, fmt.Errorf("a frame of kind %d has %d bytes, at most %d are taken", kind, n, most)
	}
	content = buf[:n]
	_, err = io.ReadFull(in, content)
	return kind, content, err
}

// frameThere reports whether a whole frame was read from the connection already.
func frameThere(in *bufio.Reader) bool {
	if in.Buffered() < frameHeader {
		return false
	}
	head, err := in.Peek(frameHeader)
	return err == nil && in.Buffered() >= frameHeader+int(binary.BigEndian.Uint16(head[1:]))
}

// shared are the addresses that carriers have behind their routers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// mayTry reports whether an address of a peer's telling is that of one place for all, or of a network this host is in.
func mayTry(a netip.Addr, lan []netip.Prefix) bool {
	if slices.ContainsFunc(lan, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return true
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}

// mappedLine begins the line of an endpoint that a router maps. It is a line of its own beside the endpoint's, since older versions leave it out.
const mappedLine = "mapped "

// formatEndpoints is the content of a frame of endpoints: those at which a host was seen, and the one that its router maps, if there is one, first.
func formatEndpoints(seen []netip.AddrPort, mapped netip.AddrPort) []byte {
	list := slices.Clone(seen)
	if mapped.IsValid() {
		list = append([]netip.AddrPort{mapped}, slices.DeleteFunc(list, func(e netip.AddrPort) bool { return e == mapped })...)
	}
	var b []byte
	for _, e := range list[:min(len(list), netplan.MaxEndpoints)] {
		b = append(e.AppendTo(b), '\n')
	}
	if mapped.IsValid() {
		b = append(mapped.AppendTo(append(b, mappedLine...)), '\n')
	}
	return b
}

// parseEndpoints are those of a peer's telling that may be tried, and which of them a router maps; what leads nowhere is left out.
func parseEndpoints(content []byte) (list, mapped []netip.AddrPort) {
	for line := range strings.Lines(string(content)) {
		text, isMapped := strings.CutPrefix(strings.TrimSpace(line), mappedLine)
		e, err := netip.ParseAddrPort(text)
		switch {
		case err != nil || netplan.CheckEndpoint(e) != nil:
		case isMapped && len(mapped) < netplan.MaxEndpoints:
			mapped = append(mapped, e)
		case !isMapped && len(list) < netplan.MaxEndpoints:
			list = append(list, e)
		}
	}
	return list, slices.DeleteFunc(mapped, func(e netip.AddrPort) bool { return !slices.Contains(list, e) })
}

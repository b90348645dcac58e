package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// interfaces knows by their names the interfaces behind which peers with link-local addresses are.
type interfaces struct {
	mu      sync.Mutex
	indexes map[string]uint32
}

// scoped has a link-local endpoint name its interface to the kernel. The standard bind sends to the address without its zone, to whichever
// interface the kernel thinks of first: every interface has a route to link-local addresses. Only in an endpoint that came with a
// packet it notes the interface, as where it came from, and forgets that again when a peer does not answer.
func (n *interfaces) scoped(to conn.Endpoint) (conn.Endpoint, error) {
	e, ok := to.(*conn.StdNetEndpoint)
	if !ok || e.Addr().Zone() == "" || e.SrcIfidx() != 0 {
		return to, nil
	}
	index, err := n.index(e.Addr().Zone())
	if err != nil {
		return nil, fmt.Errorf("send to %s: %w", e.AddrPort, err)
	}
	return from(e, index), nil
}

func (n *interfaces) index(name string) (uint32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if index, known := n.indexes[name]; known {
		return index, nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	if n.indexes == nil {
		n.indexes = map[string]uint32{}
	}
	n.indexes[name] = uint32(i.Index)
	return uint32(i.Index), nil
}

func (n *interfaces) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.indexes)
}

// stdNetEndpoint has the fields of conn.StdNetEndpoint, which gives no way to set where its packets leave.
type stdNetEndpoint struct {
	netip.AddrPort
	src []byte // a control message as the kernel takes it (IPV6_PKTINFO)
}

// It does not compile when the sizes differ; TestALinkLocalEndpointNamesItsInterface looks at the rest.
var _ = [1]struct{}{}[unsafe.Sizeof(stdNetEndpoint{})-unsafe.Sizeof(conn.StdNetEndpoint{})]

// from is the same endpoint, whose packets leave by an interface, from an address that the kernel chooses (RFC 3542, section 6.7).
func from(e *conn.StdNetEndpoint, index uint32) *conn.StdNetEndpoint {
	src := make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&src[0]))
	header.Level, header.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
	header.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
	(*unix.Inet6Pktinfo)(unsafe.Pointer(&src[unix.CmsgLen(0)])).Ifindex = index
	return (*conn.StdNetEndpoint)(unsafe.Pointer(&stdNetEndpoint{e.AddrPort, src}))
}

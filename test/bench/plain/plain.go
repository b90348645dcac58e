// Package plain is what a tunnel of Kith is held against: wireguard-go as it comes, between two hosts on a LAN as the lab's laptops are, with a
// pod behind a veth at each. wireguard-go runs in processes of the caller's own program, which hands them to Serve.
//
// It must never use anything of Kith's, or set more than wireguard-go has by itself: then it would be no measure.
package plain

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// Tunnel is one. Hosts and pods are network namespaces without names, which go with this process.
type Tunnel struct {
	Processes []int // of wireguard-go, at both ends

	load string // the program of the image of that name
	ends [2]*end
	undo []func()
}

type end struct {
	host, pod     netns.NsHandle
	hostNL, podNL *netlink.Handle
	lan, podAt    netip.Addr
	pods          netip.Prefix
	key           *ecdh.PrivateKey
}

const (
	listenPort = 6451
	usualMTU   = 1420 // as wireguard-go has it by itself; a gateway's is less by the header that it adds
)

// New makes one; what it has to build comes into dir.
func New(ctx context.Context, dir string) (t *Tunnel, err error) {
	t = &Tunnel{load: dir + "/load"}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", t.load, "./test/images/load").CombinedOutput(); err != nil {
		return t, fmt.Errorf("%w\n%s", err, out)
	}
	_, lan, err := t.space()
	if err != nil {
		return t, err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := errors.Join(lan.LinkAdd(bridge), lan.LinkSetUp(bridge)); err != nil {
		return t, err
	}
	for i := range t.ends {
		if t.ends[i], err = t.end(i, lan, bridge); err != nil {
			return t, err
		}
	}
	for i, e := range t.ends {
		if err := t.join(e, t.ends[1-i]); err != nil {
			return t, err
		}
	}
	server := exec.CommandContext(ctx, t.load, "serve")
	return t, t.start(server, t.ends[1].pod)
}

// Close ends it, and takes it away.
func (t *Tunnel) Close() {
	for _, f := range slices.Backward(t.undo) {
		f()
	}
}

// end makes a host with its pod: 172.31.0.1 and 10.46.1.5 is the first.
func (t *Tunnel) end(i int, lan *netlink.Handle, bridge netlink.Link) (*end, error) {
	n := byte(i + 1)
	e := &end{
		lan: netip.AddrFrom4([4]byte{172, 31, 0, n}), podAt: netip.AddrFrom4([4]byte{10, 46, n, 5}),
		pods: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 46, n, 0}), 24),
	}
	var err error
	if e.key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	if e.host, e.hostNL, err = t.space(); err != nil {
		return nil, err
	}
	if e.pod, e.podNL, err = t.space(); err != nil {
		return nil, err
	}
	port := fmt.Sprintf("port%d", n)
	if err := errors.Join(cable(lan, port, e.host, e.hostNL, "eth0", netip.PrefixFrom(e.lan, 24), 1500),
		cable(e.hostNL, "pod", e.pod, e.podNL, "eth0", netip.PrefixFrom(e.podAt, 24), usualMTU)); err != nil {
		return nil, err
	}
	in, err := lan.LinkByName(port)
	if err != nil {
		return nil, err
	}
	router := e.pods.Addr().Next()
	return e, errors.Join(lan.LinkSetMaster(in, bridge), address(e.hostNL, "pod", netip.PrefixFrom(router, 24)),
		e.podNL.RouteAdd(&netlink.Route{Gw: router.AsSlice()}),
		inSpace(e.host, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }))
}

// join starts wireguard-go at e, to o.
func (t *Tunnel) join(e, o *end) error {
	settings := fmt.Sprintf("private_key=%s\nlisten_port=%d\nreplace_peers=true\npublic_key=%s\nendpoint=%s\nallowed_ip=%s\n",
		hex.EncodeToString(e.key.Bytes()), listenPort, hex.EncodeToString(o.key.PublicKey().Bytes()), netip.AddrPortFrom(o.lan, listenPort), o.pods)
	c := exec.Command("/proc/self/exe")
	c.Env, c.Stderr = append(os.Environ(), Settings+"="+settings), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := t.start(c, e.host); err != nil {
		return err
	}
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		return fmt.Errorf("wireguard-go did not come up: %w", err)
	}
	t.Processes = append(t.Processes, c.Process.Pid)
	wg, err := e.hostNL.LinkByName("wg0")
	if err != nil {
		return err
	}
	to := &net.IPNet{IP: o.pods.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}
	return errors.Join(e.hostNL.LinkSetUp(wg),
		e.hostNL.RouteAdd(&netlink.Route{Dst: to, LinkIndex: wg.Attrs().Index, Scope: netlink.SCOPE_LINK}))
}

// Send runs load between the two pods.
func (t *Tunnel) Send(ctx context.Context, report any, args ...string) error {
	c := exec.CommandContext(ctx, t.load, append(args, fmt.Sprintf("%s:7000", t.ends[1].podAt))...)
	var out []byte
	err := inSpace(t.ends[0].pod, func() (err error) { out, err = c.Output(); return err })
	if err != nil {
		return err
	}
	return json.Unmarshal(out, report)
}

// start runs a command in a namespace until Close.
func (t *Tunnel) start(c *exec.Cmd, ns netns.NsHandle) error {
	in, err := c.StdinPipe()
	if err == nil {
		err = inSpace(ns, c.Start)
	}
	if err != nil {
		return err
	}
	t.undo = append(t.undo, func() {
		in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return nil
}

// Settings is the variable of the environment by which a process knows that it is for Serve.
const Settings = "KITH_BENCH_WIREGUARD"

// Serve is the process of join; it ends with its standard input.
func Serve(settings string) error {
	native, err := tun.CreateTUN("wg0", usualMTU)
	if err != nil {
		return err
	}
	d := device.NewDevice(native, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "wireguard-go: "))
	defer d.Close()
	if err := errors.Join(d.IpcSet(settings), d.Up()); err != nil {
		return err
	}
	fmt.Println("up")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// space makes a network namespace.
func (t *Tunnel) space() (ns netns.NsHandle, nl *netlink.Handle, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		return ns, nil, err
	}
	if nl, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		return ns, nil, err
	}
	t.undo = append(t.undo, func() { nl.Close(); ns.Close() })
	lo, err := nl.LinkByName("lo")
	if err != nil {
		return ns, nil, err
	}
	return ns, nl, nl.LinkSetUp(lo)
}

func inSpace(ns netns.NsHandle, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // as in space
		err := netns.Set(ns)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// cable lays one from here to a device there, which gets an address.
func cable(here *netlink.Handle, name string, ns netns.NsHandle, there *netlink.Handle, device string, at netip.Prefix, mtu int) error {
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: device, PeerNamespace: netlink.NsFd(int(ns)), PeerMTU: uint32(mtu),
	}
	return errors.Join(here.LinkAdd(link), here.LinkSetUp(link), address(there, device, at))
}

func address(nl *netlink.Handle, device string, at netip.Prefix) error {
	link, err := nl.LinkByName(device)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: at.Addr().AsSlice(), Mask: net.CIDRMask(at.Bits(), 32)}}
	return errors.Join(nl.AddrAdd(link, a), nl.LinkSetUp(link))
}

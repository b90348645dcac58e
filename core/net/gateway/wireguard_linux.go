package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/netplan"
)

// wireguard is the running half of a Gateway: the WireGuard device and the kernel's side of it.
type wireguard struct {
	dev    *device.Device
	node   *noderoute.Node
	port   uint16
	tooBig <-chan struct{} // a path turned out narrower than known
	told   map[Key]remote  // what WireGuard has
	kept   map[Key]bool    // whom WireGuard was told to keep alive
	tap    *tap
	bind   *bind
}

func newWireGuard(ctx context.Context, cfg Config, t *tap, shook func()) (*wireguard, error) {
	native, err := createTUN(ctx, cfg.Device, DefaultMTU)
	if err != nil {
		return nil, err
	}
	if t.transit, err = newTransit(native.File()); err != nil {
		native.Close()
		return nil, err
	}
	t.Device = native
	t.outbound, t.inbound = newInFlight(), newInFlight()
	tooBig := make(chan struct{}, 1)
	socket := newBind(tooBig, shook, t.outbound, t.inbound)
	dev := device.NewDevice(t, socket, deviceLog(cfg.Log))
	w := &wireguard{dev: dev, bind: socket, port: cfg.ListenPort, tooBig: tooBig, told: map[Key]remote{}, kept: map[Key]bool{}, tap: t}
	settings := fmt.Sprintf("private_key=%s\nlisten_port=%d\nreplace_peers=true\n", cfg.PrivateKey.hex(), cfg.ListenPort)
	if err = dev.IpcSet(settings); err != nil {
		err = fmt.Errorf("configure WireGuard: %w", err)
	} else if err = dev.Up(); err != nil {
		err = fmt.Errorf("listen on UDP port %d: %w; is another kithd or a WireGuard interface using it?", cfg.ListenPort, err)
	} else {
		w.node, err = noderoute.Up(cfg.Device, cfg.Address, cfg.Log)
	}
	if err == nil && cfg.IPv6 != (netplan.Cluster6{}) {
		if err := w.node.UseIPv6(cfg.IPv6.Gateway()); err != nil {
			cfg.Log.Warn("peers are reached by IPv4 alone", "err", err)
		}
	}
	if err != nil {
		dev.Close()
		return nil, err
	}
	return w, nil
}

// createTUN waits a moment for the device of a predecessor that was just killed.
func createTUN(ctx context.Context, name string, mtu int) (tun.Device, error) {
	for deadline := time.Now().Add(3 * time.Second); ; {
		d, err := openTUN(name, mtu)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return nil, fmt.Errorf("create device %s: %w; it needs root, /dev/net/tun, and that no other kithd runs", name, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openTUN makes what tun.CreateTUN does, without its listeners: one of them writes to the device each second to find out whether somebody took
// it down. Nothing is sent or received on one that was, and all goes on when it is up again.
func openTUN(name string, mtu int) (tun.Device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	d, _, err := tun.CreateUnmonitoredTUNFromFD(fd) // the descriptor is its own from here on, also when it fails
	if err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetMTU(link, mtu)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (w *wireguard) close() {
	w.dev.Close()
	w.node.Down()
}

// sync tells WireGuard what changed. An endpoint that is the same as before is left alone: WireGuard may know a newer one from the other's
// own packets. The keepalive is left to hello: setting it begins a handshake.
func (w *wireguard) sync(want map[Key]remote) error {
	for k := range w.told {
		if _, still := want[k]; !still {
			w.dev.RemovePeer(device.NoisePublicKey(k))
			delete(w.told, k)
			delete(w.kept, k)
		}
	}
	var errs []error
	for k, r := range want {
		old, known := w.told[k]
		same := slices.Equal(old.handles, r.handles)
		if known && same && old.endpoint == r.endpoint {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "public_key=%s\n", k.hex())
		if r.endpoint.IsValid() && r.endpoint != old.endpoint {
			fmt.Fprintf(&b, "endpoint=%s\n", r.endpoint)
		}
		if !same {
			b.WriteString("replace_allowed_ips=true\n")
			for _, h := range r.handles {
				fmt.Fprintf(&b, "allowed_ip=%s/32\n", h)
			}
		}
		if err := w.dev.IpcSet(b.String()); err != nil {
			errs = append(errs, fmt.Errorf("configure WireGuard: %w", err))
			continue
		}
		w.told[k] = r
	}
	return errors.Join(errs...)
}

// rebind opens the UDP socket anew on the same port and forgets cached source addresses. Device.BindUpdate alone
// would move to a random port for good after the port was busy once.
func (w *wireguard) rebind() error {
	return w.dev.IpcSet(fmt.Sprintf("listen_port=%d\n", w.port))
}

// deviceLog passes WireGuard's own words on. Its errors repeat with every packet while a network is away, so they
// are kept to one in ten seconds, and are for us: the owner is told by Stats.
func deviceLog(log *slog.Logger) *device.Logger {
	l := &device.Logger{Verbosef: device.DiscardLogf}
	limit := rate.NewLimiter(rate.Every(10*time.Second), 3)
	l.Errorf = func(format string, args ...any) {
		if limit.Allow() {
			log.Debug("wireguard: " + fmt.Sprintf(format, args...))
		}
	}
	return l
}

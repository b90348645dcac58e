package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/hostnet"
)

// Options say whose ways are kept.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	Cluster  netip.Prefix // pods of all nodes
	// Server is the node whose address in the cluster may be one that is not on the LAN; there it is at ServerLAN.
	Server    string
	ServerLAN netip.Addr
	// Others is told from where other nodes speak, first before any way is made.
	Others func(context.Context, []netip.Prefix) error
}

const (
	settle = 200 * time.Millisecond // many changes come together
	again  = 5 * time.Second
)

// Run keeps the ways until ctx ends, and leaves them: pods run on.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	news := make(chan struct{}, 1)
	wake := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithTransform(essence))
	nodes := factory.Core().V1().Nodes().Informer()
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, DeleteFunc: func(any) { wake() },
		UpdateFunc: func(was, is any) {
			if nodeOf(was.(*corev1.Node)) != nodeOf(is.(*corev1.Node)) {
				wake()
			}
		},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
		return nil
	}
	// The kernel takes routes away when a link goes down.
	var host hostnet.Changes
	changed, stop, err := host.Listen(hostnet.Links | hostnet.Addresses | hostnet.Routes)
	if err != nil {
		return err
	}
	defer stop()
	var told, said string
	for {
		ways, others, odd := Plan(o.NodeName, o.Cluster, o.list(nodes.GetStore().List()))
		var retry <-chan time.Time
		err := func() error {
			if now := fmt.Sprint(others); now != told {
				if err := o.Others(ctx, others); err != nil {
					return fmt.Errorf("let other nodes in: %w", err)
				}
				told = now
			}
			return apply(ways)
		}()
		if err != nil {
			odd, retry = append(odd, err.Error()), time.After(again)
		}
		if now := fmt.Sprint(odd); now != said && ctx.Err() == nil {
			if said = now; len(odd) > 0 {
				log.Warn("pods of some nodes are not reached from here", "why", odd)
			} else {
				log.Info("pods of all nodes are reached from here", "others", counted(ways))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-news:
		case _, ok := <-changed:
			if !ok {
				return errors.New("the kernel tells no more of changes of its routes")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

// counted is how many nodes ways lead to.
func counted(ways []Way) int {
	at := map[netip.Addr]bool{}
	for _, w := range ways {
		at[w.Via] = true
	}
	return len(at)
}

// essence drops what nobody here reads.
func essence(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	small := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR}, Status: corev1.NodeStatus{Addresses: n.Status.Addresses}}
	small.Name, small.UID, small.ResourceVersion, small.CreationTimestamp = n.Name, n.UID, n.ResourceVersion, n.CreationTimestamp
	if n.Labels[v1alpha1.LabelPeer] != "" {
		small.Spec.PodCIDR = "" // a peer; its pods are not on this LAN
	}
	return small, nil
}

func nodeOf(n *corev1.Node) Node {
	is := Node{Name: n.Name}
	is.Pods, _ = netip.ParsePrefix(n.Spec.PodCIDR) // the zero value: it has none
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && ip.Is4() {
			is.IP, is.LAN = ip, ip
			break
		}
	}
	return is
}

// list are the nodes, oldest first.
func (o Options) list(objects []any) (list []Node) {
	all := make([]*corev1.Node, 0, len(objects))
	for _, obj := range objects {
		all = append(all, obj.(*corev1.Node))
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, n := range all {
		is := nodeOf(n)
		if n.Name == o.Server && is.IP.IsValid() {
			is.LAN = o.ServerLAN
		}
		list = append(list, is)
	}
	return list
}

func filter() *netlink.Route { return &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_MAIN} }

// apply makes the kernel's routes of ours those that are wanted.
func apply(want []Way) error {
	routes, err := netlink.RouteListFiltered(unix.AF_INET, filter(), netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var have []Way
	for _, r := range routes {
		via, _ := netip.AddrFromSlice(r.Gw)
		have = append(have, Way{hostnet.Prefix(r.Dst), via.Unmap()})
	}
	put, drop := Changes(have, want)
	var errs []error
	for _, w := range put {
		if err := netlink.RouteReplace(&netlink.Route{Dst: hostnet.IPNet(w.To), Gw: w.Via.AsSlice(), Protocol: Protocol}); err != nil {
			errs = append(errs, fmt.Errorf("route to %s by %s: %w; is that address on a LAN that this machine is on?", w.To, w.Via, err))
		}
	}
	for _, w := range drop {
		if err := netlink.RouteDel(&netlink.Route{Dst: hostnet.IPNet(w.To), Gw: w.Via.AsSlice(), Protocol: Protocol}); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", w.To, err))
		}
	}
	return errors.Join(errs...)
}

// Remove takes all ways away, of a node that is alone now.
func Remove() error { return apply(nil) }

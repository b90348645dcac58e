// Kith-mark is a CNI plugin (CNI specification 1.0.0) that comes after the one that made a pod's link. Of a guest's it marks the
// host's end: the group tells the fence that whatever comes over the link comes from a guest; the alias, the
// pod's UID, tells which. And it waits until the NetworkPolicies of the pod are in force. containerd calls it before the
// pod's first program runs, and starts none if it fails.
//
// As an address plugin (IPAM) it stands before host-local, and says out of which range a guest's address is: see address.go.
//
// It must never change anything but that link, and how the kernel filters what comes over it and its bridge.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"

	"kith.dev/core/net/hostnet"
)

// config is what the network's configuration says, with the result of the plugins before.
type config struct {
	Group      int             `json:"group"`    // of guests' links; 0: nothing is marked
	Policies   string          `json:"policies"` // socket of the engine; see kith.dev/engine/policy, Ask
	IPAM       *ranges         `json:"ipam"`     // as an address plugin
	PrevResult json.RawMessage `json:"prevResult"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.PluginSupports("0.4.0", "1.0.0", "1.1.0"), "kith-mark")
}

func add(args *skel.CmdArgs) error {
	var c config
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if c.IPAM != nil {
		return c.IPAM.give(args)
	}
	var before current.Result
	if err := json.Unmarshal(c.PrevResult, &before); err != nil {
		return fmt.Errorf("result of the plugin before: %w", err)
	}
	if c.Group == 0 && c.Policies == "" {
		return errors.New("the configuration names neither a group nor a socket")
	}
	uid := argument(args.Args, "K8S_POD_UID")
	err := prepare(before, c.Group, uid)
	if err == nil {
		err = await(before, c.Policies, uid)
	}
	if err == nil {
		_, err = os.Stdout.Write(c.PrevResult)
	}
	return err
}

func del(args *skel.CmdArgs) error {
	var c config
	if err := json.Unmarshal(args.StdinData, &c); err != nil || c.IPAM == nil {
		return err // the mark goes with the link
	}
	return c.IPAM.takeBack()
}

// argument is what containerd says of the pod: K8S_POD_NAMESPACE=shop;K8S_POD_UID=…
func argument(args, key string) string {
	for arg := range strings.SplitSeq(args, ";") {
		if value, ok := strings.CutPrefix(arg, key+"="); ok {
			return value
		}
	}
	return ""
}

// prepare readies the host's ends of a pod's links, and marks them if there is a group.
func prepare(r current.Result, group int, pod string) error {
	ends := slices.DeleteFunc(r.Interfaces, func(i *current.Interface) bool { return i.Sandbox != "" }) // that is the pod's
	if len(ends) == 0 {
		return errors.New("the plugin before made no link at the host")
	}
	for _, end := range ends {
		loosen(end.Name)
		if group == 0 {
			continue
		}
		link, err := netlink.LinkByName(end.Name)
		if err == nil {
			// Asked by ARP, the kernel answers on any link for all of its addresses, and so would tell a guest which this machine has elsewhere.
			onlyItsOwn := map[uint16]uint32{hostnet.ARPIgnore: 1}
			err = errors.Join(netlink.LinkSetGroup(link, group), netlink.LinkSetAlias(link, pod), hostnet.Configure(link.Attrs().Index, onlyItsOwn))
		}
		if err != nil {
			return fmt.Errorf("put link %s of pod %s into group %d: %w", end.Name, pod, group, err)
		}
	}
	return nil
}

// loosen has the kernel take what comes from the owner's pods also where it looks for the way back in a guest's routes: they lead to
// the guest's home, which may have the pod's address as well (core/net/gateway/noderoute). The stricter setting of all devices is some
// distributions'. A container may have it read-only, and right.
func loosen(link string) {
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", filepath.Base(link), "rp_filter"), []byte("2"), 0)
}

// question names the pod and its addresses, the first of each family: rules have to know all of them.
func question(r current.Result, uid string) map[string]string {
	ask := map[string]string{"uid": uid}
	for _, ip := range r.IPs {
		key := "address"
		if ip.Address.IP.To4() == nil {
			key = "ipv6"
		}
		if ask[key] == "" {
			ask[key] = ip.Address.IP.String()
		}
	}
	return ask
}

// await returns when the rules of the pod's NetworkPolicies are in force, which the engine says by closing the connection.
func await(r current.Result, socket, uid string) error {
	if socket == "" || uid == "" || len(r.IPs) == 0 {
		return nil // no pod of a cluster
	}
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		err = json.NewEncoder(conn).Encode(question(r, uid))
	}
	if err != nil {
		return fmt.Errorf("ask kith-k8s whether NetworkPolicies are in force: %w", err)
	}
	why, err := io.ReadAll(io.LimitReader(conn, 4096))
	if err != nil {
		return fmt.Errorf("wait until NetworkPolicies are in force: %w", err)
	}
	if len(why) > 0 {
		return errors.New(string(why))
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netns"
)

// ranges is what the configuration says of addresses.
type ranges struct {
	Networks string            `json:"networks"` // folder with a file per namespace, a range as host-local takes it (kith.dev/core/provide/guestnet)
	DataDir  string            `json:"dataDir"`  // host-local's
	Routes   []json.RawMessage `json:"routes"`
	Routes6  []json.RawMessage `json:"routes6"` // of guests that have an IPv6 range, too
}

// The plugin that notes who has which address, and the start of the names by which it does so, one for each range: so a range goes
// round before an address is given again.
const (
	hostLocal = "host-local"
	notes     = "kith-guests"
)

// give asks host-local for a guest's address, out of the range that its namespace has at this moment.
func (r *ranges) give(args *skel.CmdArgs) error {
	guests, from, err := r.of(argument(args.Args, "K8S_POD_NAMESPACE"))
	if err == nil && len(from) > 1 {
		err = settle(args.Netns)
	}
	if err != nil {
		return err
	}
	given, err := invoke.DelegateAdd(context.Background(), hostLocal, r.ask(notes+"-"+guests.Addr().String(), from...), nil)
	if err != nil {
		return fmt.Errorf("%s: %v", hostLocal, err) // as a sentence, and not that plugin's error with its code
	}
	return given.Print()
}

// takeBack has an address given back whatever the files say by now.
func (r *ranges) takeBack() error {
	known, err := filepath.Glob(filepath.Join(r.DataDir, notes+"*"))
	for _, dir := range known {
		// The range does not matter to it, but that there is one: whatever of these notes is the guest's is given back.
		ask := r.ask(filepath.Base(dir), []byte(`{"subnet":"10.0.0.0/24"}`))
		err = errors.Join(err, invoke.DelegateDel(context.Background(), hostLocal, ask, nil))
	}
	return err
}

// of gives the range of a namespace, and what its file has for host-local: that, and the IPv6 one if there is one.
func (r *ranges) of(namespace string) (guests netip.Prefix, from []json.RawMessage, err error) {
	if namespace == "" || namespace != filepath.Base(namespace) || strings.HasPrefix(namespace, ".") {
		return guests, nil, fmt.Errorf("this network is for pods of a namespace, and %q is none", namespace)
	}
	path := filepath.Join(r.Networks, namespace)
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the network of namespace %s is not known here yet: kithd writes %s once the laptops agreed on a range of addresses", namespace, path)
	}
	var says struct {
		Subnet netip.Prefix
		IPv6   json.RawMessage
	}
	if err == nil && (json.Unmarshal(file, &says) != nil || !says.Subnet.IsValid()) {
		err = fmt.Errorf("%s names no subnet: kithd writes it anew when it starts", path)
	}
	if from = []json.RawMessage{file}; len(says.IPv6) > 0 {
		from = append(from, says.IPv6)
	}
	return says.Subnet, from, err
}

// ask is what host-local is asked with, for a network and an address of each range.
func (r *ranges) ask(network string, guests ...json.RawMessage) []byte {
	routes, sets := r.Routes, make([][]json.RawMessage, 0, len(guests))
	for _, one := range guests {
		sets = append(sets, []json.RawMessage{one})
	}
	if len(guests) > 1 {
		routes = slices.Concat(r.Routes, r.Routes6)
	}
	b, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": network, "ipam": map[string]any{ // of parts that were JSON
		"type": hostLocal, "dataDir": r.DataDir, "routes": routes, "ranges": sets,
	}})
	return b
}

// settle has the link that a guest will get take no routers' word, and use its address at once: nobody else is on that link, and to look for
// others with the same address (RFC 4862) takes a second or two.
func settle(path string) error {
	done := make(chan error)
	go func() { done <- settleHere(path) }()
	return <-done
}

func settleHere(path string) error {
	runtime.LockOSThread() // and never unlocked: the thread goes
	ns, err := netns.GetFromPath(path)
	if err == nil {
		defer ns.Close()
		err = netns.Set(ns)
	}
	for _, set := range []struct{ key, to string }{{"disable_ipv6", "0"}, {"accept_ra", "0"}, {"accept_dad", "0"}} {
		if err == nil {
			err = os.WriteFile("/proc/sys/net/ipv6/conf/default/"+set.key, []byte(set.to), 0)
		}
	}
	if err != nil {
		return fmt.Errorf("IPv6 of the guest's link: %w", err)
	}
	return nil
}

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
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// config is what the network's configuration says, with the result of the plugins before.
type config struct {
	CNIVersion string          `json:"cniVersion"`
	Group      int             `json:"group"`    // of guests' links; 0: nothing is marked
	Policies   string          `json:"policies"` // socket of the engine; see kith.dev/engine/policy, Ask
	IPAM       *ranges         `json:"ipam"`     // as an address plugin
	PrevResult json.RawMessage `json:"prevResult"`
}

type result struct {
	IPs []struct {
		Address string `json:"address"`
	} `json:"ips"`
	Interfaces []struct {
		Name    string `json:"name"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
}

func main() {
	c := config{CNIVersion: "1.0.0"}
	if err := run(&c); err != nil {
		// 100 and up are a plugin's own codes.
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": c.CNIVersion, "code": 100, "msg": "kith-mark: " + err.Error()})
		os.Exit(1)
	}
}

func run(c *config) error {
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": c.CNIVersion, "supportedVersions": []string{"0.4.0", "1.0.0", "1.1.0"}})
	}
	stdin, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := json.Unmarshal(stdin, c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if c.IPAM != nil {
		return address(command, stdin, *c.IPAM)
	}
	if command != "ADD" {
		return nil // the mark goes with the link
	}
	var before result
	if err := json.Unmarshal(c.PrevResult, &before); err != nil {
		return fmt.Errorf("result of the plugin before: %w", err)
	}
	uid := argument("K8S_POD_UID")
	if c.Group == 0 && c.Policies == "" {
		return errors.New("the configuration names neither a group nor a socket")
	}
	loosen(before)
	if c.Group != 0 {
		if err := mark(before, c.Group, uid); err != nil {
			return err
		}
	}
	if c.Policies != "" {
		if err := await(before, c.Policies, uid); err != nil {
			return err
		}
	}
	_, err = os.Stdout.Write(c.PrevResult)
	return err
}

// await returns when the rules of the pod's NetworkPolicies are in force, which the engine says by closing the connection.
func await(r result, socket, uid string) error {
	if uid == "" || len(r.IPs) == 0 {
		return nil // no pod of a cluster
	}
	address, _, _ := strings.Cut(r.IPs[0].Address, "/")
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return fmt.Errorf("ask kith-k8s whether NetworkPolicies are in force: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	if err := json.NewEncoder(conn).Encode(map[string]string{"uid": uid, "address": address}); err != nil {
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

// argument is what containerd says of the pod: K8S_POD_NAMESPACE=shop;K8S_POD_UID=…
func argument(key string) string {
	for arg := range strings.SplitSeq(os.Getenv("CNI_ARGS"), ";") {
		if value, ok := strings.CutPrefix(arg, key+"="); ok {
			return value
		}
	}
	return ""
}

// loosen has the kernel take what comes from the owner's pods also where it looks for the way back in a guest's routes: they lead to
// the guest's home, which may have the pod's address as well (core/gateway/noderoute). The stricter setting of all devices is some
// distributions'. A container may have it read-only, and right.
func loosen(r result) {
	for _, i := range r.Interfaces {
		setting := filepath.Join("/proc/sys/net/ipv4/conf", filepath.Base(i.Name), "rp_filter")
		if i.Sandbox != "" {
			continue // the pod's end
		}
		if b, err := os.ReadFile(setting); err == nil && strings.TrimSpace(string(b)) != "2" {
			_ = os.WriteFile(setting, []byte("2"), 0)
		}
	}
}

func mark(r result, group int, alias string) error {
	marked := false
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			continue // the pod's end
		}
		link, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("link %s: %w", i.Name, err)
		}
		if err := netlink.LinkSetGroup(link, group); err != nil {
			return fmt.Errorf("put link %s into group %d: %w", i.Name, group, err)
		}
		if alias != "" {
			if err := netlink.LinkSetAlias(link, alias); err != nil {
				return fmt.Errorf("note pod %s at link %s: %w", alias, i.Name, err)
			}
		}
		marked = true
	}
	if !marked {
		return errors.New("the plugin before made no link at the host")
	}
	return nil
}

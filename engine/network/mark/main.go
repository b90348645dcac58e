// Kith-mark is a CNI plugin (CNI specification 1.0.0) that comes after the one that made a pod's link: it marks the
// host's end of it. The group tells the fence that whatever comes over the link comes from a guest; the alias, the
// pod's UID, tells which. containerd calls it before the pod's first program runs, and starts none if it fails.
//
// It must never change anything but that link.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// config is what the network's configuration says, with the result of the plugins before.
type config struct {
	CNIVersion string          `json:"cniVersion"`
	Group      int             `json:"group"`
	PrevResult json.RawMessage `json:"prevResult"`
}

type result struct {
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
	if command != "ADD" {
		return nil // the mark goes with the link
	}
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var before result
	if err := json.Unmarshal(c.PrevResult, &before); err != nil {
		return fmt.Errorf("result of the plugin before: %w", err)
	}
	if err := mark(before, c.Group, podUID(os.Getenv("CNI_ARGS"))); err != nil {
		return err
	}
	_, err := os.Stdout.Write(c.PrevResult)
	return err
}

// podUID is what containerd says of the pod: K8S_POD_NAMESPACE=shop;K8S_POD_UID=…
func podUID(args string) string {
	for arg := range strings.SplitSeq(args, ";") {
		if uid, ok := strings.CutPrefix(arg, "K8S_POD_UID="); ok {
			return uid
		}
	}
	return ""
}

func mark(r result, group int, alias string) error {
	if group == 0 {
		return errors.New("the configuration names no group")
	}
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

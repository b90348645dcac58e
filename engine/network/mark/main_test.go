package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestArgument(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "K8S_POD_UID=": "", "K8S_POD_UID": "",
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=17-a": "17-a",
	} {
		if got := argument(args, "K8S_POD_UID"); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

func build(t *testing.T) string {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "kith-mark")
	if out, err := exec.Command("go", "build", "-o", plugin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return plugin
}

// The plugin as containerd calls it, on a real link.
func TestHostsEndIsMarked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	plugin := build(t)
	runtime.LockOSThread() // for good: the thread, and its namespace, end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "veth1"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	call := func(command, config string) (string, error) {
		c := exec.Command(plugin)
		c.Env = []string{
			"CNI_COMMAND=" + command, "CNI_ARGS=K8S_POD_NAME=web;K8S_POD_UID=17-a",
			"CNI_CONTAINERID=one", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/one", "CNI_PATH=/none",
		}
		c.Stdin = strings.NewReader(config)
		out, err := c.Output()
		return string(out), err
	}
	before := `{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[]}`
	out, err := call("ADD", `{"cniVersion":"1.0.0","name":"kith-guests","type":"kith-mark","group":27495,"prevResult":`+before+`}`)
	if err != nil || out != before {
		t.Fatalf("ADD: %q, %v", out, err)
	}
	for name, want := range map[string]struct {
		group uint32
		alias string
	}{"veth1": {27495, "17-a"}, "eth0": {0, ""}} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := l.Attrs(); at.Group != want.group || at.Alias != want.alias {
			t.Errorf("%s: group %d, alias %q", name, at.Group, at.Alias)
		}
	}
	if b, err := os.ReadFile("/proc/sys/net/ipv4/conf/veth1/rp_filter"); err != nil || string(b) != "2\n" {
		t.Errorf("rp_filter of veth1: %q, %v", b, err)
	}
	if b, err := os.ReadFile("/proc/sys/net/ipv4/conf/veth1/arp_ignore"); err != nil || string(b) != "1\n" {
		t.Errorf("arp_ignore of veth1: %q, %v", b, err)
	}
	for _, bad := range []string{
		"", "{", "{}", `{"cniVersion":"1.0.0","name":"kith-guests","group":27495}`, `{"cniVersion":"1.0.0","name":"kith-guests","group":0,"prevResult":` + before + `}`,
		`{"cniVersion":"1.0.0","name":"kith-guests","group":27495,"prevResult":{"interfaces":[{"name":"gone"}]}}`,
		`{"cniVersion":"1.0.0","name":"kith-guests","group":27495,"prevResult":{"interfaces":[{"name":"eth0","sandbox":"x"}]}}`,
	} {
		out, err := call("ADD", bad)
		var told struct {
			Code int
			Msg  string
		}
		if err == nil || json.Unmarshal([]byte(out), &told) != nil || told.Code == 0 || told.Msg == "" {
			t.Errorf("ADD with %q: %q, %v", bad, out, err)
		}
	}
	if out, err := call("DEL", `{"cniVersion":"1.0.0","name":"kith-guests"}`); err != nil || out != "" {
		t.Errorf("DEL: %q, %v", out, err)
	}
	if out, err := call("VERSION", "{}"); err != nil || !strings.Contains(out, "1.0.0") {
		t.Errorf("VERSION: %q, %v", out, err)
	}
}

// The plugin gives no pod its network before the engine says that its policies are in force.
func TestAPodWaitsForItsPolicies(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "policies.sock")
	r := current.Result{}
	if err := json.Unmarshal([]byte(`{"ips":[{"address":"10.42.0.5/24"},{"address":"fd00:42::5/64"}]}`), &r); err != nil {
		t.Fatal(err)
	}
	if err := await(r, socket, "17-a"); err == nil {
		t.Error("nobody listens, and the pod starts")
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked, err := bufio.NewReader(c).ReadString('\n')
			if err != nil || strings.TrimSpace(asked) != `{"address":"10.42.0.5","ipv6":"fd00:42::5","uid":"17-a"}` {
				t.Errorf("asked %q, %v", asked, err)
			}
			_, _ = io.WriteString(c, <-answers)
			c.Close()
		}
	}()
	done := make(chan error, 1)
	go func() { done <- await(r, socket, "17-a") }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	answers <- ""
	if err := <-done; err != nil {
		t.Error(err)
	}
	answers <- "not in force: why"
	if err := await(r, socket, "17-a"); err == nil || err.Error() != "not in force: why" {
		t.Errorf("refused with %v", err)
	}
	if only := (current.Result{IPs: r.IPs[:1]}); question(only, "17-a")["address"] != "10.42.0.5" || len(question(only, "17-a")) != 2 {
		t.Errorf("of a pod of IPv4 alone it asks %v", question(only, "17-a"))
	}
	if err := await(r, socket, ""); err != nil {
		t.Errorf("what is no pod of a cluster: %v", err)
	}
}

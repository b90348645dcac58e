package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// addresses is the plugin as ptp calls it, with the real host-local.
type addresses struct {
	t                         *testing.T
	plugin, path, files, data string

	netns string // of containers, where there is one
}

func newAddresses(t *testing.T) addresses {
	t.Helper()
	path, err := filepath.Abs("../../../bin/cni")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, hostLocal)); err != nil {
		t.Skip("host-local is not built: run `make build`")
	}
	dir := t.TempDir()
	return addresses{t: t, plugin: build(t), path: path, files: filepath.Join(dir, "guests"), data: filepath.Join(dir, "addresses")}
}

// call gives the address, or what the plugin says is wrong.
func (a addresses) call(command, namespace, container string) (string, error) {
	cmd := exec.Command(a.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=" + cmp.Or(a.netns, "/run/netns/"+container), "CNI_PATH=/none:" + a.path,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=web;K8S_POD_UID=17-a",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"kith-guests","type":"ptp","mtu":1400,"ipam":{"type":"kith-mark","networks":%q,"dataDir":%q,"routes":[{"dst":"0.0.0.0/0"}],"routes6":[{"dst":"::/0"}]}}`, a.files, a.data))
	out, err := cmd.Output()
	var told struct {
		Msg string
		IPs []struct{ Address, Gateway string }
	}
	if len(out) > 0 {
		if err := json.Unmarshal(out, &told); err != nil {
			a.t.Fatalf("%s: %s", err, out)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s", told.Msg)
	}
	if command != "ADD" {
		return "", nil
	}
	if len(told.IPs) == 0 || !strings.Contains(string(out), `"0.0.0.0/0"`) || strings.Contains(string(out), `"::/0"`) != (len(told.IPs) > 1) {
		a.t.Fatalf("%s", out)
	}
	var all []string
	for _, ip := range told.IPs {
		all = append(all, ip.Address+" "+ip.Gateway)
	}
	return strings.Join(all, " "), nil
}

func (a addresses) write(namespace, text string) {
	a.t.Helper()
	if err := os.MkdirAll(a.files, 0o755); err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.files, namespace), []byte(text), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func (a addresses) want(address, namespace, container string) {
	a.t.Helper()
	if got, err := a.call("ADD", namespace, container); err != nil || got != address {
		a.t.Errorf("%s in %s: %q, %v, want %q", container, namespace, got, err, address)
	}
}

// TestAGuestsAddressIsOutOfTheRangeOfItsNamespace: each range has addresses of its own that go round, and all are given back, whatever
// the files say by then.
func TestAGuestsAddressIsOutOfTheRangeOfItsNamespace(t *testing.T) {
	a := newAddresses(t)
	alice, dora := `{"subnet":"10.127.0.0/24","gateway":"10.127.0.1"}`, `{"subnet":"10.127.4.0/24","gateway":"10.127.4.1"}`
	a.write("shop-a", alice)
	a.write("lab-a", alice)
	a.write("shop-d", dora)
	a.want("10.127.0.2/24 10.127.0.1", "shop-a", "one")
	a.want("10.127.4.2/24 10.127.4.1", "shop-d", "two")
	a.want("10.127.0.3/24 10.127.0.1", "lab-a", "three")
	for _, c := range []string{"one", "one", "never"} { // once more than needed, and one that never was
		if _, err := a.call("DEL", "shop-a", c); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	a.want("10.127.4.3/24 10.127.4.1", "shop-d", "four")
	a.want("10.127.0.4/24 10.127.0.1", "shop-a", "one") // again, and not with the address that was just given back
	if err := os.RemoveAll(a.files); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"one", "two", "three", "four"} {
		if _, err := a.call("DEL", "gone", c); err != nil {
			t.Errorf("DEL without a file: %v", err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(a.data, "*", "10.127.*")); len(left) > 0 {
		t.Errorf("not given back: %v", left)
	}
}

// TestAGuestOfTwoFamilies has an address of each, which it gives back, on a link that takes no routers' word.
func TestAGuestOfTwoFamilies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	a := newAddresses(t)
	runtime.LockOSThread() // for good: the thread, and its namespace, end with the test
	host, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	guest, err := netns.New() // and the thread is in it
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	in := func(ns netns.NsHandle) {
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
	}
	in(host)
	a.netns = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), guest)
	both := `{"subnet":"10.127.0.0/24","gateway":"10.127.0.1","ipv6":{"subnet":"fd71:1:2:3::/64","gateway":"fd71:1:2:3::1"}}`
	a.write("shop-a", both)
	a.want("10.127.0.2/24 10.127.0.1 fd71:1:2:3::2/64 fd71:1:2:3::1", "shop-a", "one")
	in(guest)
	for key, want := range map[string]string{"accept_ra": "0\n", "accept_dad": "0\n", "disable_ipv6": "0\n"} {
		if is, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/" + key); err != nil || string(is) != want {
			t.Errorf("%s is %q, %v", key, is, err)
		}
	}
	in(host)
	if _, err := a.call("DEL", "shop-a", "one"); err != nil {
		t.Error(err)
	}
	for _, kept := range []string{"10.127.*", "fd71*"} {
		if left, _ := filepath.Glob(filepath.Join(a.data, "*", kept)); len(left) > 0 {
			t.Errorf("not given back: %v", left)
		}
	}
}

// TestAGuestWithoutANetworkDoesNotStart: and the kubelet's event says why.
func TestAGuestWithoutANetworkDoesNotStart(t *testing.T) {
	a := newAddresses(t)
	a.write("empty", "")
	a.write("odd", `{"subnet":"x"}`)
	a.write("wide", `{"subnet":"10.127.0.0/32"}`)
	a.write(".new-1", `{"subnet":"10.127.0.0/24"}`)
	for namespace, want := range map[string]string{
		"shop-a": "the network of namespace shop-a is not known here yet: kithd writes " + filepath.Join(a.files, "shop-a"),
		"empty":  "names no subnet", "odd": "names no subnet", "wide": "host-local: ",
		"": "is none", ".new-1": "is none", "../guests/odd": "is none",
	} {
		if _, err := a.call("ADD", namespace, "one"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", namespace, err, want)
		}
	}
}

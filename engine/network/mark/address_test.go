package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// addresses is the plugin as ptp calls it, with the real host-local.
type addresses struct {
	t                         *testing.T
	plugin, path, files, data string
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
	return addresses{t, build(t), path, filepath.Join(dir, "guests"), filepath.Join(dir, "addresses")}
}

// call gives the address, or what the plugin says is wrong.
func (a addresses) call(command, namespace, container string) (string, error) {
	cmd := exec.Command(a.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/" + container, "CNI_PATH=/none:" + a.path,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=web;K8S_POD_UID=17-a",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"kith-guests","type":"ptp","mtu":1400,"ipam":{"type":"kith-mark","networks":%q,"dataDir":%q,"routes":[{"dst":"0.0.0.0/0"}]}}`, a.files, a.data))
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
	if len(told.IPs) != 1 || !strings.Contains(string(out), `"0.0.0.0/0"`) {
		a.t.Fatalf("%s", out)
	}
	return told.IPs[0].Address + " " + told.IPs[0].Gateway, nil
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

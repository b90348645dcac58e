//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kith.dev/test/lab"
)

// nobody runs a program as a user of this laptop without any rights.
var nobody = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}

// whoListens: what `ss` says of a laptop with a pod, its own programs apart, is what docs/security.md says, and a user without rights
// gets nothing of value from any of it.
func whoListens(t *testing.T, p *lab.Laptop) {
	apply(t, p, "{apiVersion: v1, kind: Namespace, metadata: {name: listeners}}\n---"+strings.Replace(solo("one", p.Name()), "namespace: shop", "namespace: listeners", 1))
	waitReady(t, p, 1, "-n", "listeners")
	out, _, err := p.Exec(t.Context(), "sh", "-ec", "ss -Hltnp; ss -Hlunp; ss -Hlxp")
	if err != nil {
		t.Fatal(err)
	}
	listeners := map[string][]string{} // as the table names them; addresses of each
	for line := range strings.Lines(out) {
		if strings.Contains(line, "/run/lab/") { // of the lab
			continue
		}
		name, address := listenerOf(line)
		listeners[name] = append(listeners[name], address)
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- listeners: begin -->")
	table, _, _ = strings.Cut(table, "<!-- listeners: end -->")
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, m[1])
	}
	has := slices.Sorted(maps.Keys(listeners))
	for _, name := range has {
		if !slices.Contains(told, name) {
			t.Errorf("%s listens, and docs/security.md does not say so", name)
		}
	}
	for _, name := range told {
		if _, ok := listeners[name]; !ok {
			t.Errorf("docs/security.md says that %s listens; what does is %q", name, has)
		}
	}

	// What may be had without any right: three answers of a few words.
	free := []string{"https://127.0.0.1:6443/version", "https://127.0.0.1:6443/healthz", "https://10.42.255.1:6443/version", "https://10.42.255.1:6443/healthz", "http://127.0.0.1:10256/healthz"}
	asked := 0
	for name, addresses := range listeners {
		for _, address := range addresses {
			switch {
			case strings.HasPrefix(name, "tcp "):
				for _, scheme := range []string{"http", "https"} {
					for i, path := range []string{"", "metrics", "configz", "statusz", "flagz", "debug/pprof/", "debug/flags/v", "stats/summary", "pods", "logs/", "api/v1/secrets", "exec/x", "version", "healthz"} {
						url := scheme + "://" + strings.Replace(address, "*", "127.0.0.1", 1) + "/" + path
						out, _, _ := p.Exec(t.Context(), append(nobody, "curl", "-sk", "-m", "3", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", "-H", "Host: page.example", url)...)
						var code, size int
						if _, err := fmt.Sscan(out, &code, &size); err != nil {
							t.Fatalf("%s: %q, %v", url, out, err)
						}
						if code == 0 && i == 0 {
							break // it does not speak that
						}
						asked++
						if code == 200 && (!slices.Contains(free, url) || size > 1000) {
							t.Errorf("a user without rights gets %d bytes of %s", size, url)
						}
					}
				}
			case strings.HasPrefix(name, "unix "):
				if !strings.HasPrefix(address, "/") {
					t.Errorf("%s: no file says who may connect to %s", name, address)
				}
				_, _, err := p.Exec(t.Context(), append(nobody, "curl", "-s", "-m", "10", "--unix-socket", address, "http://x/")...)
				if err == nil || !strings.Contains(err.Error(), "exit status 7") { // not connected
					t.Errorf("a user without rights connects to %s: %v", address, err)
				}
				asked++
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d answers came, so little was asked", asked)
	}
	for _, was := range []string{"127.0.0.1:10248", "127.0.0.1:10249"} { // where upstream's programs listen for everybody on this machine
		if c, err := p.Dial(t.Context(), "tcp", was); err == nil {
			c.Close()
			t.Errorf("%s is open", was)
		}
	}
}

var (
	ofAPod    = regexp.MustCompile(`^/run/containerd/s/[0-9a-f]+$`)
	podSource = regexp.MustCompile(`/pod-resources/[0-9]+$`) // its name before the kubelet gave it its own
)

// listenerOf gives the name in the table of a line of ss, and the address.
func listenerOf(line string) (name, address string) {
	f := strings.Fields(line)
	switch f[0] {
	case "u_str", "u_seq", "u_dgr":
		address = podSource.ReplaceAllString(f[4], "/pod-resources/kubelet.sock")
		return "unix " + ofAPod.ReplaceAllString(address, "/run/containerd/s/…"), address
	case "UNCONN":
		name = "udp "
	default:
		name = "tcp "
	}
	address = f[3]
	host, port := address[:strings.LastIndex(address, ":")], address[strings.LastIndex(address, ":")+1:]
	if slices.Contains([]string{"0.0.0.0", "[::]", "*"}, host) {
		host = "*"
	}
	if strings.Contains(line, `"containerd"`) {
		port = "…" // one that is free
	}
	return name + host + ":" + port, address
}

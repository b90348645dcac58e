//go:build lab && soak

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// onlyFriends lets in who has the label friend, and who has addresses of one range.
const onlyFriends = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {friend: "yes"}}}]}]
`

// TestPodsOfBothFamilies: with ipv6 in its configuration the pods and services of a laptop have IPv4 and IPv6, NetworkPolicies hold for both, and neighbours
// on the LAN reach neither. Guests and peers go on with IPv4.
func TestPodsOfBothFamilies(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, LAN: lab.DualStack})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range []*lab.Laptop{alice, bob} {
		eventually(t, time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	// A cluster that had IPv4 alone.
	apply(t, alice, "apiVersion: v1\nkind: Namespace\nmetadata: {name: old}\n---"+strings.ReplaceAll(solo("before", "alice"), "namespace: shop", "namespace: old"))
	waitReady(t, alice, 1, "-n", "old")
	if _, stderr, err := alice.Exec(t.Context(), "sh", "-c", "echo 'ipv6: true' >>/etc/kith/config.yaml"); err != nil {
		t.Fatal(err, stderr)
	}
	if err := alice.RestartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "alice's services have both families", func() string {
		out, err := alice.Kubectl(t.Context(), "get", "servicecidr", "kubernetes", "-o", "jsonpath={.spec.cidrs}")
		if err != nil || strings.Count(out, ",") != 1 {
			return fmt.Sprint(out, err)
		}
		return engineReady(t, alice)
	})
	apply(t, alice, dualWeb)
	apply(t, alice, solo("ask", "alice"))
	apply(t, alice, strings.Replace(solo("friend", "alice"), "labels: {", "labels: {friend: \"yes\", ", 1))
	waitReady(t, alice, 4, "-n", "shop")
	six := func(pod string) netip.Addr {
		t.Helper()
		a, err := netip.ParseAddr(kubectl(t, alice, "-n", "shop", "get", "pod", pod, "-o", "jsonpath={.status.podIPs[1].ip}"))
		if err != nil || !a.Is6() {
			t.Fatal(pod, a, err)
		}
		return a
	}
	web := pods(t, alice, "-n", "shop", "-l", "app=web")[0]
	webSix, service := six(web.Metadata.Name), kubectl(t, alice, "-n", "shop", "get", "service", "six", "-o", "jsonpath={.spec.clusterIP}")
	both := strings.Fields(strings.Trim(strings.ReplaceAll(kubectl(t, alice, "-n", "shop", "get", "service", "both", "-o", "jsonpath={.spec.clusterIPs}"), ",", " "), "[]"))
	if len(both) != 2 {
		t.Fatalf("the service has %q", both)
	}
	urls := []string{
		"http://" + web.Status.PodIP + ":8080/", "http://[" + webSix.String() + "]:8080/", "http://[" + service + "]/", "http://six/", "http://both/",
		"http://[" + strings.Trim(both[1], `"`) + "]/",
	}
	get := func(from, url string) (string, error) {
		return alice.Kubectl(t.Context(), "-n", "shop", "exec", from, "--", "/app", "get", url)
	}
	for _, url := range urls {
		eventually(t, 20*time.Second, "a pod reaches "+url, func() string {
			if out, err := get("ask", url); err != nil || !strings.Contains(out, `"name"`) {
				return fmt.Sprint(out, err)
			}
			return ""
		})
	}
	if out, err := get("ask", urls[1]); err != nil || !strings.Contains(out, `"client": "[`+six("ask").String()+"]:") {
		t.Errorf("the other pod sees %s, %v", out, err)
	}
	node := kubectl(t, alice, "get", "node", "alice", "-o", `jsonpath={.status.addresses[1].address}`)
	for _, url := range append(urls[1:3:3], "http://["+node+"]:30086/") {
		if out, stderr, err := alice.Exec(t.Context(), "curl", "-sf", "-g", "-m", "60", url); err != nil || !strings.Contains(out, `"name"`) {
			t.Errorf("the laptop itself to %s: %s %s %v", url, out, stderr, err)
		}
	}

	t.Run("the LAN reaches none of it", func(t *testing.T) {
		lan := l.Laptop("lan")
		link, _, err := alice.Exec(t.Context(), "sh", "-c", "ip -6 -o addr show dev eth0 scope link | awk '{print $4}' | cut -d/ -f1")
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{webSix.String(), service, node} {
			if _, stderr, err := lan.Exec(t.Context(), "ip", "-6", "route", "replace", to+"/128", "via", strings.TrimSpace(link), "dev", "br0"); err != nil {
				t.Fatal(err, stderr)
			}
		}
		for _, to := range []string{"http://[" + webSix.String() + "]:8080/", "http://[" + service + "]/", "http://[" + node + "]:30086/", "https://[" + node + "]:6443/"} {
			if out, said, err := lan.Exec(t.Context(), "curl", "-sk", "-g", "-m", "2", to); err == nil || !strings.Contains(err.Error(), "exit status 28") {
				t.Errorf("%s: %s %s %v", to, out, said, err)
			}
		}
		if _, stderr, err := alice.Exec(t.Context(), "nft", "delete", "table", "ip6", "kith-engine"); err != nil { // what keeps it out
			t.Fatal(err, stderr)
		}
		if out, said, err := lan.Exec(t.Context(), "curl", "-s", "-g", "-m", "60", "http://["+webSix.String()+"]:8080/"); err != nil || !strings.Contains(out, `"name"`) {
			t.Errorf("without the table it is not reached, either: this shows nothing: %s %s %v", out, said, err)
		}
	})
	t.Run("a NetworkPolicy holds for both", func(t *testing.T) {
		apply(t, alice, onlyFriends)
		for _, url := range urls {
			eventually(t, 20*time.Second, "only a friend reaches "+url, func() string {
				if out, err := get("friend", url); err != nil || !strings.Contains(out, `"name"`) {
					return fmt.Sprint("the friend: ", out, err)
				}
				if out, err := get("ask", url); err == nil {
					return "the other: " + out
				}
				return ""
			})
		}
		kubectl(t, alice, "-n", "shop", "delete", "networkpolicy", "friends")
	})
	t.Run("peers go on with IPv4", func(t *testing.T) {
		befriend(t, alice, bob, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
		kith(t, alice, "offload", "shop")
		apply(t, alice, solo("away", "kith-bob"))
		away := waitReady(t, alice, 1, "-n", "shop", "-l", "app=away")[0]
		eventually(t, 30*time.Second, "both reach each other", func() string {
			if out, err := get("ask", "http://"+away.Status.PodIP+":8080/"); err != nil {
				return out + err.Error()
			}
			if out, err := get("away", "http://both/"); err != nil || !strings.Contains(out, `"name"`) {
				return fmt.Sprint(out, err)
			}
			return ""
		})
		kubectlAbroad(t, alice, "away")
	})
	well(t, alice)
}

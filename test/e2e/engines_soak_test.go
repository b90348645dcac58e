//go:build lab && soak

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestAK3sThatRunsIsChosenAndUsed: engine auto takes the K3s that runs, reads its ranges, says so, reaches pods abroad past its egress selector,
// and finds it again when it was started anew.
func TestAK3sThatRunsIsChosenAndUsed(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Engines: map[string]string{"bob": lab.K3s}, NoWait: true})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	if err := bob.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	clear := `for p in $(pgrep -x k3s) $(pgrep -x containerd); do kill -9 $p; done; umount -l $(grep -o '/var/lib/kith/k3s[^ ]*' /proc/mounts) 2>/dev/null; rm -rf /var/lib/kith/k3s /var/lib/kith/engine /run/k3s
sed -i '/^engine:/d;/^k3sBinary:/d' /etc/kith/config.yaml; ln -sfn /etc/rancher/k3s/k3s.yaml /var/lib/kith/k8s/admin.kubeconfig; ip link del kith-node 2>/dev/null; nft flush ruleset`
	if _, stderr, err := bob.Exec(t.Context(), "sh", "-c", clear); err != nil {
		t.Fatal(err, stderr)
	}
	k3sService(t, bob)
	ready := func() string {
		out, err := bob.Kubectl(t.Context(), "get", "--raw", "/readyz")
		if err != nil {
			return err.Error() + out
		}
		return ""
	}
	eventually(t, 2*time.Minute, "K3s is ready", ready)
	if err := bob.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	t.Log("kith status:\n" + kith(t, bob, "status"))
	if out := kith(t, bob, "status"); !regexp.MustCompile(`(?m)^Engine +k3s, ready, v[0-9.]+\+k3s1`).MatchString(out) || !strings.Contains(out, "chosen because a K3s runs here") {
		t.Errorf("status:\n%s", out)
	}
	if out := kith(t, bob, "doctor"); !strings.Contains(out, "k3s: a K3s runs here") {
		t.Errorf("doctor:\n%s", out)
	}
	for _, way := range [][2]*lab.Laptop{{bob, alice}, {alice, bob}} {
		me, p := way[0], way[1]
		kubectl(t, me, "create", "namespace", "shop")
		kith(t, me, "offload", "shop")
		befriend(t, me, p, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
		apply(t, me, solo("at-"+p.Name(), "kith-"+p.Name()))
		apply(t, me, solo("at-home", me.Name()))
		kubectl(t, me, "-n", "shop", "expose", "pod", "at-home", "--name=to-home", "--port=80", "--target-port=8080")
		kubectl(t, me, "-n", "shop", "expose", "pod", "at-"+p.Name(), "--name=to-"+p.Name(), "--port=80", "--target-port=8080")
	}
	for _, way := range [][2]*lab.Laptop{{bob, alice}, {alice, bob}} {
		me, p := way[0], way[1]
		waitReady(t, me, 2, "-n", "shop")
		t.Run(me.Name()+"'s pod at "+p.Name(), func(t *testing.T) {
			kubectlAbroad(t, me, "at-"+p.Name())
			reachEachOther(t, me, []*lab.Laptop{p})
			topShows(t, me, []*lab.Laptop{p})
		})
	}
	if out := kubectl(t, bob, "-n", "shop", "get", "pod", "at-home", "-o", "jsonpath={.status.podIP}"); !strings.HasPrefix(out, "10.44.") {
		t.Errorf("a pod of bob has %s, want one of the range of his K3s", out)
	}
	t.Run("an InternalIP would not be reached", func(t *testing.T) { noTunnel(t, bob) })

	if _, _, err := bob.Exec(t.Context(), "sh", "-c", "kill -9 $(pgrep -x k3s)"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "kithd says that K3s is gone", func() string {
		if why := engineReady(t, bob); !strings.Contains(why, "does not answer") {
			return "it says " + why
		}
		return ""
	})
	k3sService(t, bob)
	eventually(t, 2*time.Minute, "kithd of bob is ready again", func() string { return engineReady(t, bob) })
	kubectlAbroad(t, bob, "at-alice")
	kubectlAbroad(t, alice, "at-bob")
}

// TestACompanyRunsALaptopThatHasK3s: what decides in K3s is off while the company decides, by K3s' own configuration; its pods run on, the
// company's run there, and the house is kept.
func TestACompanyRunsALaptopThatHasK3s(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Engines: map[string]string{"alice": lab.K3s}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	apply(t, bob, fmt.Sprintf(laptopsOfTheCompany, false))
	kubectl(t, alice, "create", "namespace", "own")
	apply(t, alice, fmt.Sprintf(ofBobs, "first"))
	was := waitReady(t, alice, 1, "-n", "own", "-l", "app=first")[0]
	told := func() string {
		out, _, err := alice.Exec(t.Context(), "cat", "/var/lib/kith/k3s/config.yaml.d/zz-kith.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	tethered(t, alice, bob)
	inMode(t, alice, api.Tethered, 30*time.Second)
	if out := told(); !strings.Contains(out, "disable-scheduler: true") || !strings.Contains(out, "controllers=") {
		t.Errorf("K3s is told\n%s", out)
	}
	frontApply(t, alice, ofTheTeam("hers", "kith-alice", 2))
	waitReady(t, bob, 2, "-n", "team", "-l", "app=hers")
	if out := mustFront(t, alice, "-n", "team", "exec", "deployment/hers", "--", "/bin/echo", "over there"); !strings.Contains(out, "over there") {
		t.Error(out)
	}
	apply(t, alice, fmt.Sprintf(ofBobs, "second"))
	kubectl(t, alice, "create", "namespace", "passing")
	eventually(t, 30*time.Second, "the house is kept", func() string {
		return kubectlUntil(t, alice, "default", "-n", "passing", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	})
	kubectl(t, alice, "delete", "namespace", "passing", "--timeout=3m")
	if list := pods(t, alice, "-n", "own"); len(list) != 1 || list[0].Metadata.Name != was.Metadata.Name || !list[0].ready() || list[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("pods of alice's own: %+v", list)
	}

	t.Log(kith(t, alice, "untether", "--yes", "--timeout", "3m"))
	untetheredWithin(t, alice, bob, time.Minute)
	if out := told(); strings.Contains(out, "disable-scheduler") {
		t.Errorf("K3s is still told\n%s", out)
	}
	waitReady(t, alice, 1, "-n", "own", "-l", "app=second")
}

// k3sService has a laptop run K3s by itself, as its owner would, with kithd stopped: ranges of its own, the egress selector as K3s has it.
func k3sService(t *testing.T, p *lab.Laptop) {
	t.Helper()
	script := `mkdir -p /etc/rancher/k3s /var/lib/rancher/k3s/agent
printf 'cluster-cidr: 10.44.0.0/16\nservice-cidr: 10.45.0.0/16\n' > /etc/rancher/k3s/config.yaml
ln -sfn /var/lib/kith/k8s/images /var/lib/rancher/k3s/agent/images
setsid nohup ` + lab.K3sBinary + ` server >> /var/log/k3s.log 2>&1 < /dev/null &`
	if _, stderr, err := p.Exec(t.Context(), "sh", "-ec", script); err != nil {
		t.Fatal(err, stderr)
	}
}

// noTunnel gives a virtual node an InternalIP, as other virtual kubelets do, and wants the API server to find no way there.
func noTunnel(t *testing.T, p *lab.Laptop) {
	address := kubectl(t, p, "get", "node", "kith-alice", "-o", `jsonpath={.status.addresses[?(@.type=="Hostname")].address}`)
	if types := kubectl(t, p, "get", "node", "kith-alice", "-o", `jsonpath={.status.addresses[*].type}`); types != "Hostname" {
		t.Errorf("addresses of the virtual node are of the types %q, want Hostname alone", types)
	}
	patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, address)
	refused := func() string { // kithd writes the node's status as it was, within a minute
		if out, err := p.Kubectl(t.Context(), "patch", "node", "kith-alice", "--subresource=status", "--type=merge", "-p", patch); err != nil {
			return out + err.Error()
		}
		// Each exec is a connection of its own; logs may go over one that is still open.
		if _, err := p.Kubectl(t.Context(), "-n", "shop", "exec", "at-alice", "--", "/bin/echo", "there"); err == nil || !strings.Contains(err.Error(), "502 Bad Gateway") {
			return fmt.Sprint(err)
		}
		return ""
	}
	eventually(t, time.Minute, "an exec by way of an InternalIP is refused", refused)
	kubectl(t, p, "patch", "node", "kith-alice", "--subresource=status", "--type=merge", "-p", strings.Replace(patch, "InternalIP", "Hostname", 1))
	kubectl(t, p, "annotate", "node", p.Name(), "seen=again") // whichever node was seen last has the address
	eventually(t, 90*time.Second, "exec works again", func() string {
		if out, err := p.Kubectl(t.Context(), "-n", "shop", "exec", "at-alice", "--", "/bin/echo", "there"); err != nil {
			return out + err.Error()
		}
		return ""
	})
}

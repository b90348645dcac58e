//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// before is the last commit that speaks kith/v2 and knows neither tethers nor what was stored by whom.
const before = "372f9db"

// TestAPeerOfTheVersionBefore has alice work with bob, whose Kith is of the version before: whatever both know works in both
// directions, what he does not know is refused in words, and under a guest he is brought up to date.
func TestAPeerOfTheVersionBefore(t *testing.T) {
	bin := binariesOf(t, before, "KITH_BEFORE_BIN")
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range []*lab.Laptop{alice, bob} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	run(t, bob, bin, "")
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "10"}

	// guest has one pod of the home run at the provider, and looks into it.
	guest := func(home, provider *lab.Laptop) pod {
		t.Helper()
		befriend(t, home, provider, ask...)
		kubectl(t, home, "create", "namespace", "shop")
		kith(t, home, "offload", "shop")
		apply(t, home, solo("echo", "kith-"+provider.Name()))
		one := waitReady(t, home, 1, "-n", "shop", "-l", "app=echo")[0]
		looks(t, home)
		return one
	}
	// ends has one of the two end all that there is between them.
	ends := func(by, other, home *lab.Laptop) {
		t.Helper()
		kubectl(t, home, "delete", "namespace", "shop", "--timeout=3m")
		kith(t, by, "unpeer", other.Name(), "--yes")
		eventually(t, time.Minute, "no contract is left", func() string {
			a, b := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
			for _, state := range []string{a.Outgoing, a.Incoming, b.Outgoing, b.Incoming} {
				if state != "none" && state != "" {
					return fmt.Sprintf("alice: %+v; bob: %+v", a, b)
				}
			}
			return ""
		})
	}

	guest(alice, bob)
	if out, err := alice.Kith(t.Context(), "tether", "bob", "--check"); !strings.Contains(fmt.Sprint(out, err), "its Kith is older than this one and runs no laptops") {
		t.Errorf("kith tether bob --check: %v\n%s", err, out)
	} else {
		t.Logf("kith tether bob --check:\n%s", out)
	}
	if state := peerOf(t, alice, "bob").Outgoing; state != "connected" {
		t.Errorf("after the question bob is %s", state)
	}
	ends(alice, bob, alice)
	guest(bob, alice)
	ends(bob, alice, bob)

	guest(alice, bob)
	container := func() string {
		return kubectl(t, alice, "-n", "shop", "get", "pod", "echo", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}")
	}
	was := container()
	run(t, bob, "", "")
	eventually(t, time.Minute, "connected again, under the same contract", func() string {
		out, in := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		if out.Outgoing != "connected" || in.Incoming != "connected" || !out.Tunnel.Up {
			return fmt.Sprintf("%+v; %+v", out, in)
		}
		return ""
	})
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=echo")
	looks(t, alice)
	if is := container(); is != was || !strings.HasSuffix(is, " 0") {
		t.Errorf("the container was %q, and is %q since bob is of this version", was, is)
	}
	if out, _ := alice.Kith(t.Context(), "tether", "bob", "--check"); strings.Contains(out, "older than this one") {
		t.Errorf("bob is of this version, and kith tether bob --check says\n%s", out)
	}
	for file, want := range map[string]string{"/var/lib/kith/version": "LAYOUT=", "/var/lib/kith/k8s/version": "KUBERNETES=1."} {
		if out, _, err := bob.Exec(t.Context(), "cat", file); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// looks reads the log of the pod echo and runs a program in it.
func looks(t *testing.T, home *lab.Laptop) {
	t.Helper()
	for _, args := range [][]string{{"logs", "echo", "--tail=5"}, {"exec", "echo", "--", "/bin/echo", "over", "there"}} {
		eventually(t, 20*time.Second, "kubectl "+args[0], func() string {
			out, err := home.Kubectl(t.Context(), append([]string{"-n", "shop"}, args...)...)
			if err != nil || args[0] == "exec" && strings.TrimSpace(out) != "over there" {
				return fmt.Sprintf("%v: %s", err, out)
			}
			return ""
		})
	}
}

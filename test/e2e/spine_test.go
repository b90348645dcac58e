//go:build lab

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestTwoLaptopsShareAWebApplication is the way of a pod: found, asked, accepted, run abroad, reached, ended.
func TestTwoLaptopsShareAWebApplication(t *testing.T) { shareAWebApplication(t, lab.IPv4, false) }

func shareAWebApplication(t *testing.T, lan lab.Family, both bool) {
	l := laptops(t, lab.Options{Laptops: 2, LAN: lan, Config: map[string]any{"ipv6": both}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	before := everything(t, bob)

	kubectl(t, alice, "create", "namespace", "shop")
	apply(t, alice, solo("early", "kith-bob")) // before the label, and before the peering

	code := befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	if len(code) != 6 {
		t.Errorf("the pairing code is %q, want six digits", code)
	}
	reachedAt(t, alice, bob)
	reachedAt(t, bob, alice)
	t.Run("contract verifies on both sides", func(t *testing.T) {
		for _, p := range []*lab.Laptop{alice, bob} {
			var list []struct{ Name string }
			if err := json.Unmarshal([]byte(kith(t, p, "contract", "list", "-o", "json")), &list); err != nil || len(list) != 1 {
				t.Fatalf("%s has %d contracts (%v), want 1", p.Name(), len(list), err)
			}
			kith(t, p, "contract", "verify", list[0].Name)
		}
	})

	kith(t, alice, "offload", "shop")
	t.Run("a pod made before label and peering is not stuck", func(t *testing.T) {
		waitReady(t, alice, 1, "-n", "shop", "-l", "app=early")
		kubectl(t, alice, "-n", "shop", "delete", "pod", "early", "--wait=true")
	})

	apply(t, alice, web(4))
	all := waitReady(t, alice, 4, "-n", "shop", "-l", "app=web")
	var home, away *pod
	for i := range all {
		switch all[i].Spec.NodeName {
		case "alice":
			home = &all[i]
		case "kith-bob":
			away = &all[i]
		}
	}
	if home == nil || away == nil {
		t.Fatalf("the pods did not spread: %+v", all)
	}
	t.Run("kubectl on a pod abroad", func(t *testing.T) { kubectlAbroad(t, alice, away.Metadata.Name) })
	address := func(p *pod, family int) netip.Addr {
		a, err := netip.ParseAddr(kubectl(t, alice, "-n", "shop", "get", "pod", p.Metadata.Name, "-o", fmt.Sprintf("jsonpath={.status.podIPs[%d].ip}", family)))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	t.Run("the network", func(t *testing.T) { network(t, l, *home, *away, address(home, 0), address(away, 0)) })
	if both {
		t.Run("the network over IPv6", func(t *testing.T) { network(t, l, *home, *away, address(home, 1), address(away, 1)) })
	}
	if lan != lab.IPv4 {
		t.Run("the doctor finds nothing", func(t *testing.T) {
			for _, p := range l.Laptops() {
				eventually(t, 20*time.Second, p.Name()+" is well", func() string { // that the network plugin's routes settle
					if out, err := p.Kith(t.Context(), "doctor"); err != nil {
						return instead(out)
					}
					return ""
				})
			}
		})
	}
	t.Run("the provider's owner sees the guests", func(t *testing.T) {
		out := kith(t, bob, "guests", "-o", "json")
		if !strings.Contains(out, away.Metadata.Name) || !strings.Contains(out, `"alice"`) {
			t.Errorf("kith guests at bob does not name the pod and its owner:\n%s", out)
		}
	})
	t.Run("kubectl top and autoscalers know what pods use, at home and abroad", func(t *testing.T) { topAndAutoscalers(t, alice, home, away) })
	t.Run("no part of the engine waits for a limit of its own", func(t *testing.T) { nobodyWaitsForItself(t, alice) })
	t.Run("nobody's namespace is taken over", func(t *testing.T) { nobodysNamespaceIsTakenOver(t, alice, bob) })
	t.Run("services of a namespace whose pods stay at home are at the peer", func(t *testing.T) { servicesWithoutPods(t, l, away.Metadata.Name) })
	t.Run("killing the daemons restarts no pod", func(t *testing.T) { killDaemons(t, l) })
	t.Run("namespaces come and go", func(t *testing.T) { namespacesComeAndGo(t, l) })
	t.Run("unpeer brings all home and leaves nothing", func(t *testing.T) {
		kith(t, alice, "unpeer", "bob", "--yes")
		for _, p := range waitReady(t, alice, 4, "-n", "shop", "-l", "app=web") {
			if p.Spec.NodeName != "alice" {
				t.Errorf("pod %s is on %s", p.Metadata.Name, p.Spec.NodeName)
			}
		}
		sameAsBefore(t, bob, before)
	})
	t.Run("unpeer from a peer that is dead", func(t *testing.T) { unpeerDead(t, l, before) })
}

// reachedAt checks that a peer is reached, and its tunnel leads, to the address that it has on the LAN.
func reachedAt(t *testing.T, p, other *lab.Laptop) {
	t.Helper()
	at, err := other.Address()
	if err != nil {
		t.Fatal(err)
	}
	want := netip.AddrPortFrom(at, 6450).String()
	if got := peerOf(t, p, other.Name()); len(got.Addresses) == 0 || got.Addresses[0] != want || !got.Reachable {
		t.Errorf("%s reaches %s at %v, not %s", p.Name(), other.Name(), got.Addresses, want)
	}
	if got := kubectl(t, p, "get", "peer", other.Name(), "-o", "jsonpath={.status.network.endpoint}"); got != want {
		t.Errorf("the tunnel of %s to %s leads to %q, not %s", p.Name(), other.Name(), got, want)
	}
}

// kubectlAbroad uses every verb that reaches into a running pod.
func kubectlAbroad(t *testing.T, alice *lab.Laptop, name string) {
	if out := kubectl(t, alice, "-n", "shop", "exec", name, "--", "/bin/echo", "over", "there"); strings.TrimSpace(out) != "over there" {
		t.Errorf("exec: %q", out)
	}
	if out, err := alice.KubectlInput(t.Context(), strings.NewReader("typed\n"), "-n", "shop", "exec", "-i", name, "--", "/bin/cat"); err != nil || strings.TrimSpace(out) != "typed" {
		t.Errorf("exec -i: %q, %v", out, err)
	}
	if out, _, err := alice.Exec(t.Context(), "sh", "-c", "kith-k8s kubectl -n shop exec "+name+" -- /app exit 7; echo ended with $?"); err != nil || !strings.Contains(out, "ended with 7") {
		t.Errorf("exec of a program that fails: %q, %v", out, err)
	}
	if out := kubectl(t, alice, "-n", "shop", "logs", name); out == "" {
		t.Error("logs: nothing")
	}
	forwarded, _, err := alice.Exec(t.Context(), "sh", "-c",
		"kith-k8s kubectl -n shop port-forward pod/"+name+" 18080:8080 >/tmp/pf.log 2>&1 & p=$!; i=0; while [ $i -lt 600 ]; do curl -sf http://127.0.0.1:18080/ && break; i=$((i+1)); sleep 0.1; done; kill $p")
	if err != nil || !strings.Contains(forwarded, name) {
		t.Errorf("port-forward: %q, %v", forwarded, err)
	}
	if _, _, err := alice.Exec(t.Context(), "sh", "-c",
		"head -c 1000000 /dev/urandom > /tmp/there && kith-k8s kubectl -n shop cp /tmp/there "+name+":/tmp/there && kith-k8s kubectl -n shop cp "+name+":/tmp/there /tmp/back && cmp /tmp/there /tmp/back"); err != nil {
		t.Errorf("cp: %v", err)
	}
	hears(t, alice, name, "logs -f --tail=0 "+name, "followed")
	hears(t, alice, name, "attach "+name, "attached")
}

// hears starts a kubectl command that follows a pod's output, has the pod say word, and wants to see it.
func hears(t *testing.T, alice *lab.Laptop, pod, command, word string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- alice.Run(ctx, lab.Command{Args: []string{"sh", "-c", "timeout 150 kith-k8s kubectl -n shop " + command + " | grep -m1 " + word}, Stdout: &out})
	}()
	for { // said again until it is heard: nobody tells when the follower is there
		kubectl(t, alice, "-n", "shop", "exec", pod, "--", "/app", "get", "http://127.0.0.1:8080/log?line="+word)
		select {
		case err := <-done:
			if err != nil || !strings.Contains(out.String(), word) {
				t.Errorf("%s: %q, %v", command, out.String(), err)
			}
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// network sends what networks are bad at through the tunnel, both ways.
func network(t *testing.T, l *lab.Lab, home, away pod, atHome, atAway netip.Addr) {
	alice := l.Laptop("alice")
	in := func(p pod, args ...string) string {
		t.Helper()
		return kubectl(t, alice, append([]string{"-n", "shop", "exec", p.Metadata.Name, "--"}, args...)...)
	}
	var seen struct {
		Client netip.AddrPort
		Name   string
	}
	answer := in(home, "/app", "get", "http://"+netip.AddrPortFrom(atAway, 8080).String()+"/")
	if err := json.Unmarshal([]byte(answer), &seen); err != nil || seen.Name != away.Metadata.Name {
		t.Fatalf("home to away: %s (%v)", answer, err)
	}
	if client := seen.Client.Addr(); client != atHome {
		t.Errorf("the pod abroad saw the caller as %s, its status says %s", client, atHome)
	}
	answer = in(away, "/app", "get", "http://"+netip.AddrPortFrom(atHome, 8080).String()+"/")
	if err := json.Unmarshal([]byte(answer), &seen); err != nil || seen.Name != home.Metadata.Name {
		t.Fatalf("away to home: %s (%v)", answer, err)
	}
	if client := seen.Client.Addr(); client != atAway {
		t.Errorf("the pod at home saw the caller as %s, its status says %s", client, atAway)
	}
	for _, size := range []string{"100", "8000"} { // one packet, fragments
		if out := in(home, "/app", "get", "http://127.0.0.1:8080/udp?addr="+netip.AddrPortFrom(atAway, 9999).String()+"&size="+size); !strings.Contains(out, size) {
			t.Errorf("UDP, %s bytes: %s", size, out)
		}
	}
	transfer := func(what string) {
		for _, way := range []struct {
			from string
			to   netip.Addr
		}{{home.Metadata.Name, atAway}, {away.Metadata.Name, atHome}} {
			out := kubectl(t, alice, "-n", "shop", "exec", way.from, "--", "/app", "sha256", "http://"+netip.AddrPortFrom(way.to, 8080).String()+"/blob?bytes=60000000")
			if want := in(home, "/app", "sha256", "http://127.0.0.1:8080/blob?bytes=60000000"); out != want {
				t.Errorf("60 MB %s, %s from %s: %s, want %s", what, way.from, way.to, out, want)
			}
		}
	}
	transfer("over an ordinary link")
	bob := l.Laptop("bob")
	if err := bob.SetMTU(t.Context(), 1300); err != nil {
		t.Fatal(err)
	}
	transfer("over a link of 1300 bytes")
	if err := bob.SetMTU(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
}

// killDaemons kills kithd on both sides, without a warning.
func killDaemons(t *testing.T, l *lab.Lab) {
	alice := l.Laptop("alice")
	restarts := func() (n int) {
		for _, p := range pods(t, alice, "-n", "shop") {
			for _, c := range p.Status.ContainerStatuses {
				n += c.RestartCount
			}
		}
		return n
	}
	before, old := restarts(), map[string]string{}
	for _, p := range l.Laptops() {
		old[p.Name()] = pid(t, p, "kithd")
		if _, _, err := p.Exec(t.Context(), "kill", "-9", old[p.Name()]); err != nil {
			t.Fatalf("kill kithd of %s: %v", p.Name(), err)
		}
	}
	eventually(t, 30*time.Second, "connected again", func() string {
		for _, p := range l.Laptops() {
			if now := pid(t, p, "kithd"); now == "" || now == old[p.Name()] {
				return "kithd of " + p.Name() + " does not run again"
			}
		}
		out, in := peerOf(t, alice, "bob"), peerOf(t, l.Laptop("bob"), "alice")
		if out.Outgoing != "connected" || in.Incoming != "connected" || !out.Reachable || !in.Reachable {
			return fmt.Sprintf("%+v, %+v", out, in)
		}
		return ""
	})
	waitReady(t, alice, 4, "-n", "shop", "-l", "app=web")
	if after := restarts(); after != before {
		t.Errorf("%d containers were restarted", after-before)
	}
}

// unpeerDead ends a peering while the provider has no power; he clears up when he is back.
func unpeerDead(t *testing.T, l *lab.Lab, before []string) {
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	apply(t, alice, solo("there", "kith-bob"))
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=there")
	if err := bob.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	kith(t, alice, "unpeer", "bob", "--yes")
	t.Logf("alice was done after %s", time.Since(began).Round(100*time.Millisecond))
	if p := peerOf(t, alice, "bob"); p.Outgoing != "none" || p.Node != "" {
		t.Errorf("alice is not done: %+v", p)
	}
	if nodes := kubectl(t, alice, "get", "nodes", "-o", "name"); strings.Contains(nodes, "kith-bob") {
		t.Errorf("the node is still there: %s", nodes)
	}
	if err := bob.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bob.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	sameAsBefore(t, bob, before)
}

// everything lists all objects of all kinds of a laptop, but for those that come and go by themselves.
func everything(t *testing.T, p *lab.Laptop) []string {
	t.Helper()
	out, stderr, err := p.Exec(t.Context(), "sh", "-c",
		"kith-k8s kubectl get $(kith-k8s kubectl api-resources --verbs=list -o name | paste -sd,) -A --ignore-not-found --no-headers "+
			"-o custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name")
	if err != nil {
		t.Fatalf("list everything of %s: %v\n%s", p.Name(), err, stderr)
	}
	var list []string
	for line := range strings.Lines(out) {
		line = strings.Join(strings.Fields(line), " ")
		passing := slices.ContainsFunc([]string{"Event ", "Lease ", "Peer "}, func(s string) bool { return strings.HasPrefix(line, s) })
		if line != "" && !passing {
			list = append(list, line)
		}
	}
	if len(list) < 50 {
		t.Fatalf("%s has only %d objects? %v", p.Name(), len(list), list)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func sameAsBefore(t *testing.T, p *lab.Laptop, before []string) {
	t.Helper()
	eventually(t, 60*time.Second, p.Name()+" keeps nothing", func() string {
		var diff []string
		now := everything(t, p)
		for _, line := range now {
			if !slices.Contains(before, line) {
				diff = append(diff, "+ "+line)
			}
		}
		for _, line := range before {
			if !slices.Contains(now, line) {
				diff = append(diff, "- "+line)
			}
		}
		return strings.Join(diff, "\n")
	})
}

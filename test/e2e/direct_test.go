//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// wayTo waits until a provider's way past alice to another one is in a state; "" is that there is none.
func (m *meeting) wayTo(t *testing.T, at, other *lab.Laptop, want api.DirectWayState) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("the way from %s to %s is %q", at.Name(), other.Name(), want), func() string {
		ways := peerOf(t, at, "alice").Tunnel.Direct
		if want == "" && len(ways) == 0 || len(ways) == 1 && ways[0].State == want && ways[0].ID == peerOf(t, m.alice, other.Name()).ID {
			return ""
		}
		return fmt.Sprintf("%+v", ways)
	})
}

// past has guests at bob and at carol meet without home in between, once the owners of both let them, with a stream between two of them under way.
func (m *meeting) past(t *testing.T) {
	apply(t, m.alice, loading("far", "kith-carol", "Always", "serve"))
	server := waitReady(t, m.alice, 1, "-n", "shop", "-l", "app=far")[0].Status.PodIP
	apply(t, m.alice, loading("past", "kith-bob", "Never", "stream", "-duration", "1h", net.JoinHostPort(server, "7000")))
	waitReady(t, m.alice, 1, "-n", "shop", "-l", "app=past")
	begun := time.Now()
	from, to := m.on("kith-bob")[0], m.on("kith-carol")[0]
	meet := func(when string, at *lab.Laptop, namespace string) {
		t.Helper()
		list := attempts(from, to, []int{1, 1_000_000}, []int{1, 4000}, at == m.alice)
		t.Logf("%s: %d of %d", when, try(t, when, at, namespace, from.name, list), len(list))
	}

	m.wayTo(t, m.bob, m.carol, "")
	kith(t, m.bob, "share", "--direct")
	meet("with the word of one owner", m.alice, "shop")
	m.wayTo(t, m.bob, m.carol, "")
	kith(t, m.carol, "share", "--direct")
	m.wayTo(t, m.bob, m.carol, api.DirectWayUp)
	m.wayTo(t, m.carol, m.bob, api.DirectWayUp)
	before := peerOf(t, m.alice, "bob").Tunnel
	large := attempts(from, to, []int{5_000_000}, nil, false) // by a node port it would go by home's node
	if well := try(t, "directly", m.alice, "shop", from.name, large); well != len(large) {
		t.Errorf("5 MB directly: %d of %d", well, len(large))
	}
	if after := peerOf(t, m.alice, "bob").Tunnel; after.RX-before.RX > 2_000_000 {
		t.Errorf("home had %d bytes of it", after.RX-before.RX)
	}

	if err := m.l.Cut(t.Context(), "bob", "carol"); err != nil {
		t.Fatal(err)
	}
	m.wayTo(t, m.bob, m.carol, api.DirectWayByHome)
	m.wayTo(t, m.carol, m.bob, api.DirectWayByHome)
	meet("while bob and carol do not reach each other", m.alice, "shop")
	if err := m.l.Heal(t.Context(), "bob", "carol"); err != nil {
		t.Fatal(err)
	}
	m.wayTo(t, m.bob, m.carol, api.DirectWayUp)
	m.wayTo(t, m.carol, m.bob, api.DirectWayUp)

	for _, provider := range []string{"bob", "carol"} {
		if err := m.l.Cut(t.Context(), "alice", provider); err != nil {
			t.Fatal(err)
		}
	}
	meet("right after home went away", m.bob, m.twin)
	eventually(t, 30*time.Second, "bob knows that alice is away", func() string {
		if p := peerOf(t, m.bob, "alice"); p.Name == "" || p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	meet("while home is away", m.bob, m.twin)
	if err := m.l.Heal(t.Context(), "alice", "carol"); err != nil {
		t.Fatal(err)
	}
	m.heal(t)
	// Where home was away its endpoints were not ready, and are again a moment after it is back.
	for _, ask := range []string{"tcp " + to.service + ":80 1", "udp " + to.service + ":90 1"} {
		eventually(t, 30*time.Second, "the service at carol answers bob's guest again", func() string {
			return tries(t, m.alice, "shop", from.name, []string{ask})[0].Error
		})
	}

	kith(t, m.carol, "share", "--direct=false")
	m.wayTo(t, m.bob, m.carol, "")
	m.wayTo(t, m.carol, m.bob, "")
	meet("carol's owner took it back", m.alice, "shop")

	lasted := time.Since(begun)
	if _, stderr, err := m.bob.Exec(t.Context(), "sh", "-c", "kill -TERM $(pgrep -f '^/app stream')"); err != nil {
		t.Fatal(err, stderr)
	}
	var r report
	eventually(t, 30*time.Second, "the stream ends", func() string {
		out, err := m.alice.Kubectl(t.Context(), "-n", "shop", "logs", "past")
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	t.Logf("%+v", r)
	if r.Broken != "" || r.OutOfOrder > 0 || r.Gap > 10_000 || r.Seconds < lasted.Seconds() {
		t.Errorf("the stream between guests at bob and at carol did not go on: %+v", r)
	}
	kubectl(t, m.alice, "-n", "shop", "delete", "pod", "past", "far", "--wait=true")
}

// even: pods that say nothing of it are spread over three laptops, of which home has far more room than its peers grant; those that do are left alone.
func (m *meeting) even(t *testing.T) {
	kubectl(t, m.alice, "create", "namespace", "even")
	kith(t, m.alice, "offload", "even", "--spread")
	apply(t, m.alice, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: even, namespace: even}
spec:
  replicas: 9
  selector: {matchLabels: {app: even}}
  template:
    metadata: {labels: {app: even}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 5m, memory: 8Mi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: own, namespace: even, labels: {app: own}}
spec:
  terminationGracePeriodSeconds: 1
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: own}}}]
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 5m, memory: 8Mi}}}]
`)
	on := map[string]int{}
	for _, p := range waitReady(t, m.alice, 9, "-n", "even", "-l", "app=even") {
		on[p.Spec.NodeName]++
	}
	if on["alice"] != 3 || on["kith-bob"] != 3 || on["kith-carol"] != 3 {
		t.Errorf("they are spread as %v", on)
	}
	const constraint = `{.items[0].spec.topologySpreadConstraints[0].topologyKey} {.items[0].spec.topologySpreadConstraints[0].labelSelector.matchLabels.app}`
	if got := kubectl(t, m.alice, "-n", "even", "get", "pods", "-l", "app=even", "-o", "jsonpath="+constraint); got != "topology.kubernetes.io/zone even" {
		t.Errorf("they are to be spread over %q", got)
	}
	if got := kubectl(t, m.alice, "-n", "even", "get", "pod", "own", "-o", "jsonpath={.spec.topologySpreadConstraints[*].topologyKey}"); got != "kubernetes.io/hostname" {
		t.Errorf("one that has its own constraints has %s", got)
	}
	kith(t, m.alice, "unoffload", "even")
	kubectl(t, m.alice, "delete", "namespace", "even", "--wait=true")
}

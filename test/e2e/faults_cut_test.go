//go:build lab && soak

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

// hasty is a workload that prefers bob and leaves him 5 s after he is lost: a Deployment, or a StatefulSet, of which no
// two pods of one name may ever run.
func hasty(kind, name string) string {
	more := ""
	if kind == "StatefulSet" {
		more = "serviceName: none"
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[2]s}}
  %[3]s
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      terminationGracePeriodSeconds: 2
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 100, preference: {matchExpressions: [{key: kith.dev/virtual, operator: Exists}]}}
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
         readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
`, kind, name, more)
}

// places gives the pods of an application of shop at home, by node; those being deleted are marked.
func (w *world) places(app string) string {
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": app})
	if err != nil {
		return err.Error()
	}
	var at []string
	for i := range list {
		place := list[i].Spec.NodeName
		switch {
		case list[i].DeletionTimestamp != nil:
			place += " (leaving)"
		case !podReady(&list[i]):
			place += " (not ready)"
		}
		at = append(at, place)
	}
	return strings.Join(at, ", ")
}

// TestCutForAMinute parts the two for long enough that alice's cluster gives bob up.
func TestCutForAMinute(t *testing.T) {
	w := newWorld(t).spread(4)
	apply(t, w.alice, hasty("Deployment", "hasty"))
	apply(t, w.alice, hasty("StatefulSet", "ordered"))
	for _, app := range []string{"hasty", "ordered"} {
		eventually(t, 30*time.Second, app+" is at bob", func() string { return strings.TrimPrefix(w.places(app), "kith-bob") })
	}
	eventually(t, 20*time.Second, "consistent", w.consistent)
	before := w.lives()
	guests, err := w.guests()
	if err != nil {
		t.Fatal(err)
	}
	victim := ""
	for _, g := range guests {
		if g.Labels["app"] == "web" {
			victim = g.Name
		}
	}

	cut := time.Now()
	if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, w.bob, "-n", twinAt(t, w.bob, "shop"), "delete", "pod", victim, "--wait=false")
	w.run("a guest deleted meanwhile comes back under its name", func(t *testing.T) {
		took := eventually(t, 15*time.Second, "it is back", func() string { return w.guestsReplaced(guests, victim) })
		t.Logf("%s was Ready again %s after it was deleted", victim, took.Round(10*time.Millisecond))
	})
	w.run("what must not wait moves home, what must not run twice waits", func(t *testing.T) {
		eventually(t, 60*time.Second, "hasty runs at home", func() string {
			if at := w.places("hasty"); !strings.Contains(at+",", "alice,") {
				return instead(at)
			}
			return ""
		})
		t.Logf("after %s", time.Since(cut).Round(10*time.Millisecond))
		eventually(t, 10*time.Second, "ordered is to leave", func() string { return strings.TrimPrefix(w.places("ordered"), "kith-bob (leaving)") })
		if at := w.places("web"); strings.Contains(at, "leaving") {
			t.Errorf("web: %s", at)
		}
	})
	w.run("pods at bob run on", func(t *testing.T) {
		time.Sleep(time.Until(cut.Add(time.Minute)))
		if not := w.guestsReplaced(guests, victim); not != "" {
			t.Error(not)
		}
	})
	if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, time.Minute, "consistent after the cut", w.consistent)
	t.Logf("consistent %s after the link healed", took.Round(10*time.Millisecond))
	if at := w.places("hasty"); at != "alice" {
		t.Errorf("hasty is at %s", at)
	}
	after := w.lives()
	delete(before, victim)
	delete(after, victim)
	if !maps.Equal(before, after) {
		t.Errorf("containers changed:\n%v\n%v", before, after)
	}
}

// guestsReplaced tells what is not right unless bob has Ready guests of these names, all the same but for one that is new.
func (w *world) guestsReplaced(old []corev1.Pod, replaced string) string {
	now, err := w.guests()
	if err != nil {
		return err.Error()
	}
	by := map[string]*corev1.Pod{}
	for i := range now {
		by[now[i].Name] = &now[i]
	}
	for i := range old {
		was, is := &old[i], by[old[i].Name]
		if is == nil || !podReady(is) || is.DeletionTimestamp != nil || (was.UID == is.UID) == (was.Name == replaced) {
			return fmt.Sprintf("%s was %s, now there is %v", was.Name, was.UID, is)
		}
	}
	if len(now) != len(old) {
		return fmt.Sprintf("there were %d guests, there are %d", len(old), len(now))
	}
	return ""
}

// TestSlowLink keeps a link of 1 Mbit/s busy.
func TestSlowLink(t *testing.T) {
	w := newWorld(t).spread(4)
	server := w.server()
	since := w.nodeSince()
	if err := w.bob.Slow(t.Context(), lab.Link{Rate: 1e6}); err != nil {
		t.Fatal(err)
	}
	const busy = 60 * time.Second
	apply(t, w.alice, loading("blast", "alice", "Never", "blast", "-duration", busy.String(), server))
	waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=blast")
	began := time.Now()
	apply(t, w.alice, solo("late", "kith-bob"))
	waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=late")
	t.Logf("a pod was Ready abroad %s after it was asked for", time.Since(began).Round(100*time.Millisecond))
	for time.Since(began) < busy {
		if p := peerOf(t, w.alice, "bob"); !p.Reachable || p.Outgoing != "connected" {
			t.Fatalf("%s into it: %+v", time.Since(began), p)
		}
		if now := w.nodeSince(); !maps.Equal(since, now) {
			t.Fatalf("%s into it the node changed: %v, %v", time.Since(began), since, now)
		}
		time.Sleep(500 * time.Millisecond)
	}
	eventually(t, 20*time.Second, "all is well", w.well)
	if out := kubectl(t, w.alice, "-n", "shop", "logs", "late"); out == "" {
		t.Error("logs over the slow link: nothing")
	}
}

// nodeSince are the conditions of node kith-bob with the time of their last change.
func (w *world) nodeSince() map[string]string {
	var nodes corev1.NodeList
	if err := w.list(w.alice, &nodes, client.MatchingLabels{"kith.dev/peer": "bob"}); err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			all[string(c.Type)] = fmt.Sprint(c.Status, " ", c.LastTransitionTime.Format(time.TimeOnly))
		}
	}
	if len(all) == 0 {
		w.t.Fatal("there is no node kith-bob, or it has no conditions")
	}
	return all
}

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
	"kith.dev/test/pace"
)

// endpoints gives those of web in a namespace of a laptop: by address, whether they are ready and serving.
func (w *world) endpoints(p *lab.Laptop, namespace string) (map[string]bool, error) {
	var list discoveryv1.EndpointSliceList
	all := map[string]bool{}
	err := w.list(p, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: "web"})
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			all[e.Addresses[0]] = *e.Conditions.Ready && *e.Conditions.Serving
		}
	}
	return all, err
}

// onlyReady tells what is not right unless of the four endpoints of web at a laptop exactly those are ready that up says.
func (w *world) onlyReady(p *lab.Laptop, namespace string, up func(address string) bool) string {
	all, err := w.endpoints(p, namespace)
	if err != nil || len(all) != 4 {
		return fmt.Sprintf("%s has endpoints %v, %v", p.Name(), all, err)
	}
	for address, ready := range all {
		if ready != up(address) {
			return fmt.Sprintf("%s has endpoints %v, and %s should not be so", p.Name(), all, address)
		}
	}
	return ""
}

// addresses are those of pods.
func addresses(all []corev1.Pod, err error) (ips []string) {
	for i := range all {
		ips = append(ips, all[i].Status.PodIP)
	}
	return ips
}

// peerAt is the status of a Peer; an error is its Why.
func (w *world) peerAt(p *lab.Laptop, name string) (s v1alpha1.PeerStatus) {
	c, err := w.api(p)
	var peer v1alpha1.Peer
	if err == nil {
		ctx, cancel := context.WithTimeout(w.t.Context(), apiPatience)
		defer cancel()
		err = c.Get(ctx, client.ObjectKey{Name: name}, &peer)
	}
	if err != nil {
		s.Outgoing.Why, s.Incoming.Why = err.Error(), err.Error()
		return s
	}
	return peer.Status
}

// away tells what is not right unless a laptop says of the other, with whom it has a contract, that it cannot be reached: in what the tray
// shows, and in its status.
func (w *world) away(p *lab.Laptop, other string) string {
	is := peerOf(w.t, p, other)
	if is.Reachable || is.DownSince.IsZero() || is.Why == "" || is.Outgoing != "unreachable" && is.Incoming != "unreachable" {
		return fmt.Sprintf("%s shows %+v", p.Name(), is)
	}
	if status, err := p.Kith(w.t.Context(), "status", "-o", "json"); err != nil || !strings.Contains(status, other+" cannot be reached") {
		return fmt.Sprintf("%s says of itself %s (%v)", p.Name(), status, err)
	}
	return ""
}

// answers tells what is not right unless alice is let through to what a pod of web at bob has written, as kubectl asks for it: by her API
// server, her kithd, the way to bob and the door there. While bob is away that is refused at once, in his name.
func (w *world) answers(pod string, away bool) string {
	ctx, cancel := context.WithTimeout(w.t.Context(), apiPatience)
	defer cancel()
	_, err := w.alice.Kubectl(ctx, "logs", "-n", "shop", "--tail=1", pod)
	switch {
	case away && (err == nil || !strings.Contains(err.Error(), "bob cannot be reached")):
		return fmt.Sprintf("the logs of %s are refused with %v, although bob is away", pod, err)
	case !away && err != nil:
		return fmt.Sprintf("the logs of %s: %v", pod, err)
	}
	return ""
}

// hang has the two lose each other, in several ways, for as long as it takes to be noticed: bob stands still, while his kernel acknowledges;
// the way between them is cut; alice stands still. web has four pods, some of them at bob.
func hang(t *testing.T, l *lab.Lab) {
	const limit = 15 * time.Second
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	w := &world{t: t, l: l, alice: alice, bob: bob, apis: map[string]client.Client{}}
	twin := twinAt(t, bob, "shop")
	web := client.MatchingLabels{"app": "web"}
	var abroad, named []string // as alice sees them
	atHome, err := w.pods(alice, "shop", web)
	if err != nil {
		t.Fatal(err)
	}
	for i := range atHome {
		if atHome[i].Spec.NodeName == "kith-bob" {
			abroad, named = append(abroad, atHome[i].Status.PodIP), append(named, atHome[i].Name)
		}
	}
	guests := addresses(w.pods(bob, twin, web))
	if len(abroad) == 0 || len(abroad) == 4 || len(guests) != len(abroad) {
		t.Fatalf("abroad are %v, guests %v", abroad, guests)
	}
	every := func(string) bool { return true }
	well := func() string {
		if out, in := w.peerAt(alice, "bob").Outgoing, w.peerAt(bob, "alice").Incoming; out.State != v1alpha1.StateConnected || in.State != v1alpha1.StateConnected {
			return fmt.Sprintf("alice says %s %s, bob %s %s", out.State, out.Why, in.State, in.Why)
		}
		if not := w.onlyReady(alice, "shop", every); not != "" {
			return not
		}
		if not := w.answers(named[0], false); not != "" {
			return not
		}
		return w.onlyReady(bob, twin, every)
	}
	stop := func(how func(context.Context) error) time.Time {
		t.Helper()
		eventually(t, 30*time.Second, "all is well before", well)
		if err := how(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	goOn := func(how func(context.Context) error) {
		t.Helper()
		if err := how(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready := eventually(t, 20*time.Second, "all endpoints are ready again", func() string {
			if not := w.onlyReady(alice, "shop", every); not != "" {
				return not
			}
			return w.onlyReady(bob, twin, every)
		})
		took := ready + eventually(t, 20*time.Second, "all is well again", well)
		t.Logf("endpoints ready %s after they had each other again, all well after %s", ready.Round(10*time.Millisecond), took.Round(10*time.Millisecond))
	}
	// in15 holds a time that an object has, in whole seconds, against the limit.
	in15 := func(what string, lost time.Time, at metav1.Time) {
		t.Helper()
		took := at.Sub(lost.Truncate(time.Second))
		if pace.Within(t, what, took, limit); took < 5*time.Second {
			t.Errorf("%s after %s already", what, took)
		}
		t.Logf("%s after %s", what, took)
	}

	stop(bob.Freeze)
	before := w.peerAt(alice, "bob").Outgoing
	time.Sleep(4 * time.Second)
	goOn(bob.Thaw)
	if now := w.peerAt(alice, "bob").Outgoing; !now.Since.Equal(before.Since) {
		t.Errorf("bob stood still for 4 s, and that shows: %s since %s, before since %s", now.State, now.Since, before.Since)
	}

	c, err := w.api(alice)
	if err != nil {
		t.Fatal(err)
	}
	alone := func(address string) bool { return !slices.Contains(abroad, address) }
	bobAlone := func(address string) bool { return slices.Contains(guests, address) }
	for _, way := range []struct {
		what       string
		lose, find func(context.Context) error
		both       bool // bob sees it, too
	}{
		{"bob stands still", bob.Freeze, bob.Thaw, false},
		{"the way is cut", func(ctx context.Context) error { return l.Cut(ctx, "alice", "bob") }, func(ctx context.Context) error { return l.Heal(ctx, "alice", "bob") }, true},
	} {
		lost := stop(way.lose)
		eventually(t, 30*time.Second, way.what+": the endpoints at bob are not ready", func() string { return w.onlyReady(alice, "shop", alone) })
		out := w.peerAt(alice, "bob").Outgoing
		if out.State != v1alpha1.StateUnreachable || out.Why == "" {
			t.Errorf("%s: bob is %s: %q", way.what, out.State, out.Why)
		}
		in15(way.what+": bob was unreachable", lost, *out.Since)
		var node corev1.Node
		if err := c.Get(t.Context(), client.ObjectKey{Name: "kith-bob"}, &node); err != nil {
			t.Fatal(err)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type != corev1.NodeReady && condition.Type != "PeerReachable" {
				continue
			}
			if condition.Status != corev1.ConditionFalse {
				t.Errorf("%s: %+v", way.what, condition)
			}
			in15(way.what+": False was "+string(condition.Type), lost, condition.LastTransitionTime)
		}
		if atHome, err = w.pods(alice, "shop", web); err != nil {
			t.Fatal(err)
		}
		for _, p := range atHome {
			for _, condition := range p.Status.Conditions {
				if condition.Type == corev1.PodReady && p.Spec.NodeName == "kith-bob" {
					in15(way.what+": a pod was not Ready", lost, condition.LastTransitionTime)
				}
			}
		}
		eventually(t, 10*time.Second, way.what+": alice says so", func() string { return w.away(alice, "bob") })
		eventually(t, 10*time.Second, way.what+": the door answers nobody", func() string { return w.answers(named[0], true) })
		if way.both {
			eventually(t, 30*time.Second, way.what+": alice's endpoints at bob are not ready", func() string { return w.onlyReady(bob, twin, bobAlone) })
			in15(way.what+": alice was unreachable", lost, *w.peerAt(bob, "alice").Incoming.Since)
			eventually(t, 10*time.Second, way.what+": bob says so", func() string { return w.away(bob, "alice") })
		}
		goOn(way.find)
	}

	stop(alice.Freeze)
	took := eventually(t, 30*time.Second, "alice's endpoints at bob are not ready", func() string { return w.onlyReady(bob, twin, bobAlone) })
	t.Logf("alice's endpoints at bob were not ready %s after she stood still", took.Round(10*time.Millisecond))
	goOn(alice.Thaw)

	w.withLogind(bob)
	eventually(t, 30*time.Second, "all is well before bob sleeps", well)
	ran := w.containersOf(bob, twin)
	stop(func(ctx context.Context) error { return w.prepareForSleep(ctx, bob, true) })
	slept := func() string { return w.sleeps(alice, "bob") }
	took = eventually(t, 30*time.Second, "bob is asleep by his word", slept) // his beats go on, so it is not by his silence
	t.Logf("alice knew that bob sleeps %s after logind said so", took.Round(10*time.Millisecond))
	if err := bob.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 15 { // 11 s after his last word his connections are given up, and he is asleep all the same
		if why := peerOf(t, alice, "bob").Why; !strings.HasPrefix(why, "went to sleep") {
			t.Errorf("bob, who sleeps: %s", why)
		}
		if not := slept(); not != "" {
			t.Error(not)
		}
		time.Sleep(time.Second)
	}
	goOn(func(ctx context.Context) error {
		return errors.Join(bob.Thaw(ctx), w.prepareForSleep(ctx, bob, false))
	})
	if now := w.containersOf(bob, twin); now != ran {
		t.Errorf("restarts of bob's guests before he slept: %s; after: %s", ran, now)
	}
}

// logind is a system bus and a logind, as python-dbusmock imitates it, inside a laptop.
const logind = `mkdir -p /run/dbus && cat > /run/dbus/lab.conf <<'EOF'
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
EOF
dbus-daemon --config-file=/run/dbus/lab.conf --fork --nopidfile && (setsid /usr/bin/python3 -m dbusmock --system --template logind >/run/dbus/logind.log 2>&1 </dev/null &)`

// withLogind gives a laptop a logind, and its daemon a start on which it finds that.
func (w *world) withLogind(p *lab.Laptop) {
	w.t.Helper()
	if _, stderr, err := p.Exec(w.t.Context(), "sh", "-c", logind); err != nil {
		w.t.Fatalf("%v: %s (scripts/deps.sh installs dbus-daemon and python3-dbusmock)", err, stderr)
	}
	if err := p.RestartDaemon(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, time.Minute, p.Name()+" delays suspends", func() string {
		out, stderr, err := p.Exec(w.t.Context(), "dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager.ListInhibitors")
		if err != nil || !strings.Contains(out, "Kith") {
			return fmt.Sprintf("%s %s %v", out, stderr, err)
		}
		return ""
	})
}

// prepareForSleep has the laptop's logind say that it falls asleep, or is awake again.
func (w *world) prepareForSleep(ctx context.Context, p *lab.Laptop, starts bool) error {
	_, stderr, err := p.Exec(ctx, "/usr/bin/python3", "-c", fmt.Sprintf(`import dbus
dbus.Interface(dbus.SystemBus().get_object("org.freedesktop.login1", "/org/freedesktop/login1"), "org.freedesktop.DBus.Mock").EmitSignal(
    "org.freedesktop.login1.Manager", "PrepareForSleep", "b", [bool(%d)])`, map[bool]int{true: 1}[starts]))
	if err != nil {
		return fmt.Errorf("logind of %s: %w: %s", p.Name(), err, stderr)
	}
	return nil
}

// sleeps tells what is not right unless the peer's node and the pods there are not Ready because its laptop went to sleep.
func (w *world) sleeps(at *lab.Laptop, peer string) string {
	c, err := w.api(at)
	if err != nil {
		return err.Error()
	}
	var node corev1.Node
	if err := c.Get(w.t.Context(), client.ObjectKey{Name: "kith-" + peer}, &node); err != nil {
		return err.Error()
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && (condition.Status != corev1.ConditionFalse || condition.Reason != "PeerSuspended") {
			return fmt.Sprintf("%+v", condition)
		}
	}
	pods, err := w.pods(at, "shop", client.MatchingLabels{"app": "web"})
	if err != nil {
		return err.Error()
	}
	for _, p := range pods {
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && p.Spec.NodeName == node.Name && (condition.Status != corev1.ConditionFalse || condition.Reason != "PeerSuspended") {
				return fmt.Sprintf("%s: %+v", p.Name, condition)
			}
		}
	}
	return ""
}

// containersOf names the containers of a namespace's pods, each with how often it was started anew.
func (w *world) containersOf(p *lab.Laptop, namespace string) string {
	w.t.Helper()
	pods, err := w.pods(p, namespace, client.MatchingLabels{"app": "web"})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s/%s %s %d", pod.Name, c.Name, c.ContainerID, c.RestartCount))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

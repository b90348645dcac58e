//go:build lab

package e2e

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/net/netplan"
	"kith.dev/test/lab"
)

// fenced is a lab in which bob has guests of alice and of carol, and pods and services of his own.
type fenced struct {
	t                 *testing.T
	l                 *lab.Lab
	alice, bob, carol *lab.Laptop
	address           map[string]string // of the laptops on the LAN
	desk, guest, next string            // addresses of alice's pod at home, and of two guests of hers at bob
	stall             string            // of a guest of carol's
	mine, service     string            // of bob's own pod, and of its service
	shop, market      string            // twins of the namespaces of alice and of carol
	online            string            // somewhere on the internet
}

// TestGuestsStayWithinTheFence: what guests reach, what they do not, and that the owner notices nothing.
func TestGuestsStayWithinTheFence(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	w := &fenced{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), carol: l.Laptop("carol"), address: map[string]string{}}
	w.settle()
	w.reach(t, "at first")
	t.Run("through the tunnel", w.tunnel)
	t.Run("the owner decides about the internet", w.internet)
	t.Run("the owner bounds the bandwidth", w.bandwidth)
	t.Run("NetworkPolicies of their home", w.policies)
	t.Run("while kithd is dead", w.headless)
	w.reach(t, "with a new kithd")
	t.Run("somebody flushed nftables", w.flushed)
	t.Run("somebody took the policies away", w.unruled)
	t.Run("services are open to the LAN if the owner says so", w.exposed)
}

func (w *fenced) settle() {
	t := w.t
	for _, p := range w.l.Laptops() {
		a, err := p.Address()
		if err != nil {
			t.Fatal(err)
		}
		w.address[p.Name()] = a.String()
	}
	kubectl(t, w.bob, "create", "namespace", "den")
	addressesFrom(t, w.bob, "10.42.0.100") // such as no pod of alice's or carol's has; those of one address are TestWhatAGuestDoesNotReach's
	apply(t, w.bob, place("mine", "den", "bob"))
	kubectl(t, w.bob, "-n", "den", "expose", "pod", "mine", "--port=80", "--target-port=8080")
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "10"}
	befriend(t, w.alice, w.bob, ask...)
	befriend(t, w.carol, w.bob, ask...)
	for _, one := range []struct {
		at        *lab.Laptop
		namespace string
		manifest  string
		pods      int
	}{
		{w.alice, "shop", place("desk", "shop", "alice") + place("guest", "shop", "kith-bob") + place("next", "shop", "kith-bob"), 3},
		{w.carol, "market", place("stall", "market", "kith-bob"), 1},
	} {
		kubectl(t, one.at, "create", "namespace", one.namespace)
		kith(t, one.at, "offload", one.namespace)
		apply(t, one.at, one.manifest)
		waitReady(t, one.at, one.pods, "-n", one.namespace)
	}
	kubectl(t, w.alice, "-n", "shop", "create", "service", "clusterip", "guest", "--tcp=80:8080")
	ip := func(p *lab.Laptop, namespace, name string) string {
		return kubectl(t, p, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	}
	w.shop, w.market = twinAt(t, w.bob, "shop"), twinAt(t, w.bob, "market")
	waitReady(t, w.bob, 1, "-n", "den")
	w.mine, w.guest, w.next = ip(w.bob, "den", "mine"), ip(w.bob, w.shop, "guest"), ip(w.bob, w.shop, "next")
	w.stall = ip(w.bob, w.market, "stall")
	w.service = kubectl(t, w.bob, "-n", "den", "get", "service", "mine", "-o", "jsonpath={.spec.clusterIP}")
	w.desk = ip(w.alice, "shop", "desk")
	w.online = w.goOnline()
	w.listen(w.bob, ":22")
}

// place is one pod of the echo image on a node of choice.
func place(name, namespace, node string) string {
	return "---" + strings.ReplaceAll(solo(name, node), "namespace: shop", "namespace: "+namespace)
}

// goOnline puts an address of the internet behind the router of the LAN.
func (w *fenced) goOnline() string {
	lan := w.l.Laptop("lan")
	if _, stderr, err := lan.Exec(w.t.Context(), "ip", "address", "add", "198.51.100.7/32", "dev", "lo"); err != nil {
		w.t.Fatalf("%v: %s", err, stderr)
	}
	return w.listen(lan, "198.51.100.7:80")
}

// listen has somebody there to whom a connection can be made, whatever runs in the laptop.
func (w *fenced) listen(p *lab.Laptop, at string) string {
	w.t.Helper()
	var l net.Listener
	if err := p.InNetwork(func() (err error) {
		l, err = net.Listen("tcp4", at)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// dial tries from a pod; at is the laptop it runs on.
func dial(t *testing.T, at *lab.Laptop, namespace, name, to string) error {
	out, err := at.Kubectl(t.Context(), "-n", namespace, "exec", name, "--", "/app", "dial", to)
	if err != nil && !strings.Contains(out+err.Error(), "dial: ") {
		t.Errorf("%s/%s did not even try %s: %v: %s", namespace, name, to, err, out)
	}
	return err
}

// closed is what bob's own reach and guests do not. Addresses of his pods' range are to a guest of alice's those of her home, where these
// ports are closed to it too.
func (w *fenced) closed() []string {
	return []string{
		w.address["bob"] + ":22", "10.42.0.1:22", "10.42.255.1:22", // they are open without kithd too
		w.address["bob"] + ":6450", "10.42.0.1:6450", "10.42.255.1:6450", "10.42.255.1:10250", "10.42.255.1:10053",
		w.address["carol"] + ":6450", w.address["alice"] + ":6450",
		w.mine + ":8080", w.service + ":80", w.stall + ":8080",
	}
}

// apis are addresses of an API server: to bob's own of his, to a guest of that of its home.
var apis = []string{"10.42.255.1:6443", "10.43.0.1:443"}

// reach tries all ways at once: those that are closed take seconds to show it.
func (w *fenced) reach(t *testing.T, when string) {
	t.Helper()
	w.each(t, when+": bob's own pod", "den", "mine", true, slices.Concat(w.closed(), apis, []string{w.online, w.guest + ":8080"})...)
	w.each(t, when+": a guest", w.shop, "guest", false, w.closed()...)
	w.each(t, when+": a guest", w.shop, "guest", true, append([]string{w.next + ":8080", w.desk + ":8080", w.online}, apis...)...)
	w.each(t, when+": carol's guest", w.market, "stall", false, w.guest+":8080", w.desk+":8080", w.mine+":8080")
	w.names(t)
}

// each has a pod at bob try all addresses at once.
func (w *fenced) each(t *testing.T, who, namespace, pod string, open bool, list ...string) {
	t.Helper()
	connects(t, w.bob, who, namespace, pod, open, list...)
}

func connects(t *testing.T, at *lab.Laptop, who, namespace, pod string, open bool, list ...string) {
	t.Helper()
	lines := make([]string, len(list))
	for i, to := range list {
		if lines[i] = "dial " + to; !open {
			lines[i] = "closed dial " + to
		}
	}
	for _, got := range tries(t, at, namespace, pod, lines) {
		if got.Connected != open {
			t.Errorf("%s: %s: open is %t, want %t (%s)", who, got.Line, got.Connected, open, got.Error)
		}
	}
}

// names of their home are resolved for guests, and none of the provider's; what they may do with an address is
// another question.
func (w *fenced) names(t *testing.T) {
	t.Helper()
	lookup := func(name string) (string, error) {
		return w.bob.Kubectl(t.Context(), "-n", w.shop, "exec", "guest", "--", "/app", "lookup", name)
	}
	eventually(t, 10*time.Second, "a guest asks DNS for a service of its home", func() string {
		if out, err := lookup("guest.shop.svc.cluster.local"); err != nil {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	if out, err := lookup("mine.den.svc.cluster.local"); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("a guest asked DNS for a service of the provider's: %q, %v", out, err)
	}
}

// tunnel: alice's home reaches her guests at bob, and nothing of his.
func (w *fenced) tunnel(t *testing.T) {
	connects(t, w.alice, "home", "shop", "desk", true, w.guest+":8080")
	// Of bob's own, only his host has an address that leads there. For the others alice makes a way.
	for _, to := range []string{w.mine, w.stall} {
		if _, stderr, err := w.alice.Exec(t.Context(), "ip", "route", "add", to, "dev", netplan.Tunnel); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		defer w.alice.Exec(t.Context(), "ip", "route", "del", to, "dev", netplan.Tunnel)
	}
	host := gate(t, w.alice, "bob")
	connects(t, w.alice, "alice's pod at home", "shop", "desk", false, w.mine+":8080", w.stall+":8080", host+":6443", host+":10250", host+":22")
	w.each(t, "bob's own pod", "den", "mine", false, w.desk+":8080")
}

func (w *fenced) internet(t *testing.T) {
	say := func(word string) {
		kubectl(t, w.bob, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"network":{"internet":"`+word+`"}}}`)
	}
	is := func(open bool) {
		t.Helper()
		eventually(t, 10*time.Second, fmt.Sprintf("internet open: %t", open), func() string {
			if err := dial(t, w.bob, w.shop, "guest", w.online); (err == nil) != open {
				return fmt.Sprint(err)
			}
			return ""
		})
	}
	say("Deny")
	is(false)
	w.each(t, "bob's own pod", "den", "mine", true, w.online)
	w.each(t, "a guest", w.shop, "guest", true, w.desk+":8080", w.next+":8080")
	say("Allow")
	is(true)
}

// bandwidth: what a guest gets beyond the bound is dropped and sent again, until the bound is taken away.
func (w *fenced) bandwidth(t *testing.T) {
	list := func() string {
		out, stderr, err := w.bob.Exec(t.Context(), "nft", "list", "table", "inet", "kith-bandwidth")
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		return out
	}
	kith(t, w.bob, "share", "--bandwidth", "100k")
	eventually(t, 10*time.Second, "the bound is in the kernel", func() string {
		if is := list(); strings.Count(is, "limit rate over 12500 bytes/second") != 2 {
			return is
		}
		return ""
	})
	w.each(t, "a guest", w.shop, "guest", true, w.desk+":8080", w.next+":8080", w.online)
	kubectl(t, w.bob, "-n", w.shop, "exec", "guest", "--", "/app", "sha256", "http://"+w.desk+":8080/blob?bytes=250000") // a second's worth and 128 KiB come at once
	is := list()
	if got := regexp.MustCompile(`chain r-default {\s+limit rate over 12500 bytes/second burst \S+ \S+ counter packets ([0-9]+) `).FindStringSubmatch(is); got == nil || got[1] == "0" {
		t.Errorf("nothing was dropped of what a guest got: %s", is)
	}
	kith(t, w.bob, "share", "--bandwidth", "")
	eventually(t, 10*time.Second, "the bound is gone", func() string {
		if is := list(); strings.Contains(is, "limit") {
			return is
		}
		return ""
	})
}

// headless: without kithd the fence holds, and the owner makes pods as ever.
func (w *fenced) headless(t *testing.T) {
	if _, _, err := w.bob.Exec(t.Context(), "sh", "-c", "kill -9 $(pidof kithd)"); err != nil {
		t.Fatal(err)
	}
	if err := w.bob.StopDaemon(t.Context()); err != nil { // or it would be back after a second
		t.Fatal(err)
	}
	if out, _, err := w.bob.Exec(t.Context(), "pidof", "kithd"); err == nil {
		t.Fatalf("kithd runs: %s", out)
	}
	w.each(t, "a guest", w.shop, "guest", false, slices.Concat(w.closed(), apis, []string{w.desk + ":8080"})...) // there is no tunnel either
	w.each(t, "a guest", w.shop, "guest", true, w.next+":8080", w.online)
	w.names(t)
	apply(t, w.bob, place("fresh", "den", "bob"))
	waitReady(t, w.bob, 2, "-n", "den")
	w.each(t, "bob's new pod", "den", "fresh", true, w.mine+":8080", w.service+":80", w.online, w.address["carol"]+":6450", "10.43.0.1:443")
	// Somebody changes a rule while nobody looks. It is as it was before bob's door is open to alice again.
	const rule = "validatingadmissionpolicies/tenants-services.kith.dev"
	kubectl(t, w.bob, "patch", rule, "--type=merge", "-p", `{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)
	if err := w.bob.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "alice reads her guest's log again", func() string {
		out, err := w.alice.Kubectl(t.Context(), "-n", "shop", "logs", "guest", "--tail=1")
		if err != nil {
			return instead(out + err.Error())
		}
		return ""
	})
	if left := kubectl(t, w.bob, "get", rule, "-o", "jsonpath={.spec.matchConditions[*].name}"); strings.Contains(left, "never") {
		t.Errorf("bob's door is open, and a rule of it is as somebody left it: %s", left)
	}
	eventually(t, 60*time.Second, "the guest reaches home again", func() string {
		if err := dial(t, w.bob, w.shop, "guest", w.desk+":8080"); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (w *fenced) flushed(t *testing.T) {
	if _, stderr, err := w.bob.Exec(t.Context(), "nft", "delete", "table", "ip", "kith-fence"); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	w.each(t, "a guest", w.shop, "guest", false, w.address["bob"]+":6450", w.mine+":8080")
}

// unruled: what Kith put into the cluster comes back, and the guest that is made before it is back is fenced all the same.
func (w *fenced) unruled(t *testing.T) {
	const fence, services = "mutatingadmissionpolicies/fence.kith.dev", "validatingadmissionpolicies/tenants-services.kith.dev"
	was := map[string]string{}
	spec := func(name string) string {
		out, err := w.bob.Kubectl(t.Context(), "get", name, "-o", "jsonpath={.spec}{.rules}{.handler}")
		if err != nil {
			return err.Error()
		}
		return out
	}
	all := []string{fence, "mutatingadmissionpolicybindings/fence.kith.dev", services, "validatingadmissionpolicybindings/tenants-addresses.kith.dev",
		"clusterroles/kith:tenant", "runtimeclasses/kith-guest"}
	for _, name := range all {
		was[name] = spec(name)
	}
	// Whoever makes a pod with a consumer's label makes a guest of it.
	made := func(labels string) string {
		return kubectl(t, w.bob, "-n", "default", "run", "anybody", "--image=kith.dev/echo:1", "--labels="+labels, "--dry-run=server", "-o", "jsonpath={.spec.runtimeClassName}")
	}
	if mine, guest := made("app=mine"), made("kith.dev/consumer=someone"); mine != "" || guest != "kith-guest" {
		t.Errorf("the owner's pod has the class %q, one with a consumer's label %q", mine, guest)
	}
	const told = "was deleted or changed in this cluster"
	if out := kith(t, w.bob, "events"); strings.Count(out, told) != 1 || !strings.Contains(out, "ValidatingAdmissionPolicy tenants-services.kith.dev "+told) {
		t.Errorf("what was changed while kithd was dead is all that was mended, and was told: %s", out)
	}
	apply(t, w.alice, place("late", "shop", "kith-bob"))
	kubectl(t, w.bob, append([]string{"delete", "--wait=false"}, slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == services })...)...)
	kubectl(t, w.bob, "patch", services, "--type=merge", "-p", `{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)
	for _, name := range all {
		took := eventually(t, 10*time.Second, name+" is as it was", func() string {
			if is := spec(name); is != was[name] {
				return instead(is)
			}
			return ""
		})
		t.Logf("%s: %s", name, took.Round(time.Millisecond))
	}
	waitReady(t, w.alice, 4, "-n", "shop")
	class := kubectl(t, w.bob, "get", "pods", "-A", "--field-selector", "metadata.name=late", "-o", "jsonpath={.items[*].spec.runtimeClassName}")
	if class != "kith-guest" {
		t.Errorf("the guest made meanwhile has the class %q", class)
	}
	twin := kubectl(t, w.bob, "get", "pods", "-A", "--field-selector", "metadata.name=late", "-o", "jsonpath={.items[*].metadata.namespace}")
	w.each(t, "the guest made meanwhile", twin, "late", false, w.address["bob"]+":6450", w.mine+":8080", w.address["carol"]+":6450")
	if out := kith(t, w.bob, "events"); !strings.Contains(out, "MutatingAdmissionPolicy fence.kith.dev "+told) {
		t.Errorf("the owner was not told: %s", out)
	}
}

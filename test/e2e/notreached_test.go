//go:build lab

package e2e

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/net/netplan"
	"kith.dev/test/lab"
)

// crowded is a lab in which bob has guests of alice and of dave, and carol one of alice. All four laptops have the same ranges, and each
// has two pods of its own: one whose address a pod of each of the others has too, and one whose address none of them has.
type crowded struct {
	*fenced    // stall is a guest of dave's, market the twin of his namespace
	dave       *lab.Laptop
	far, there string   // alice's guest at carol: its address, and the twin that it is in
	gates      []string // addresses of the providers' own machines among guests
}

// everywhere is the address that a pod of each laptop has; apart is one that only a pod of this laptop has.
const everywhere = "10.42.0.201"

func apart(of *lab.Laptop) string {
	return map[string]string{"alice": "10.42.0.211", "bob": "10.42.0.212", "carol": "10.42.0.213", "dave": "10.42.0.214"}[of.Name()]
}

// TestWhatAGuestDoesNotReach: addresses mean to a guest what they mean at its home. Where they would mean something else, the provider's own
// pods, its machine and its network, guests of others, nobody answers; and nobody there comes to a guest's home by way of it.
func TestWhatAGuestDoesNotReach(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 4})
	w := &crowded{fenced: &fenced{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), carol: l.Laptop("carol"), address: map[string]string{}}, dave: l.Laptop("dave")}
	w.settle()
	w.check(t, "at first")
	t.Run("asked for the API server, each guest finds that of its home", w.homes)
	t.Run("while kithd of the provider is dead", func(t *testing.T) {
		if err := w.bob.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		// There is no tunnel, and so nothing is left but the guests of the same home, here.
		list := append(w.shut(w.bob, w.stall), closed(everywhere)...)
		list = append(append(list, closed(apart(w.alice))...), closed(w.far)...)
		try(t, "alice's guest at bob", w.bob, w.shop, "guest", list)
		try(t, "dave's guest at bob", w.bob, w.market, "stall", append(append(w.shut(w.bob, w.guest), closed(everywhere)...), closed(apart(w.dave))...))
		if err := w.bob.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the guest reaches home again", func() string {
			if err := dial(t, w.bob, w.shop, "guest", everywhere+":8080"); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	w.check(t, "with a new kithd")
}

func (w *crowded) settle() {
	t := w.t
	for _, p := range w.l.Laptops() {
		a, err := p.Address()
		if err != nil {
			t.Fatal(err)
		}
		w.address[p.Name()] = a.String()
		w.listen(p, ":22")
		w.ownPods(p)
	}
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "10"}
	befriend(t, w.alice, w.bob, ask...)
	befriend(t, w.alice, w.carol, ask...)
	befriend(t, w.dave, w.bob, ask...)
	for _, one := range []struct {
		at                  *lab.Laptop
		namespace, manifest string
		pods                int
	}{
		{w.alice, "shop", place("guest", "shop", "kith-bob") + place("far", "shop", "kith-carol"), 2},
		{w.dave, "market", place("stall", "market", "kith-bob"), 1},
	} {
		kubectl(t, one.at, "create", "namespace", one.namespace)
		kith(t, one.at, "offload", one.namespace)
		apply(t, one.at, one.manifest)
		waitReady(t, one.at, one.pods, "-n", one.namespace)
	}
	ip := func(p *lab.Laptop, namespace, name string) string {
		return kubectl(t, p, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	}
	w.guest, w.far, w.stall = ip(w.alice, "shop", "guest"), ip(w.alice, "shop", "far"), ip(w.dave, "market", "stall")
	w.shop, w.there, w.market = twinAt(t, w.bob, "shop"), twinAt(t, w.carol, "shop"), twinAt(t, w.bob, "market")
	kubectl(t, w.dave, "-n", "market", "create", "service", "clusterip", "stall", "--tcp=80:8080")
	for consumer, provider := range map[*lab.Laptop]string{w.alice: "bob", w.dave: "bob"} {
		w.gates = append(w.gates, gate(t, consumer, provider))
	}
	w.gates = append(w.gates, gate(t, w.alice, "carol"))
	w.online = w.goOnline()
}

// gate is the address that a provider's host has in the range of a consumer's guests there.
func gate(t *testing.T, consumer *lab.Laptop, provider string) string {
	t.Helper()
	out := kubectl(t, consumer, "get", "peer", provider, "-o", "jsonpath={.status.network.guestsThere}")
	guests, err := netip.ParsePrefix(out)
	if err != nil {
		t.Fatalf("%s has its guests at %s in %q: %v", consumer.Name(), provider, out, err)
	}
	return netplan.GuestGateway(guests).String()
}

// ownPods makes a laptop's own two, at the addresses they must have, with a service for the first.
func (w *crowded) ownPods(p *lab.Laptop) {
	t := w.t
	kubectl(t, p, "create", "namespace", "den")
	for i, at := range []string{everywhere, apart(p)} {
		addressesFrom(t, p, at)
		name := p.Name() + []string{"-same", "-apart"}[i]
		apply(t, p, place(name, "den", p.Name()))
		if got := waitReady(t, p, 1, "-n", "den", "-l", "app="+name)[0].Status.PodIP; got != at {
			t.Fatalf("pod %s of %s has %s, want %s", name, p.Name(), got, at)
		}
	}
	kubectl(t, p, "-n", "den", "expose", "pod", p.Name()+"-same", "--name=den", "--port=80", "--target-port=8080")
}

// addressesFrom has the next pod of a laptop's own get this address, as if so many had come before (the file is that of host-local).
func addressesFrom(t *testing.T, p *lab.Laptop, next string) {
	t.Helper()
	last := netip.MustParseAddr(next).Prev().String()
	if _, stderr, err := p.Exec(t.Context(), "sh", "-ec", "d=/var/lib/kith/k8s/cni/addresses/kith; mkdir -p $d; printf %s "+last+" > $d/last_reserved_ip.0"); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
}

// met: the pod of that name is reached at the address by TCP and UDP, and sees who asks as from; empty: as it may be.
func met(name, at, from string) []attempt {
	return []attempt{{line: "tcp " + at + ":8080 1", name: name, from: from}, {line: "udp " + at + ":9999 1", name: name, from: from}}
}

// closed: nobody is reached.
func closed(at string) []attempt {
	return []attempt{{line: "tcp " + at + ":8080 1"}, {line: "udp " + at + ":9999 1"}}
}

// shut is what no guest at a provider reaches, whose it may be; stranger is a guest of another's.
func (w *crowded) shut(provider *lab.Laptop, stranger string) (list []attempt) {
	for _, at := range []string{stranger, apart(w.bob), apart(w.carol)} {
		list = append(list, closed(at)...)
	}
	service := kubectl(w.t, provider, "-n", "den", "get", "service", "den", "-o", "jsonpath={.spec.clusterIP}")
	ports := []string{service + ":80", "10.42.0.1:22", "10.42.255.1:22", "10.42.255.1:6450", "10.42.255.1:10250", "10.42.255.2:22", "192.0.2.1:53"}
	for _, p := range w.l.Laptops() {
		ports = append(ports, w.address[p.Name()]+":22", w.address[p.Name()]+":6450")
	}
	for _, g := range w.gates {
		ports = append(ports, g+":22", g+":6443", g+":6450", g+":10250", g+":10053")
	}
	return append(list, dials(ports...)...)
}

func (w *crowded) check(t *testing.T, when string) {
	t.Helper()
	// Dave's services, by the address they have at his home and by the one of the twin, mean nothing to guests of alice's.
	var stalls []attempt
	for _, one := range []string{
		kubectl(t, w.dave, "-n", "market", "get", "service", "stall", "-o", "jsonpath={.spec.clusterIP}"),
		kubectl(t, w.bob, "-n", w.market, "get", "service", "stall", "-o", "jsonpath={.spec.clusterIP}"),
	} {
		stalls = append(stalls, dials(one+":80")...)
	}
	join := func(lists ...[]attempt) (all []attempt) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	var each sync.WaitGroup
	for _, one := range []struct {
		who            string
		at             *lab.Laptop
		namespace, pod string
		list           []attempt
	}{
		{"alice's guest at bob", w.bob, w.shop, "guest", join(
			met("alice-same", everywhere, w.guest), met("alice-apart", apart(w.alice), w.guest), met("far", w.far, w.guest), met("guest", w.guest, w.guest),
			closed(apart(w.dave)), stalls, w.shut(w.bob, w.stall))},
		{"alice's guest at carol", w.carol, w.there, "far", join(
			met("alice-same", everywhere, w.far), met("alice-apart", apart(w.alice), w.far), met("guest", w.guest, w.far), met("far", w.far, w.far),
			closed(apart(w.dave)), stalls, w.shut(w.carol, w.stall))},
		{"dave's guest at bob", w.bob, w.market, "stall", join(
			met("dave-same", everywhere, w.stall), met("dave-apart", apart(w.dave), w.stall), met("stall", w.stall, w.stall),
			closed(apart(w.alice)), closed(w.far), w.shut(w.bob, w.guest))},
		{"bob's own pod", w.bob, "den", "bob-same", join(
			met("bob-same", everywhere, everywhere), met("bob-apart", apart(w.bob), everywhere), met("guest", w.guest, ""), met("stall", w.stall, ""),
			closed(apart(w.alice)), closed(apart(w.dave)), closed(w.far))},
		{"carol's own pod", w.carol, "den", "carol-same", join(
			met("carol-same", everywhere, everywhere), met("far", w.far, ""), closed(apart(w.alice)), closed(w.guest), closed(w.stall))},
		// An address of alice's that bob's pod and carol's have too, and it is hers that the guests see.
		{"alice's pod at home", w.alice, "den", "alice-same", join(
			met("alice-same", everywhere, everywhere), met("guest", w.guest, everywhere), met("far", w.far, everywhere),
			closed(apart(w.bob)), closed(apart(w.carol)), closed(w.stall), w.hosts())},
		{"dave's pod at home", w.dave, "den", "dave-same", join(
			met("dave-same", everywhere, everywhere), met("stall", w.stall, everywhere), closed(apart(w.bob)), closed(w.guest), closed(w.far), w.hosts())},
	} {
		each.Go(func() {
			n := try(t, when+": "+one.who, one.at, one.namespace, one.pod, one.list)
			t.Logf("%s, %s: %d of %d", when, one.who, n, len(one.list))
		})
	}
	each.Wait()
	for to, open := range map[string]bool{w.guest: true, w.stall: true, w.far: false, apart(w.alice): false, apart(w.bob): true} {
		if err := w.knock(w.bob, to+":8080"); (err == nil) != open {
			t.Errorf("%s: a program of bob's to %s: open is %t, want %t (%v)", when, to, err == nil, open, err)
		}
	}
	for _, one := range []struct{ namespace, pod string }{{w.shop, "guest"}, {w.market, "stall"}} {
		if err := dial(t, w.bob, one.namespace, one.pod, w.online); err != nil {
			t.Errorf("%s: %s does not reach the internet: %v", when, one.pod, err)
		}
	}
}

// hosts are the providers' machines, by the addresses that they have among a home's guests.
func (w *crowded) hosts() (list []attempt) {
	for _, g := range w.gates {
		for _, port := range []string{"22", "6443", "6450", "10250"} {
			list = append(list, dials(g+":"+port)...)
		}
	}
	return list
}

// homes: each of the three has a token of its home's, and the certificate that only that one has.
func (w *crowded) homes(t *testing.T) {
	for _, one := range []struct {
		at             *lab.Laptop
		namespace, pod string
	}{{w.bob, w.shop, "guest"}, {w.carol, w.there, "far"}, {w.bob, w.market, "stall"}} {
		for _, server := range []string{"10.43.0.1:443", "kubernetes.default:443", "10.42.255.1:6443"} {
			out, err := one.at.Kubectl(t.Context(), "-n", one.namespace, "exec", one.pod, "--", "/app", "api", "/version", server)
			if err != nil || !strings.Contains(out, "gitVersion") {
				t.Errorf("%s at %s asks %s: %.200s (%v)", one.pod, one.at.Name(), server, out, err)
			}
		}
	}
}

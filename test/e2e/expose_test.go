//go:build lab

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// exposed: bob publishes an application of his, and nothing of his guests. Carol is a neighbour on the LAN.
func (w *fenced) exposed(t *testing.T) {
	kubectl(t, w.bob, "-n", "den", "expose", "pod", "mine", "--name=open", "--type=NodePort", "--port=80", "--target-port=8080")
	kubectl(t, w.bob, "-n", "den", "expose", "pod", "mine", "--name=front", "--type=LoadBalancer", "--port=8088", "--target-port=8080")
	kubectl(t, w.bob, "-n", "den", "expose", "pod", "mine", "--name=ssh", "--type=LoadBalancer", "--port=22", "--target-port=8080")
	nodePort := func(p *lab.Laptop, namespace, name string) string {
		return kubectl(t, p, "-n", namespace, "get", "service", name, "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
	bob := w.address["bob"]
	open, front, ssh := bob+":"+nodePort(w.bob, "den", "open"), bob+":8088", bob+":"+nodePort(w.bob, "den", "ssh")
	address := func(name string) string {
		return kubectl(t, w.bob, "-n", "den", "get", "service", name, "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	}
	// Of guests nobody can: alice's node port is no port of bob's, and in her namespace there none can be made, by nobody.
	kubectl(t, w.alice, "-n", "shop", "expose", "pod", "guest", "--name=public", "--type=NodePort", "--port=80", "--target-port=8080")
	guests := bob + ":" + nodePort(w.alice, "shop", "public")
	for _, kind := range []string{"nodeport", "loadbalancer"} {
		out, err := w.bob.Kubectl(t.Context(), "-n", w.shop, "create", "service", kind, "mine", "--tcp=80:8080")
		if err == nil || !strings.Contains(out+err.Error(), "exceeded quota") {
			t.Errorf("a %s service in a guests' namespace: %v %s", kind, err, out)
		}
	}
	is := func(when string, want bool, list ...string) {
		t.Helper()
		for _, to := range list {
			eventually(t, 2*time.Minute, fmt.Sprintf("%s: %s open to the LAN: %t", when, to, want), func() string {
				if err := w.knock(w.carol, to); (err == nil) != want {
					return fmt.Sprint(err)
				}
				return ""
			})
		}
	}
	is("at first", false, open, front, ssh, guests)
	if got := address("front"); got != "" {
		t.Errorf("a LoadBalancer service has the address %s", got)
	}
	if out := kith(t, w.bob, "status"); strings.Contains(out, "Exposed") {
		t.Errorf("kith status: %s", out)
	}

	w.configure(t, "sed -i '/^expose:/d' $f && echo 'expose: lan' >> $f")
	is("exposed", true, open, front, ssh)
	is("exposed", false, guests)
	if got := address("front"); got != bob {
		t.Errorf("the LoadBalancer service has the address %q, want %s", got, bob)
	}
	// The test listens on bob's port 22 since before.
	eventually(t, 30*time.Second, "the owner is told which service gets no address", func() string {
		out := kubectl(t, w.bob, "-n", "den", "describe", "service", "ssh")
		if address("ssh") != "" || !strings.Contains(out, "port 22/TCP of this laptop is in use by another program") {
			return instead(out)
		}
		return ""
	})
	out := kith(t, w.bob, "status")
	if !strings.Contains(out, "services to the LAN, at "+bob) {
		t.Errorf("kith status does not say what is exposed:\n%s", out)
	}
	t.Log(out + kubectl(t, w.bob, "-n", "den", "get", "services"))
	w.each(t, "bob's own pod", "den", "mine", true, open, front)
	w.each(t, "a guest", w.shop, "guest", false, open, front, "10.42.255.1:"+strings.Split(open, ":")[1], w.address["bob"]+":22")
	w.each(t, "a guest", w.shop, "guest", true, w.next+":8080", w.online)

	there, err := w.bob.Move(t.Context(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the service moves along", func() string {
		if got := address("front"); got != there.String() {
			return got + ", not " + there.String()
		}
		return ""
	})
	is("moved", true, there.String()+":8088", strings.Replace(open, bob, there.String(), 1))

	w.configure(t, "sed -i '/^expose:/d' $f")
	is("closed again", false, there.String()+":8088", strings.Replace(open, bob, there.String(), 1))
	eventually(t, 30*time.Second, "the address is taken back", func() string { return address("front") })
}

// configure changes bob's configuration, and has his kithd read it.
func (w *fenced) configure(t *testing.T, script string) {
	t.Helper()
	if _, stderr, err := w.bob.Exec(t.Context(), "sh", "-ec", "f=/etc/kith/config.yaml; "+script); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if err := w.bob.RestartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// knock makes a connection from a laptop itself, as its programs do.
func (w *fenced) knock(from *lab.Laptop, to string) error {
	return from.InNetwork(func() error {
		c, err := net.DialTimeout("tcp4", to, 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

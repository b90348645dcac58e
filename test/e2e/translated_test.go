//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// attach has the kithd of a laptop attach to the cluster that runs there, as to somebody else's: guests get their addresses as the owner's
// pods do.
func attach(t *testing.T, p *lab.Laptop) {
	t.Helper()
	eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	if err := p.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl(t, p, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", "fence.kith.dev")
	script := fmt.Sprintf(`f=/etc/kith/config.yaml; sed -i /^engine:/d $f; printf 'engine: kubeconfig\nkubeconfig: %s\nnodeName: %s\n' >>$f`, lab.Kubeconfig, p.Name())
	if _, stderr, err := p.Exec(t.Context(), "sh", "-ec", script); err != nil {
		t.Fatal(err, stderr)
	}
	if err := p.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAWrongRangeIsToldAndClosesTheCluster: bob says a range of pods that his cluster's nodes and pods do not have. Without his word, kithd asks them.
func TestAWrongRangeIsToldAndClosesTheCluster(t *testing.T) {
	l := laptops(t, lab.Options{Names: []string{"bob"}})
	bob := l.Laptop("bob")
	set := func(line string) {
		t.Helper()
		if err := bob.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, stderr, err := bob.Exec(t.Context(), "sh", "-ec", "sed -i /^podRange:/d /etc/kith/config.yaml; echo '"+line+"' >>/etc/kith/config.yaml"); err != nil {
			t.Fatal(err, stderr)
		}
		if err := bob.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	attach(t, bob)
	set("podRange: 10.99.0.0/16")
	eventually(t, time.Minute, "status says that the range is wrong", func() string {
		out, stderr, err := bob.Exec(t.Context(), "kith", "status")
		if err != nil {
			return instead(stderr)
		}
		for _, word := range []string{"podRange is 10.99.0.0/16", "node bob", "10.42."} {
			if !strings.Contains(out, word) {
				return instead(out)
			}
		}
		return ""
	})
	stdout, _, err := bob.Exec(t.Context(), "kith", "doctor")
	if err == nil || !strings.Contains(stdout, "podRange is 10.99.0.0/16") || !strings.Contains(stdout, "set podRange") {
		t.Errorf("doctor: %v\n%s", err, stdout)
	}
	set("")
	eventually(t, time.Minute, "bob is ready", func() string { return engineReady(t, bob) })
	if out := kith(t, bob, "status"); strings.Contains(out, "podRange") {
		t.Error(out)
	}
}

// away cuts bob off from home: his guests have each other.
func (m *meeting) away(t *testing.T) {
	t.Helper()
	each := func(when string) {
		t.Helper()
		for _, me := range m.on("kith-bob") {
			var list []attempt
			for _, to := range m.on("kith-bob") {
				for range 5 { // were others still among the endpoints, some of these would go there
					list = append(list, attempt{line: fmt.Sprintf("tcp %s.meet:8080 1000", to.name), name: to.name}, attempt{line: fmt.Sprintf("tcp to-%s:80 1000", to.name), name: to.name},
						attempt{line: fmt.Sprintf("udp to-%s:90 1000", to.name), name: to.name})
				}
			}
			t.Logf("%s: %s: %d of %d", when, me.name, try(t, when+": "+me.name, m.bob, m.twin, me.name, list), len(list))
		}
	}
	if err := m.l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	each("right after the cut")
	eventually(t, 30*time.Second, "bob knows that alice is away", func() string {
		if p := peerOf(t, m.bob, "alice"); p.Name == "" || p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	eventually(t, 30*time.Second, "no endpoint at home is ready at bob's", func() string {
		ready := kubectl(t, m.bob, "-n", m.twin, "get", "endpointslices", "-l", "kubernetes.io/service-name=meet", "-o",
			"jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[*]}")
		if n := len(strings.Fields(ready)); n != 2 {
			return fmt.Sprintf("%q", ready)
		}
		return ""
	})
	each("while home is away")
	m.heal(t)
}

// meet has every one of the six ask every one, where a guest at bob's knows home's pods, which have addresses of bob's, by their names alone.
func (m *meeting) meet(t *testing.T, when, owner string) {
	t.Helper()
	for _, me := range m.all {
		if seen := m.read(t, me.name); !slices.Equal(seen, m.all) {
			t.Errorf("%s: %s on %s reads %+v, want %+v", when, me.name, me.node, seen, m.all)
		}
		atBob := me.node == "kith-bob"
		var list []attempt
		for _, to := range m.all {
			for _, a := range attempts(me, to, []int{1, 100_000}, []int{1, 4000}, false) {
				if to.node == "kith-bob" { // which has other addresses in its own eyes
					a.ip, a.from = "", ""
				}
				if at := strings.Fields(a.line)[1]; atBob && strings.HasPrefix(at, to.ip+":") && to.node == "alice" {
					continue
				}
				list = append(list, a)
			}
		}
		if atBob {
			list = append(list, attempt{line: fmt.Sprintf("tcp %s:8080 1", owner)})
		}
		eventually(t, 30*time.Second, me.name+" finds all six", func() string {
			out, err := m.exec(t, me.name, "lookup", "meet")
			if got := strings.Fields(out); err != nil || len(got) != 6 {
				return fmt.Sprintf("%q %v", got, err)
			}
			return ""
		})
		well := try(t, when+": "+me.name+" on "+me.node, m.alice, "shop", me.name, list)
		t.Logf("%s: %s on %s: %d of %d", when, me.name, me.node, well, len(list))
	}
}

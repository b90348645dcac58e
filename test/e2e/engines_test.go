//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestEveryEngineWithEveryOther: alice has the built-in Kubernetes, bob the interface of K3s, carol a cluster that kithd only attached to. Each has
// guests at each, and they are used as pods are used.
func TestEveryEngineWithEveryOther(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3, Engines: map[string]string{"bob": lab.K3s}})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	attach(t, carol)
	all := []*lab.Laptop{alice, bob, carol}
	for _, p := range all {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
		out := kith(t, p, "status")
		if want := map[string]string{"alice": "builtin", "bob": "k3s", "carol": "kubeconfig"}[p.Name()]; !regexp.MustCompile(`(?m)^Engine +` + want + `, ready`).MatchString(out) {
			t.Errorf("%s:\n%s", p.Name(), out)
		}
	}
	others := func(me *lab.Laptop) (list []*lab.Laptop) {
		for _, p := range all {
			if p != me {
				list = append(list, p)
			}
		}
		return list
	}
	for _, me := range all {
		kubectl(t, me, "create", "namespace", "shop")
		kith(t, me, "offload", "shop")
		for _, p := range others(me) {
			befriend(t, me, p, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
			apply(t, me, solo("at-"+p.Name(), "kith-"+p.Name()))
		}
		apply(t, me, solo("at-home", me.Name()))
		kubectl(t, me, "-n", "shop", "expose", "pod", "at-home", "--name=to-home", "--port=80", "--target-port=8080")
		for _, p := range others(me) {
			kubectl(t, me, "-n", "shop", "expose", "pod", "at-"+p.Name(), "--name=to-"+p.Name(), "--port=80", "--target-port=8080")
		}
	}
	for _, me := range all {
		var found []api.Finding
		if err := json.Unmarshal([]byte(kith(t, me, "doctor", "-o", "json")), &found); err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.State == api.CheckFail && (f.Area == api.AreaEngine || f.Area == api.AreaPorts || f.Area == api.AreaPeer) {
				t.Errorf("kith doctor at %s: %+v", me.Name(), f)
			}
		}
		waitReady(t, me, 3, "-n", "shop")
		t.Run("pods of "+me.Name(), func(t *testing.T) {
			for _, p := range others(me) {
				t.Run("at "+p.Name(), func(t *testing.T) { kubectlAbroad(t, me, "at-"+p.Name()) })
			}
			reachEachOther(t, me, others(me))
			topShows(t, me, others(me))
		})
	}
	for _, me := range all {
		for _, p := range others(me) {
			kith(t, me, "unpeer", p.Name(), "--yes")
		}
	}
	for _, me := range all {
		eventually(t, time.Minute, me.Name()+" keeps no guests", func() string {
			if out := kubectl(t, me, "get", "namespaces", "-o", "name"); strings.Contains(out, "shop-") {
				return instead(out)
			}
			return ""
		})
	}
}

// reachEachOther has the pods of one home ask each other by the names of their services, which are short: where a provider's DNS does not know
// whose pod asks, a longer one is looked for in the provider's own namespaces.
func reachEachOther(t *testing.T, me *lab.Laptop, others []*lab.Laptop) {
	names := []string{"at-home"}
	for _, p := range others {
		names = append(names, "at-"+p.Name())
	}
	for _, from := range names {
		for _, to := range names {
			eventually(t, 30*time.Second, fmt.Sprintf("%s of %s reaches the service %s", from, me.Name(), to), func() string {
				out, err := me.Kubectl(t.Context(), "-n", "shop", "exec", from, "--", "/app", "get", "http://"+strings.Replace(to, "at-", "to-", 1)+"/")
				if err != nil || !strings.Contains(out, to) {
					return fmt.Sprintf("%q, %v", out, err)
				}
				return ""
			})
		}
	}
}

// topShows has kubectl show what pods and nodes use, at home and at all others.
func topShows(t *testing.T, me *lab.Laptop, others []*lab.Laptop) {
	for _, p := range others {
		for _, what := range [][]string{{"at-" + p.Name(), "pod", "-n", "shop"}, {"kith-" + p.Name(), "node"}} {
			eventually(t, time.Minute, "kubectl top at "+me.Name()+" shows "+what[0], func() string {
				out, err := me.Kubectl(t.Context(), append([]string{"top"}, what[1:]...)...)
				if err != nil || !regexp.MustCompile(`(?m)^`+what[0]+`\s+[0-9]+m\s.*\b[0-9]+Mi`).MatchString(out) {
					return fmt.Sprintf("%s %v", out, err)
				}
				return ""
			})
		}
	}
}

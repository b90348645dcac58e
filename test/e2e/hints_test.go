//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestNamesAreHints has a policy of bob's accept "alice" by itself. Whoever calls herself so is a stranger until bob's owner
// accepted her key, and alice from then on.
func TestNamesAreHints(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range []*lab.Laptop{alice, bob} {
		eventually(t, 60*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, 20*time.Second, "they see each other", func() string {
		a, b := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		if !a.Reachable || !b.Reachable {
			return fmt.Sprintf("%+v, %+v", a, b)
		}
		return ""
	})
	policy := func(spec string) (string, error) {
		return bob.KubectlInput(t.Context(), strings.NewReader("apiVersion: kith.dev/v1alpha1\nkind: SharingPolicy\nmetadata: {name: friends}\nspec: "+spec+"\n"), "apply", "-f", "-")
	}
	t.Run("a validity that cannot work is refused", func(t *testing.T) {
		for _, validity := range []string{"60s", "59m59s", "87601h", "soon"} {
			out, err := policy(`{amounts: {cpu: "50%", memory: "50%", pods: "50%"}, contractValidity: ` + validity + `}`)
			if err == nil || validity != "soon" && !strings.Contains(out+err.Error(), "must be a duration from 1h to 87600h (ten years)") {
				t.Errorf("%s: %v %s", validity, err, out)
			}
		}
	})
	if out, err := policy(`{amounts: {cpu: "900", memory: "50%", pods: "50%"}, peers: [alice], autoAccept: true, priority: 5, contractValidity: 1h}`); err != nil {
		t.Fatal(err, out)
	}
	t.Run("what is offered is said", func(t *testing.T) {
		out := kith(t, bob, "share")
		for _, want := range []string{"friends: cpu 900 is more than this laptop has: at most ", "friends: no peer alice was accepted here, so that name stands for nobody"} {
			if !strings.Contains(out, want) {
				t.Errorf("want %q in\n%s", want, out)
			}
		}
	})
	t.Run("a name nobody was accepted by cannot be shared to", func(t *testing.T) {
		out, err := bob.Kith(t.Context(), "share", "--policy", "family", "--to", "alice", "--cpu", "1", "--memory", "1Gi", "--pods", "5", "--auto-accept")
		if err == nil || !strings.Contains(err.Error()+out, "a name alone is no identity") {
			t.Errorf("%v %s", err, out)
		}
		t.Log(err, out)
	})
	ask := []string{"--cpu", "200m", "--memory", "256Mi", "--pods", "5"}
	befriend(t, alice, bob, ask...) // the owner is asked, whatever the policy for alice says
	if by := kubectl(t, bob, "get", "contracts", "-o", "jsonpath={.items[0].spec.revision}"); by != "1" {
		t.Errorf("revision %s", by)
	}
	kith(t, alice, "unpeer", "bob", "--yes")
	t.Run("accepted once, the name is hers", func(t *testing.T) {
		if out, err := asking(t, alice, append([]string{"peer", "bob", "--timeout", "3m"}, ask...)...); err != nil {
			t.Fatalf("kith peer bob: %v\n%s", err, out)
		}
		out := kith(t, bob, "share", "--policy", "family", "--to", "alice", "--cpu", "1", "--memory", "1Gi", "--pods", "5")
		id := peerOf(t, bob, "alice").ID
		if kept := kubectl(t, bob, "get", "sharingpolicy", "family", "-o", "jsonpath={.spec.peers[*]}"); kept != id || !strings.Contains(out, "alice") || strings.Contains(out, id) {
			t.Errorf("the policy keeps %q, alice is %s:\n%s", kept, id, out)
		}
	})
	t.Run("the contract of an hour is not renewed on end", func(t *testing.T) {
		time.Sleep(5 * time.Second)
		for _, p := range []*lab.Laptop{alice, bob} {
			if revision := kubectl(t, p, "get", "contracts", "-o", "jsonpath={.items[0].spec.revision}"); revision != "1" {
				t.Errorf("%s has revision %s after some seconds", p.Name(), revision)
			}
		}
	})
	t.Run("a file that is no contract", func(t *testing.T) {
		out, err := bob.Kith(t.Context(), "contract", "verify", "/etc/kith/config.yaml")
		if err == nil || !strings.Contains(err.Error()+out, "/etc/kith/config.yaml is not a Kith contract: it has no signed document") {
			t.Errorf("%v %s", err, out)
		}
	})
}

//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestWhyAPodDoesNotRun asks why of pods with as many reasons not to run, at home and at a peer, of one that runs, and of guests; and what
// those use that run.
func TestWhyAPodDoesNotRun(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	kubectl(t, alice, "create", "namespace", "shop")
	pod := func(name, spec, container string) {
		t.Helper()
		apply(t, alice, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  %s
  containers:
  - {name: main, imagePullPolicy: IfNotPresent, %s}
`, name, spec, container))
	}
	const echo, there = `image: "kith.dev/echo:1"`, "nodeSelector: {kubernetes.io/hostname: kith-bob}"
	asks := func(cpu string) string { return echo + ", resources: {requests: {cpu: " + cpu + "}}" }

	pod("early", "", asks("100"))
	because(t, alice, "shop/early", "waiting", "NoRoom@alice(you)", "NotOffloaded(you)")
	kith(t, alice, "offload", "shop")
	pod("large", there, asks("600m"))
	pod("rooted", there+"\n  hostNetwork: true", asks("10m"))
	pod("nowhere", there, `image: "kith.dev/nothing:1", resources: {requests: {cpu: 10m}}`)
	pod("short", there, asks("10m")+`, args: [exit, "3"]`)
	pod("unset", there, asks("10m")+`, envFrom: [{secretRef: {name: gone}}]`)
	pod("unclaimed", "volumes: [{name: data, persistentVolumeClaim: {claimName: gone}}]", asks("10m"))
	pod("first", there+"\n  initContainers: [{name: wait, imagePullPolicy: IfNotPresent, "+echo+"}]", asks("10m"))
	apply(t, alice, solo("fine", "kith-bob"))

	w := because(t, alice, "shop/large", "waiting", "NoRoom@bob(you)", "NotSelected@alice(you)")
	if s := w.Causes[0].Short; len(s) != 1 || s[0].Resource != "cpu" || s[0].Asked != "600m" || s[0].Of != "500m" || !strings.Contains(w.Causes[0].Do, "kith peer bob --cpu ") {
		t.Errorf("%+v", w.Causes[0])
	}
	if w := because(t, alice, "shop/rooted", "refused", "Refused@bob(peer)"); w.Causes[0].Detail != "PodSecurity" || !strings.Contains(w.Causes[0].Why, "hostNetwork") {
		t.Errorf("%+v", w.Causes[0])
	}
	if w := because(t, alice, "shop/nowhere", "failing", "ImageNotPulled@bob(you)"); w.Causes[0].Names[0] != "kith.dev/nothing:1" || w.Causes[0].Said == "" {
		t.Errorf("%+v", w.Causes[0])
	}
	if w := because(t, alice, "shop/short", "failing", "Crashes@bob(you)"); w.Causes[0].ExitCode == nil || *w.Causes[0].ExitCode != 3 {
		t.Errorf("%+v", w.Causes[0])
	}
	because(t, alice, "shop/unset", "failing", "ContainerNotMade@bob(you)")
	because(t, alice, "shop/unclaimed", "waiting", "ClaimMissing(you)")
	because(t, alice, "shop/first", "starting", "InitContainerRuns@bob(you)")
	because(t, alice, "shop/fine", "ready", "Runs@bob(nobody)")

	t.Run("those that do not run are listed", func(t *testing.T) {
		out := kith(t, alice, "why", "-n", "shop")
		t.Log("\n" + out)
		for _, name := range []string{"shop/early ", "shop/large ", "shop/rooted ", "shop/nowhere ", "shop/short ", "shop/unset ", "shop/unclaimed ", "shop/first "} {
			if !strings.Contains(out, name) {
				t.Errorf("%s is not there", name)
			}
		}
		if strings.Contains(out, "shop/fine") {
			t.Error("one that runs is there")
		}
	})
	t.Run("a workload is about its pod that is farthest from running", func(t *testing.T) {
		kubectl(t, alice, "-n", "shop", "create", "deployment", "web", "--image", "kith.dev/nothing:2", "--replicas", "2")
		for _, name := range []string{"deployment/web", "web"} {
			if w := because(t, alice, name, "failing", "ImageNotPulled@*(you)"); w.Of != "deployment/web" || w.Pods == nil || w.Pods.All != 2 || w.Pods.Ready != 0 {
				t.Errorf("%+v", w)
			}
		}
		if out, err := alice.Kith(t.Context(), "why", "-n", "shop", "deployment/none"); err == nil || !strings.Contains(err.Error()+out, "no deployment") {
			t.Errorf("a deployment that is not there: %v %s", err, out)
		}
	})
	t.Run("the provider's owner sees what is his", func(t *testing.T) {
		twin := twinAt(t, bob, "shop")
		if w := because(t, bob, twin+"/rooted", "refused", "Refused@bob(you)"); w.Guest != "alice" {
			t.Errorf("%+v", w)
		}
		if w := because(t, bob, twin+"/short", "failing", "Crashes@bob(home)"); w.Guest != "alice" || w.Causes[0].Said != "" || strings.Contains(w.Causes[0].Do, "kubectl") {
			t.Errorf("%+v", w)
		}
	})
	t.Run("what is used is measured", func(t *testing.T) {
		for p, direction := range map[*lab.Laptop]string{alice: "outgoing", bob: "incoming"} {
			eventually(t, 60*time.Second, "what fine uses is known at "+p.Name(), func() string {
				var all []api.Top
				if err := json.Unmarshal([]byte(kith(t, p, "top", "-o", "json")), &all); err != nil || len(all) != 1 || string(all[0].Direction) != direction || all[0].Granted["cpu"] != "500m" {
					return fmt.Sprintf("%v %+v", err, all)
				}
				for _, pod := range all[0].Pods {
					if pod.Name == "fine" && pod.Used["memory"] != "" && pod.Used["memory"] != "0" && all[0].Used["memory"] != "0" {
						return ""
					}
				}
				return fmt.Sprintf("%+v", all)
			})
		}
	})
	t.Run("a peer that is silent", func(t *testing.T) {
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		w := because(t, alice, "shop/fine", "unknown", "PeerUnreachable@bob(peer)")
		if w.Causes[0].Since.IsZero() || !strings.Contains(kith(t, alice, "why", "shop/fine"), "bob cannot be reached") {
			t.Errorf("%+v", w.Causes[0])
		}
		if out := kith(t, alice, "top"); !strings.Contains(out, "cannot be reached") {
			t.Errorf("what is used there cannot be known:\n%s", out)
		}
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		because(t, alice, "shop/fine", "ready", "Runs@bob(nobody)")
	})
}

// because waits until kith why tells that state with these causes, "reason@laptop(who)"; any laptop with "*".
func because(t *testing.T, p *lab.Laptop, name, state string, causes ...string) (w api.Why) {
	t.Helper()
	eventually(t, 90*time.Second, "why of "+name, func() string {
		args := []string{"why", name, "-o", "json"}
		if before, _, found := strings.Cut(name, "/"); !found || before == "deployment" {
			args = append(args, "-n", "shop")
		}
		out, err := p.Kith(t.Context(), args...)
		if err == nil {
			w = api.Why{}
			err = json.Unmarshal([]byte(out), &w)
		}
		var got []string
		for _, c := range w.Causes {
			text := string(c.Reason)
			if c.Laptop != "" {
				text += "@" + c.Laptop
			}
			got = append(got, text+"("+string(c.Who)+")")
		}
		same := err == nil && string(w.State) == state && len(got) == len(causes)
		for i := 0; same && i < len(got); i++ {
			reason, who, open := strings.Cut(causes[i], "*")
			same = got[i] == causes[i] || open && strings.HasPrefix(got[i], reason) && strings.HasSuffix(got[i], who)
		}
		if !same {
			return fmt.Sprintf("%v, %s: %v, want %s: %v", err, w.State, got, state, causes)
		}
		return ""
	})
	return w
}

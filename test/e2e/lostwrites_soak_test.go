//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// TestWhatAPowerLossTookIsMadeAgain has laptops lose their power together with what their datastores wrote last, which the disk had not
// synced: first the contract itself, then what the provider was given, then what its home had done. Afterwards what is abroad is what home
// says again, and nobody is left with what only the other remembers.
func TestWhatAPowerLossTookIsMadeAgain(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	for _, p := range l.Laptops() {
		eventually(t, 30*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}

	w.run("the contract at its provider", func(t *testing.T) {
		before := w.written(w.bob)
		befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
		w.lose(w.bob, before)
		eventually(t, time.Minute, "both say the same of the contract", func() string {
			if out, in := peerOf(t, w.alice, "bob"), peerOf(t, w.bob, "alice"); !out.Reachable || out.Outgoing != in.Incoming {
				return fmt.Sprintf("alice: %+v; bob: %+v", out, in)
			}
			return ""
		})
		t.Logf("alice: %+v", peerOf(t, w.alice, "bob"))
		t.Logf("bob: %+v", peerOf(t, w.bob, "alice"))
		if peerOf(t, w.alice, "bob").Outgoing != "connected" {
			befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
		}
	})
	if t.Failed() {
		return
	}

	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop")
	page := func(text string) {
		apply(t, w.alice, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page, namespace: shop}\ndata: {text: "+text+"}\n")
	}
	page("first")
	for _, name := range []string{"stays", "early"} {
		apply(t, w.alice, shown("shop", name))
	}
	eventually(t, 90*time.Second, "the first pods run at bob", func() string { return w.same("first", "shop", "stays", "early") })

	w.run("what the provider was given", func(t *testing.T) {
		before := w.written(w.bob)
		page("second")
		kubectl(t, w.alice, "delete", "pod", "-n", "shop", "early", "--wait=false")
		apply(t, w.alice, shown("shop", "late"))
		kubectl(t, w.alice, "create", "namespace", "more")
		kith(t, w.alice, "offload", "more")
		apply(t, w.alice, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page, namespace: more}\ndata: {text: second}\n")
		apply(t, w.alice, shown("more", "other"))
		eventually(t, 90*time.Second, "the next pods run at bob", func() string {
			if not := w.same("second", "more", "other"); not != "" {
				return not
			}
			return w.same("second", "shop", "stays", "late")
		})
		w.lose(w.bob, before)
		took := eventually(t, 3*time.Minute, "what bob lost is there again", func() string {
			if not := w.same("second", "more", "other"); not != "" {
				return not
			}
			return w.same("second", "shop", "stays", "late")
		})
		t.Logf("again as it was %s after the boot", took.Round(time.Second))
	})
	if t.Failed() {
		return
	}

	w.run("what home had done", func(t *testing.T) {
		before := w.written(w.alice)
		page("third")
		kubectl(t, w.alice, "delete", "pod", "-n", "shop", "late", "--wait=false")
		apply(t, w.alice, shown("shop", "later"))
		eventually(t, 90*time.Second, "the last pods run at bob", func() string { return w.same("third", "shop", "stays", "later") })
		w.lose(w.alice, before)
		took := eventually(t, 3*time.Minute, "abroad is what alice remembers", func() string { return w.same("second", "shop", "stays", "late") })
		t.Logf("as alice remembers it %s after her boot", took.Round(time.Second))
	})
}

// shown is a pod at bob that has the ConfigMap page mounted.
func shown(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: shown}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: kith-bob}
  containers:
  - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}}, volumeMounts: [{name: page, mountPath: /page}]}
  volumes: [{name: page, configMap: {name: page}}]
`, name, namespace)
}

// same tells what is not right unless a namespace of alice's has exactly these pods, all Ready at bob, bob has exactly their guests, and his
// copy of the ConfigMap says what hers says.
func (w *world) same(text, namespace string, names ...string) string {
	slices.Sort(names)
	home, err := w.pods(w.alice, namespace)
	if err != nil {
		return err.Error()
	}
	var have []string
	for i := range home {
		p := &home[i]
		if !podReady(p) || p.DeletionTimestamp != nil {
			return fmt.Sprintf("%s on %q is %s %s %s", p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		if p.Spec.NodeName == "kith-bob" {
			if err := w.reach(p.Status.PodIP); err != nil {
				return fmt.Sprintf("%s does not answer: %v", p.Name, err)
			}
		}
		have = append(have, p.Name)
	}
	if slices.Sort(have); !slices.Equal(have, names) {
		return fmt.Sprintf("alice has %v", have)
	}
	var twins corev1.NamespaceList
	if err := w.list(w.bob, &twins, client.MatchingLabels{"kith.dev/home-namespace": namespace}); err != nil || len(twins.Items) != 1 {
		return fmt.Sprintf("bob has %d twins of %s, %v", len(twins.Items), namespace, err)
	}
	twin := twins.Items[0].Name
	var guests []string
	abroad, err := w.pods(w.bob, twin, client.HasLabels{v1alpha1.LabelConsumer})
	for i := range abroad {
		guests = append(guests, abroad[i].Name)
	}
	if slices.Sort(guests); err != nil || !slices.Equal(guests, names) {
		return fmt.Sprintf("bob has guests %v, %v", guests, err)
	}
	texts := map[string]string{}
	for p, where := range map[*lab.Laptop]string{w.alice: namespace, w.bob: twin} {
		var maps corev1.ConfigMapList
		if err := w.list(p, &maps, client.InNamespace(where)); err != nil {
			return err.Error()
		}
		for i := range maps.Items {
			if maps.Items[i].Name == "page" {
				texts[p.Name()] = maps.Items[i].Data["text"]
			}
		}
	}
	if want := map[string]string{"alice": text, "bob": text}; !maps.Equal(texts, want) {
		return fmt.Sprintf("the pages are %v", texts)
	}
	return ""
}

// datastore is where the machine finds a laptop's datastore, also while it is off.
func (w *world) datastore(p *lab.Laptop) string {
	w.t.Helper()
	log, err := p.LogFile("k8s")
	if err != nil {
		w.t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(log), "db")
}

// written is what a laptop's datastore has written up to now, by file.
func (w *world) written(p *lab.Laptop) map[string][]byte {
	w.t.Helper()
	dir := w.datastore(p)
	if err := p.Freeze(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	files := map[string][]byte{}
	var err error
	for _, name := range []string{"state.db", "state.db-wal"} {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			break
		}
	}
	if thaw := p.Thaw(w.t.Context()); err != nil || thaw != nil {
		w.t.Fatal(err, thaw)
	}
	return files
}

// lose has a laptop lose its power, with all that its datastore has written since, and boot again.
func (w *world) lose(p *lab.Laptop, since map[string][]byte) {
	w.t.Helper()
	dir := w.datastore(p)
	if err := p.Kill(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for name, data := range since {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := p.Boot(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	delete(w.apis, p.Name())
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := p.WaitReady(ctx, nil); err != nil {
		w.t.Fatal(err)
	}
}

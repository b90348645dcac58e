//go:build lab

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
	"kith.dev/test/treetest"
)

// moving is a pod with a claim that begins at home, if there is room.
const moving = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: shop}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 2
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [alice]}]}}]}}
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
         readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}, volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: SIZE}}}
`

// files is the folder of the one volume of a claim of the class kith, or of a guest's, at a laptop; "" when there is none.
func files(t *testing.T, p *lab.Laptop) string {
	t.Helper()
	storage := p.Path("/var/lib/kith/k8s/storage")
	all, err := os.ReadDir(storage)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range all {
		if !e.IsDir() {
			continue
		}
		if path := filepath.Join(storage, e.Name()); strings.Contains(e.Name(), "_kith-volumes_") {
			return path
		} else if _, err := os.Stat(filepath.Join(path, "data")); err == nil {
			return filepath.Join(path, "data")
		}
	}
	return ""
}

func listed(t *testing.T, folder string) []string {
	t.Helper()
	all, err := treetest.List(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("%s has %d entries", folder, len(all))
	}
	return all
}

// TestAVolumeMovesAndItsPodFollows: a volume goes to a peer and home again, with all that belongs to its files, through a cut; and it stays when that is
// said in time.
func TestAVolumeMovesAndItsPodFollows(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, 30*time.Second, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	kith(t, bob, "share", "--storage", "2Gi")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "10", "--storage", "1Gi")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--volumes", "anywhere")
	apply(t, alice, strings.Replace(moving, "SIZE", "300Mi", 1))
	at := func(node string) {
		t.Helper()
		if p := waitReady(t, alice, 1, "-n", "shop", "-l", "app=store")[0]; p.Spec.NodeName != node {
			t.Fatalf("its pod is at %s, and not at %s\n%s", p.Spec.NodeName, node, kubectl(t, alice, "-n", "shop", "get", "events"))
		}
	}
	at("alice")
	if err := treetest.Fill(files(t, alice), 2000, 12<<20, 1); err != nil {
		t.Fatal(err)
	}
	want := listed(t, files(t, alice))
	const claim = "shop/data-store-0"
	moved := func(to, node string, from, into *lab.Laptop) {
		t.Helper()
		t.Log(kith(t, alice, "volume", "move", claim, "--to", to))
		at(node)
		if differs := treetest.Differ(want, listed(t, files(t, into))); differs != "" {
			t.Fatal(differs)
		}
		eventually(t, 20*time.Second, "nothing is left at "+from.Name(), func() string {
			if left := files(t, from); left != "" {
				return left
			}
			return ""
		})
	}
	moved("bob", "kith-bob", alice, bob)
	if out := kith(t, alice, "volumes"); !strings.Contains(out, "at bob") || !strings.Contains(out, "Bound") {
		t.Error(out)
	}
	if out := kubectl(t, alice, "-n", "shop", "exec", "store-0", "--", "/bin/cat", "/data/many/1/200"); !strings.HasPrefix(out, "00000200") {
		t.Errorf("its pod reads %.20q", out)
	}
	moved("home", "alice", bob, alice)

	t.Run("given up, it stays", func(t *testing.T) {
		for range 3 { // whatever has begun by then
			kith(t, alice, "volume", "move", claim, "--to", "bob", "--no-wait", "--rate", "512Ki")
			kith(t, alice, "volume", "move", claim, "--cancel")
			eventually(t, 20*time.Second, "nothing is left at bob", func() string { return files(t, bob) })
		}
		kith(t, alice, "volume", "move", claim, "--to", "bob", "--rate", "512Ki", "--no-wait")
		eventually(t, 20*time.Second, "the copy is under way", func() string {
			if out := kith(t, alice, "volumes"); !strings.Contains(out, "moving to bob, copying") {
				return out
			}
			return ""
		})
		t.Log(kith(t, alice, "volumes"))
		t.Log(kith(t, alice, "volume", "move", claim, "--cancel"))
		eventually(t, 20*time.Second, "nothing is left at bob", func() string { return files(t, bob) })
		at("alice")
	})

	t.Run("a cut is no end", func(t *testing.T) {
		done := make(chan error, 1)
		go func() {
			out, err := alice.Kith(context.WithoutCancel(t.Context()), "volume", "move", claim, "--to", "bob", "--rate", "2Mi")
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			done <- err
		}()
		eventually(t, 20*time.Second, "files are at bob", func() string {
			folder := files(t, bob)
			if folder == "" {
				return "none"
			}
			if _, err := os.Stat(filepath.Join(folder, "many/3")); err != nil {
				return err.Error()
			}
			return ""
		})
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		at("alice") // its pod hears nothing of it
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		at("kith-bob")
		if differs := treetest.Differ(want, listed(t, files(t, bob))); differs != "" {
			t.Fatal(differs)
		}
	})

	t.Run("it is fetched from a provider that ended the contract", func(t *testing.T) {
		kith(t, bob, "unpeer", "alice", "--yes")
		eventually(t, time.Minute, "bob keeps it", func() string {
			if out := kith(t, bob, "volumes"); !strings.Contains(out, "kept until") {
				return instead(out)
			}
			return ""
		})
		t.Log(kith(t, alice, "volume", "fetch", claim))
		at("alice")
		if differs := treetest.Differ(want, listed(t, files(t, alice))); differs != "" {
			t.Fatal(differs)
		}
		eventually(t, 20*time.Second, "nothing is left at bob", func() string { return files(t, bob) })
	})
	if t.Failed() {
		t.Log(kubectl(t, alice, "-n", "shop", "get", "events", "--sort-by=.lastTimestamp"))
	}
}

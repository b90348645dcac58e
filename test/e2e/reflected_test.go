//go:build lab

package e2e

import (
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// servicesWithoutPods: a namespace whose pods stay at home is at the peer with its services, which a pod of another namespace there finds; and with
// what its owner labelled. It is there before anything of it is needed, comes back when somebody takes it away there, and goes with the offloading.
func servicesWithoutPods(t *testing.T, l *lab.Lab, away string) {
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	kubectl(t, alice, "create", "namespace", "db")
	apply(t, alice, place("pg", "db", "alice")+`
---
apiVersion: v1
kind: Service
metadata: {name: pg, namespace: db}
spec: {selector: {app: pg}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: db, labels: {kith.dev/reflect: "true"}}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own, namespace: db}
data: {a: b}
`)
	waitReady(t, alice, 1, "-n", "db")
	reached := func() (string, error) {
		return alice.Kubectl(t.Context(), "-n", "shop", "exec", away, "--", "/app", "get", "http://pg.db:8080/")
	}
	if out, err := reached(); err == nil {
		t.Fatalf("a namespace that is not offloaded is found at bob: %s", out)
	}
	if out := kith(t, alice, "offload", "db", "--strategy", "local"); !strings.Contains(out, "bob: db-") {
		t.Errorf("it has no twin at once: %s", out)
	}
	there := func() {
		t.Helper()
		eventually(t, 20*time.Second, "a pod at bob finds its service", func() string {
			if out, err := reached(); err != nil {
				return instead(out)
			}
			return ""
		})
	}
	there()
	twin := twinAt(t, bob, "db")
	eventually(t, 20*time.Second, "what is labelled is there, and nothing else", func() string {
		names := kubectl(t, bob, "-n", twin, "get", "configmaps,pods", "-o", "name")
		if !strings.Contains(names, "configmap/settings") || strings.Contains(names, "configmap/own") || strings.Contains(names, "pod/") {
			return instead(names)
		}
		return ""
	})
	if node := kubectl(t, alice, "-n", "db", "get", "pod", "pg", "-o", "jsonpath={.spec.nodeName}"); node != "alice" {
		t.Errorf("its pod is on %s", node)
	}
	kubectl(t, bob, "delete", "namespace", twin)
	there()
	kith(t, alice, "unoffload", "db")
	eventually(t, 30*time.Second, "nothing is left of it at bob", func() string {
		if out, err := reached(); err == nil {
			return out
		}
		return strings.TrimSpace(kubectl(t, bob, "get", "namespaces", "-l", "kith.dev/home-namespace=db", "-o", "name"))
	})
	kubectl(t, alice, "delete", "namespace", "db")
}

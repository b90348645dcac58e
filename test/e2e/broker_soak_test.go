//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestABrokerOfTwo: pods go on to two providers, who do not know each other either: to alice all of it is one node, then one for each provider.
func TestABrokerOfTwo(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 4})
	b := &brokered{alice: l.Laptop("alice"), bob: l.Laptop("bob"), providers: []*lab.Laptop{l.Laptop("carol"), l.Laptop("dave")}}
	b.settle(t)
	t.Run("pods go on, and are alice's", b.goOn)
	t.Run("each reaches each, and nobody else", b.reach)
	b.scale(t, 0)
	web := *b
	b.app, b.replicas = "many", 20
	t.Run("twenty, by bob's scheduler", b.many)
	t.Run("a provider of many is gone", b.gone)
	b.scale(t, 0)
	b.app, b.replicas = web.app, web.replicas
	t.Run("each provider is a node", b.each)
	b.app, b.replicas = "many", 20
	t.Run("twenty, by alice's scheduler", b.many)
	b.scale(t, 0)
	b.app, b.replicas = web.app, web.replicas
	t.Run("nothing is left", b.unpeer)
}

// many spreads a Deployment over the broker and both providers: it is reached by its service, and its pods at each answer.
func (b *brokered) many(t *testing.T) {
	apply(t, b.alice, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: many, namespace: shop}
spec: {selector: {app: many}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: many}}}
      containers:
      - name: echo
        image: kith.dev/echo:1
        imagePullPolicy: IfNotPresent
        envFrom: [{configMapRef: {name: conf}}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        resources: {requests: {cpu: 30m, memory: 16Mi}}
`, b.replicas))
	waitReady(t, b.alice, b.replicas, "-n", "shop", "-l", "app=many", "--field-selector=status.phase=Running") // those that were given up before are Failed
	at := b.at(t)
	t.Logf("%d at %s, %d at %s, %d at %s", len(at["bob"]), "bob", len(at[b.providers[0].Name()]), b.providers[0].Name(), len(at[b.providers[1].Name()]), b.providers[1].Name())
	for _, p := range b.providers {
		if len(at[p.Name()]) < 4 {
			fail(t, "%s has %d of them", p.Name(), len(at[p.Name()]))
		}
		one := at[p.Name()][0].Metadata.Name
		if out := kubectl(t, b.alice, "-n", "shop", "logs", one); !strings.Contains(out, one) {
			fail(t, "its log: %s", out)
		}
		if out := kubectl(t, b.alice, "-n", "shop", "exec", one, "--", "/app", "env"); !strings.Contains(out, "GREETING=hello") {
			fail(t, "its environment: %s", out)
		}
	}
	answered := map[string]bool{} // by the laptops whose pods answered
	where := map[string]string{}
	for name, some := range at {
		for _, p := range some {
			where[p.Metadata.Name] = name
		}
	}
	eventually(t, 2*time.Minute, "the service has pods at each", func() string {
		out, err := b.alice.Kubectl(t.Context(), "-n", "default", "exec", "client", "--", "/app", "get", "http://many.shop/")
		if err != nil {
			return err.Error()
		}
		for pod, name := range where {
			if strings.Contains(out, `"name": "`+pod+`"`) {
				answered[name] = true
			}
		}
		if len(answered) < len(at) {
			return fmt.Sprint(answered)
		}
		return ""
	})
}

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

// hello is a service of pods that say who they are, with what its spec has besides.
func hello(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s, namespace: team}
spec:
  serviceName: %[1]s
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "kith.dev/echo:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: team, labels: {mine: alone}}
spec:
  selector: {app: %[1]s}
%[2]s
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: %[1]s, namespace: team}
spec: {exportedLabels: {exported: "yes"}, exportedAnnotations: {exported: "too"}}
`, name, spec)
}

// common is a world in which each laptop provides for the other, and each has the namespace team.
type common struct{ *world }

// TestServicesInCommon: Multi-Cluster Services (KEP-1645) between two laptops whose pods have the same addresses, as their conformance tests want it.
func TestServicesInCommon(t *testing.T) {
	w := &common{newWorld(t)}
	befriend(t, w.bob, w.alice, "--cpu", "100m", "--memory", "64Mi", "--pods", "5")
	for _, p := range []*lab.Laptop{w.alice, w.bob} {
		kubectl(t, p, "create", "namespace", "team")
		apply(t, p, `
apiVersion: v1
kind: Pod
metadata: {name: asks, namespace: team}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kith.dev/echo:1", imagePullPolicy: Never}]
`)
	}
	kith(t, w.alice, "offload", "team")
	apply(t, w.alice, `
apiVersion: v1
kind: Pod
metadata: {name: away, namespace: team}
spec:
  nodeSelector: {kubernetes.io/hostname: kith-bob}
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kith.dev/echo:1", imagePullPolicy: Never}]
`)
	for _, p := range []*lab.Laptop{w.alice, w.bob} { // by which its cluster knows the kinds
		if out, err := p.Kubectl(t.Context(), "get", "serviceimports", "-A"); err == nil {
			t.Errorf("%s has the kinds before anybody wants them: %s", p.Name(), out)
		}
		kith(t, p, "share", "--services", "elsewhere")
		eventually(t, time.Minute, p.Name()+" has the kinds", func() string {
			out, err := p.Kubectl(t.Context(), "get", "serviceexports,serviceimports", "-A")
			if err != nil {
				return out + err.Error()
			}
			return ""
		})
	}
	apply(t, w.bob, hello("hello", "  ports: [{name: http, port: 80, targetPort: 8080}]\n  trafficDistribution: PreferClose\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}"))

	w.run("neither owner's word is enough alone", func(t *testing.T) {
		w.export(w.bob, "hello", "Valid=True Valid, Ready=False Pending, Conflict=False NoConflicts")
		kith(t, w.bob, "share", "--services", "te*")
		w.export(w.bob, "hello", "Valid=True Valid, Ready=True Exported, Conflict=False NoConflicts")
		time.Sleep(3 * time.Second)
		if out := w.imports(w.alice); out != "" {
			t.Errorf("alice has %s", out)
		}
		kith(t, w.alice, "share", "--services", "team,other")
		for _, p := range []*lab.Laptop{w.alice, w.bob} {
			w.imported(p, "hello", "ClusterSetIP http/80 ClientIP/10 Cluster PreferClose 1 cluster")
		}
	})
	address := w.get(w.alice, "serviceimport", "hello", "{.spec.ips[0]}")
	if got := w.get(w.alice, "serviceimport", "hello", "{.metadata.labels.exported} {.metadata.annotations.exported} {.metadata.labels.mine}"); got != "yes too " {
		t.Errorf("of its labels and annotations alice has %q", got)
	}
	w.run("all reach it by its name", func(t *testing.T) {
		for _, from := range []struct {
			at  *lab.Laptop
			pod string
		}{{w.alice, "asks"}, {w.bob, "asks"}, {w.alice, "away"}} {
			w.reaches(from.at, from.pod, "hello", "hello-")
			first := w.ask(from.at, from.pod, "hello")
			for range 8 { // its session
				if again := w.ask(from.at, from.pod, "hello"); again != first {
					t.Errorf("%s at %s reached %q, then %q", from.pod, from.at.Name(), first, again)
				}
			}
		}
		if got := strings.TrimSpace(w.app(w.alice, "asks", "lookup", "hello.team.svc.clusterset.local")); got != address {
			t.Errorf("the name is %s, and the import has %s", got, address)
		}
		pod := strings.Fields(w.get(w.alice, "endpointslices", "-l=multicluster.kubernetes.io/service-name=hello", "{.items[*].endpoints[*].addresses[0]}"))[0]
		if out := w.app(w.alice, "asks", "dial", pod+":8080"); !strings.Contains(out, pod) {
			t.Errorf("its port: %s", out)
		}
		for _, from := range []string{"asks", "away"} {
			if out := w.app(w.alice, from, "dial", pod+":9998"); !strings.Contains(out, "timeout") && !strings.Contains(out, "prohibited") && !strings.Contains(out, "no route") {
				t.Errorf("%s: a port that is not exported: %s", from, out)
			}
		}
	})
	w.run("the older one counts where two differ", func(t *testing.T) {
		apply(t, w.alice, hello("hello", "  clusterIP: None\n  ports: [{name: http, port: 81, targetPort: 8080}, {name: more, port: 82, targetPort: 8080}]"))
		for _, p := range []*lab.Laptop{w.alice, w.bob} {
			w.export(p, "hello", "Valid=True Valid, Ready=True Exported, Conflict=True TypeConflict,SessionAffinityConflict,TrafficDistributionConflict,PortConflict")
			w.imported(p, "hello", "ClusterSetIP http/80 more/82 ClientIP/10 Cluster PreferClose 2 clusters")
		}
		eventually(t, time.Minute, "pods of both are behind it", func() string {
			if n := len(strings.Fields(w.get(w.alice, "endpointslices", "-l=multicluster.kubernetes.io/service-name=hello", "{.items[*].endpoints[*].addresses[0]}"))); n != 4 {
				return fmt.Sprintf("%d endpoints", n)
			}
			return ""
		})
		if got := w.get(w.alice, "endpointslices", "-l=multicluster.kubernetes.io/service-name=hello,kubernetes.io/service-name!=hello", "{.items[*].ports[*].name}"); strings.Count(got, "http") != 1 || !strings.Contains(got, "more") {
			t.Errorf("the ports that lead to pods are %s", got)
		}
		w.reaches(w.bob, "asks", "hello:82", "hello-") // at alice
		kubectl(t, w.bob, "-n", "team", "delete", "serviceexport", "hello")
		for _, p := range []*lab.Laptop{w.alice, w.bob} {
			w.imported(p, "hello", "Headless http/81 more/82 Cluster 1 cluster")
		}
		kubectl(t, w.alice, "-n", "team", "delete", "serviceexport", "hello")
		w.nothing("")
		kubectl(t, w.alice, "-n", "team", "delete", "statefulset,service", "hello")
	})
	w.run("a service without an address has names for its pods", func(t *testing.T) {
		apply(t, w.bob, hello("pair", "  clusterIP: None\n  ports: [{name: http, port: 8080}]"))
		w.imported(w.alice, "pair", "Headless http/8080 Cluster 1 cluster")
		source := w.get(w.alice, "serviceimport", "pair", "{.status.clusters[0].cluster}")
		for _, pod := range []string{"asks", "away"} {
			eventually(t, time.Minute, pod+" finds both, and each by its name", func() string {
				all := strings.Fields(w.app(w.alice, pod, "lookup", "pair.team.svc.clusterset.local"))
				var each []string
				for i := range 2 {
					each = append(each, strings.Fields(w.app(w.alice, pod, "lookup", fmt.Sprintf("pair-%d.%s.pair.team.svc.clusterset.local", i, source)))...)
				}
				slices.Sort(all)
				slices.Sort(each)
				if len(all) != 2 || !slices.Equal(all, each) {
					return fmt.Sprintf("%v, each %v", all, each)
				}
				return ""
			})
			w.reaches(w.alice, pod, "pair:8080", "pair-")
		}
	})
	w.run("what is no service is not exported", func(t *testing.T) {
		apply(t, w.bob, `
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: team}
spec: {type: ExternalName, externalName: example.com}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: outside, namespace: team}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: missing, namespace: team}
`)
		w.export(w.bob, "outside", "Valid=False InvalidServiceType, Ready=False Pending")
		w.export(w.bob, "missing", "Valid=False NoService, Ready=False Pending")
		apply(t, w.bob, "{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: kubernetes, namespace: default}}")
		w.export2(w.bob, "default", "kubernetes", "Valid=True Valid, Ready=False Pending, Conflict=False NoConflicts")
		kubectl(t, w.bob, "-n", "team", "delete", "serviceexport", "outside", "missing")
		kubectl(t, w.bob, "-n", "default", "delete", "serviceexport", "kubernetes")
		w.imported(w.alice, "pair", "Headless http/8080 Cluster 1 cluster")
	})
	kubectl(t, w.bob, "-n", "team", "delete", "serviceexport", "pair")
	apply(t, w.bob, "{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: hello, namespace: team}}")
	w.imported(w.alice, "hello", "ClusterSetIP http/80 ClientIP/10 Cluster PreferClose 1 cluster")
	w.run("it outlives kithd, and a cut", func(t *testing.T) {
		before := w.get(w.alice, "serviceimport", "hello", "{.metadata.uid} {.spec.ips[0]}")
		for _, p := range []*lab.Laptop{w.bob, w.alice} {
			if err := p.KillDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, "kithd is back", func() string { return engineReady(t, p) })
			w.reaches(w.alice, "asks", "hello", "hello-")
		}
		if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		ready := func(want string) {
			eventually(t, time.Minute, "endpoints are ready: "+want, func() string {
				got := w.get(w.alice, "endpointslices", "-l=multicluster.kubernetes.io/service-name=hello", "{.items[*].endpoints[*].conditions.ready}")
				if got != want {
					return got
				}
				return ""
			})
		}
		ready("false false")
		if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		ready("true true")
		w.reaches(w.alice, "asks", "hello", "hello-")
		if after := w.get(w.alice, "serviceimport", "hello", "{.metadata.uid} {.spec.ips[0]}"); after != before {
			t.Errorf("the import was %s, and is %s", before, after)
		}
	})
	w.run("an owner takes his word back", func(t *testing.T) {
		pod := strings.Fields(w.get(w.alice, "endpointslices", "-l=multicluster.kubernetes.io/service-name=hello", "{.items[*].endpoints[*].addresses[0]}"))[0]
		kith(t, w.bob, "share", "--services", "")
		w.nothing("hello") // bob's own
		if out := w.app(w.alice, "asks", "dial", pod+":8080"); strings.Contains(out, "->") {
			t.Errorf("alice still reaches %s: %s", pod, out)
		}
		kith(t, w.bob, "share", "--services", "team")
		w.imported(w.alice, "hello", "ClusterSetIP http/80 ClientIP/10 Cluster PreferClose 1 cluster")
		kith(t, w.alice, "unpeer", "bob")
		w.nothing("hello")
	})
}

func (w *common) get(p *lab.Laptop, kind, name, path string) string {
	return kubectl(w.t, p, "-n", "team", "get", kind, name, "-o", "jsonpath="+path)
}

// app runs the program of a pod, and gives what it or its error says.
func (w *common) app(p *lab.Laptop, pod string, args ...string) string {
	out, err := p.Kubectl(w.t.Context(), append([]string{"-n", "team", "exec", pod, "--", "/app"}, args...)...)
	if err != nil {
		out += err.Error()
	}
	return out
}

// ask gives the name of the pod that answers for a service; what went wrong, if none does.
func (w *common) ask(p *lab.Laptop, pod, service string) string {
	host, port, _ := strings.Cut(service, ":")
	if port != "" {
		port = ":" + port
	}
	out := w.app(p, pod, "get", "http://"+host+".team.svc.clusterset.local"+port+"/")
	if _, name, ok := strings.Cut(out, `"name": "`); ok {
		name, _, _ = strings.Cut(name, `"`)
		return name
	}
	return out
}

func (w *common) reaches(p *lab.Laptop, pod, service, want string) {
	w.t.Helper()
	eventually(w.t, time.Minute, pod+" at "+p.Name()+" reaches "+service, func() string {
		if got := w.ask(p, pod, service); !strings.HasPrefix(got, want) {
			return got
		}
		return ""
	})
}

// export waits until a ServiceExport says this.
func (w *common) export(p *lab.Laptop, name, want string) {
	w.t.Helper()
	w.export2(p, "team", name, want)
}

func (w *common) export2(p *lab.Laptop, namespace, name, want string) {
	w.t.Helper()
	eventually(w.t, 30*time.Second, p.Name()+"'s export "+name+" says "+want, func() string {
		out := kubectl(w.t, p, "-n", namespace, "get", "serviceexport", name, "-o", "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}, {end}")
		if got := strings.TrimSuffix(out, ", "); got != want {
			return got
		}
		return ""
	})
}

func (w *common) imports(p *lab.Laptop) string {
	return strings.TrimSpace(kubectl(w.t, p, "get", "serviceimports", "-A", "-o", "jsonpath={.items[*].metadata.name}"))
}

// imported waits until a ServiceImport is so: its type, ports, affinity and from how many clusters it is.
func (w *common) imported(p *lab.Laptop, name, want string) {
	w.t.Helper()
	eventually(w.t, 30*time.Second, p.Name()+" imports "+name+" as "+want, func() string {
		out, err := p.Kubectl(w.t.Context(), "-n", "team", "get", "serviceimport", name, "-o",
			"jsonpath={.spec.type}{range .spec.ports[*]} {.name}/{.port}{end}{range .spec.sessionAffinityConfig.clientIP} ClientIP/{.timeoutSeconds}{end} {.spec.internalTrafficPolicy} {.spec.trafficDistribution}|{.status.clusters[*].cluster}|{.spec.ips}")
		if err != nil {
			return err.Error()
		}
		parts := strings.Split(out, "|")
		n := len(strings.Fields(parts[1]))
		got := fmt.Sprintf("%s %d cluster%s", strings.TrimSpace(parts[0]), n, map[bool]string{true: "s"}[n != 1])
		if got != want {
			return got
		}
		if headless := strings.HasPrefix(want, "Headless"); headless != (parts[2] == "") {
			return "addresses " + parts[2]
		}
		return ""
	})
}

// nothing waits until alice imports nothing, bob nothing but that, and what was made for it is gone.
func (w *common) nothing(atBob string) {
	w.t.Helper()
	eventually(w.t, 30*time.Second, "nothing is imported", func() string {
		if got := w.imports(w.alice); got != "" {
			return "alice: " + got
		}
		if got := w.imports(w.bob); got != atBob {
			return "bob: " + got
		}
		if got := kubectl(w.t, w.alice, "get", "services,endpointslices", "-A", "-l", "multicluster.kubernetes.io/service-name", "-o", "name"); got != "" {
			return "alice has " + got
		}
		if got := kubectl(w.t, w.bob, "get", "peers", "-o", "jsonpath={.items[*].status.network.shared}"); got != "" {
			return "bob shares " + got
		}
		return ""
	})
}

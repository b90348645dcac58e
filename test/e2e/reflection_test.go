//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestAnApplicationOfManyPartsSpansTwoLaptops: parts that find each other by name, read config and secrets and ask their
// API server do so wherever they run.
func TestAnApplicationOfManyPartsSpansTwoLaptops(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "900m", "--memory", "900Mi", "--pods", "30")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	manifest, err := os.ReadFile(filepath.Join("testdata", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, alice, string(manifest))
	all := map[string]pod{}
	for app, n := range map[string]int{"web": 4, "api": 2, "store": 2} {
		for _, p := range waitReady(t, alice, n, "-n", "shop", "-l", "app="+app) {
			all[app+" on "+p.Spec.NodeName] = p
		}
	}
	in := func(p pod, args ...string) (string, error) {
		return alice.Kubectl(t.Context(), append([]string{"-n", "shop", "exec", p.Metadata.Name, "--"}, args...)...)
	}
	for _, part := range []string{"web on alice", "web on kith-bob", "api on alice", "api on kith-bob"} {
		if all[part].Metadata.Name == "" {
			t.Fatalf("the parts did not spread: there is no %s", part)
		}
	}
	twin := twinAt(t, bob, "shop")
	ofBob := func(kind string) []string {
		out := kubectl(t, bob, "-n", twin, "get", kind, "-l", "kith.dev/managed-by=kith", "-o", "jsonpath={.items[*].metadata.name}")
		names := strings.Fields(out)
		slices.Sort(names)
		return names
	}

	t.Run("each part reaches each by its service's name", func(t *testing.T) {
		for _, from := range []string{"web on alice", "web on kith-bob"} {
			for service, want := range map[string]int{"http://api": 2, "http://api.shop": 2, "http://web.shop.svc.cluster.local": 4, "http://store-0.store:8080": 1, "http://store-1.store:8080": 1} {
				seen := map[string]bool{}
				eventually(t, 30*time.Second, fmt.Sprintf("%s sees %d pods at %s", from, want, service), func() string {
					out, err := in(all[from], "/app", "get", service+"/")
					var answer struct{ Name string }
					if err != nil || json.Unmarshal([]byte(out), &answer) != nil {
						t.Errorf("%s from %s: %s (%v)", service, from, out, err)
					}
					seen[answer.Name] = true
					if len(seen) < want {
						return fmt.Sprint(seen)
					}
					return ""
				})
			}
		}
		// Many clients take the first one only.
		for _, from := range []string{"web on alice", "web on kith-bob"} {
			first := map[string]bool{}
			eventually(t, 30*time.Second, from+" gets the addresses of a headless service by turns", func() string {
				out, err := in(all[from], "/app", "lookup", "store")
				addrs := strings.Fields(out)
				if err != nil || len(addrs) != 2 {
					return fmt.Sprintf("the headless service has addresses %q (%v), want 2", out, err)
				}
				if first[addrs[0]] = true; len(first) < 2 {
					return "always " + addrs[0] + " first"
				}
				return ""
			})
		}
	})

	t.Run("services abroad open no ports of the host", func(t *testing.T) {
		if out := kubectl(t, bob, "-n", twin, "get", "service", "web", "-o", "jsonpath={.spec.type} {.spec.ports[*].nodePort} {.spec.selector}"); strings.TrimSpace(out) != "ClusterIP" {
			t.Errorf("service web at bob: %q", out)
		}
		if out := kubectl(t, bob, "-n", twin, "get", "service", "elsewhere", "-o", "jsonpath={.spec.externalName}"); out != "example.org" {
			t.Errorf("service elsewhere at bob leads to %q", out)
		}
	})

	t.Run("config, secrets and what a pod knows of itself", func(t *testing.T) {
		out, err := in(all["web on kith-bob"], "/app", "env")
		for _, line := range []string{"GREETING=hello", "WORD=s3cret", "NODE_NAME=kith-bob", "POD_NAMESPACE=shop", "ACCOUNT=reader", "CONSUMER=", "TEAM=blue"} {
			if err != nil || !slices.Contains(strings.Split(out, "\n"), line) {
				t.Errorf("the environment has no %s (%v):\n%s", line, err, out)
			}
		}
		if out, err := in(all["web on kith-bob"], "/bin/cat", "/conf/page.txt"); err != nil || out != "made at home" {
			t.Errorf("the volume holds %q (%v)", out, err)
		}
		for _, where := range []string{"web on alice", "web on kith-bob"} {
			labels, _ := in(all[where], "/bin/cat", "/info/labels")
			annotations, err := in(all[where], "/bin/cat", "/info/annotations")
			if err != nil || !strings.HasPrefix(labels, "app=\"web\"\npod-template-hash=") || strings.Contains(labels+annotations, "kith.dev") ||
				!strings.Contains(annotations, "example.org/team=\"blue\"") || !strings.Contains(annotations, "note=\"by hand\"") {
				t.Errorf("%s reads of itself labels %q, annotations %q (%v)", where, labels, annotations, err)
			}
		}
		if got := ofBob("configmaps"); !slices.Equal(got, []string{"page", "settings"}) {
			t.Errorf("ConfigMaps at bob: %v", got)
		}
		if got := ofBob("secrets"); slices.Contains(got, "unused") || !slices.Contains(got, "password") {
			t.Errorf("Secrets at bob: %v", got)
		}
	})

	t.Run("what is not offloaded stays at home, whatever it tolerates", func(t *testing.T) { staysAtHome(t, alice, bob) })

	t.Run("what home's LimitRange and ResourceQuota say holds at bob", func(t *testing.T) { homeRules(t, alice, bob) })
	t.Run("what cannot go is refused by name", func(t *testing.T) { refusedByName(t, alice) })
	t.Run("an Ingress stays at home and leads to pods at bob", func(t *testing.T) {
		ingressAtHome(t, alice, bob, func(args ...string) (string, error) { return in(all["web on alice"], args...) })
	})

	t.Run("the node says what machine bob has, and where it is", func(t *testing.T) { nodeOfBob(t, alice, bob) })

	t.Run("a change at home arrives", func(t *testing.T) {
		kubectl(t, alice, "-n", "shop", "label", "pod", all["web on kith-bob"].Metadata.Name, "seen=later")
		kubectl(t, alice, "-n", "shop", "patch", "configmap", "page", "--type", "merge", "-p", `{"data":{"page.txt":"made anew"}}`)
		kubectl(t, alice, "-n", "shop", "patch", "service", "api", "--type", "merge", "-p", `{"spec":{"ports":[{"name":"http","port":80,"targetPort":8080},{"name":"more","port":81,"targetPort":8080}]}}`)
		eventually(t, 10*time.Second, "the ConfigMap is new at bob", func() string {
			if out := kubectl(t, bob, "-n", twin, "get", "configmap", "page", "-o", "jsonpath={.data}"); !strings.Contains(out, "made anew") {
				return instead(out)
			}
			return ""
		})
		eventually(t, 10*time.Second, "the label is in the Secret that its volume shows", func() string {
			if out := kubectl(t, bob, "-n", twin, "get", "secret", "kith-pod-"+all["web on kith-bob"].Metadata.Name, "-o", "json"); !strings.Contains(decoded(out), "seen=\"later\"") {
				return instead(out)
			}
			return ""
		})
		eventually(t, 20*time.Second, "the new port works at bob", func() string {
			if out, err := in(all["web on kith-bob"], "/app", "get", "http://api:81/"); err != nil {
				return fmt.Sprint(out, err) // out alone is nothing, and would be taken for success
			}
			return ""
		})
	})

	t.Run("jobs run abroad with what they need", func(t *testing.T) {
		kubectl(t, alice, "-n", "shop", "create", "job", "now", "--from=cronjob/tick")
		kubectl(t, alice, "-n", "shop", "wait", "--for=condition=complete", "job/now", "--timeout=3m")
		if p := pods(t, alice, "-n", "shop", "-l", "job-name=now"); len(p) != 1 || p[0].Spec.NodeName != "kith-bob" {
			t.Errorf("the job's pods: %+v", p)
		}
		if out := kubectl(t, alice, "-n", "shop", "logs", "job/now"); !strings.Contains(out, `"name": "api-`) {
			t.Errorf("the job saw %q", out)
		}
	})

	t.Run("a pod abroad asks its own API server", func(t *testing.T) {
		for _, where := range []string{"web on alice", "web on kith-bob"} {
			out, err := in(all[where], "/app", "api", "/api/v1/namespaces/{namespace}/pods")
			if err != nil || strings.Count(out, `"app":"web"`) < 4 {
				t.Errorf("%s lists: %.300s (%v)", where, out, err)
			}
			if out, err := in(all[where], "/app", "api", "/api/v1/namespaces/{namespace}/secrets"); err == nil {
				t.Errorf("%s may read secrets: %.200s", where, out)
			}
		}
	})

	t.Run("foreign edits are put right, foreign objects left alone", func(t *testing.T) { foreign(t, alice, bob) })
	t.Run("a consumer cannot write what it likes", func(t *testing.T) { bounds(t, bob) })
	t.Run("a restart changes nothing, and what changed meanwhile follows", func(t *testing.T) { reflectAfterRestart(t, alice, bob, ofBob) })
	t.Run("a cut link only puts it off", func(t *testing.T) { reflectAfterCut(t, l, ofBob) })
	t.Run("who hangs is away until he goes on", func(t *testing.T) { hang(t, l) })

	t.Run("deletions follow", func(t *testing.T) {
		kubectl(t, alice, "-n", "shop", "delete", "service", "elsewhere")
		kubectl(t, alice, "-n", "shop", "delete", "deployment", "web", "api")
		kubectl(t, alice, "-n", "shop", "delete", "statefulset", "store")
		kubectl(t, alice, "-n", "shop", "delete", "cronjob", "tick")
		eventually(t, 20*time.Second, "the service is gone at bob", func() string {
			if got := ofBob("services"); slices.Contains(got, "elsewhere") {
				return fmt.Sprint(got)
			}
			return ""
		})
		eventually(t, 90*time.Second, "what no pod refers to any more is gone at bob", func() string {
			if got := append(ofBob("configmaps"), ofBob("secrets")...); len(got) > 0 {
				return fmt.Sprint(got)
			}
			return ""
		})
	})
}

// foreign changes at bob what came from alice, and puts something of his own in the way.
func foreign(t *testing.T, alice, bob *lab.Laptop) {
	twin := twinAt(t, bob, "shop")
	kubectl(t, bob, "-n", twin, "patch", "service", "web", "--type", "merge", "-p", `{"spec":{"selector":{"app":"other"}}}`)
	kubectl(t, bob, "-n", twin, "patch", "secret", "password", "--type", "merge", "-p", `{"data":{"word":"eA==","more":"eA=="}}`)
	kubectl(t, bob, "-n", twin, "delete", "service", "store")
	for what, want := range map[[2]string]string{
		{"service/web", "{.spec.selector}"}: "", {"secret/password", "{.data}"}: `{"word":"czNjcmV0"}`, {"service/store", "{.spec.clusterIP}"}: "None",
	} {
		eventually(t, 10*time.Second, what[0]+" is put right", func() string {
			out, err := bob.Kubectl(t.Context(), "-n", twin, "get", what[0], "-o", "jsonpath="+what[1])
			if err != nil || out != want {
				return fmt.Sprintf("%s, want %s (%v)", out, want, err)
			}
			return ""
		})
	}

	kubectl(t, bob, "-n", twin, "create", "configmap", "mine", "--from-literal=owner=bob")
	kubectl(t, alice, "-n", "shop", "create", "configmap", "mine", "--from-literal=owner=alice")
	kubectl(t, alice, "-n", "shop", "label", "configmap", "mine", "kith.dev/reflect=true")
	eventually(t, 20*time.Second, "alice is told of the clash", func() string {
		events := kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "reason=NotReflected,involvedObject.name=mine", "-o", "jsonpath={.items[*].message}")
		condition := kubectl(t, alice, "-n", "shop", "get", "namespaceoffloading", "offloading", "-o", `jsonpath={.status.conditions[?(@.type=="Reflected.bob")].message}`)
		if !strings.Contains(events, "its own") || !strings.Contains(condition, "mine") {
			return fmt.Sprintf("events %q, condition %q", events, condition)
		}
		return ""
	})
	if out := kubectl(t, bob, "-n", twin, "get", "configmap", "mine", "-o", "jsonpath={.data.owner}"); out != "bob" {
		t.Errorf("bob's own ConfigMap is %q now", out)
	}
	kubectl(t, alice, "-n", "shop", "delete", "configmap", "mine")
}

// bounds tries, as alice's user at bob, what a hostile consumer would.
func bounds(t *testing.T, bob *lab.Laptop) {
	twin := twinAt(t, bob, "shop")
	user := strings.TrimSpace(kubectl(t, bob, "-n", twin, "get", "rolebinding", "kith:tenant", "-o", "jsonpath={.subjects[0].name}"))
	meta := `metadata: {name: evil, namespace: ` + twin + `, labels: {kith.dev/managed-by: kith}}`
	slice := func(kind, address string) string {
		return fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: evil, namespace: TWIN, labels: {kith.dev/managed-by: kith, endpointslice.kubernetes.io/managed-by: kith.dev, kubernetes.io/service-name: web}}, addressType: %s, ports: [], endpoints: [{addresses: [%q]}]}", kind, address)
	}
	budget := func(least, selector string) string {
		return "{apiVersion: policy/v1, kind: PodDisruptionBudget, " + meta + ", spec: {" + least + ", selector: {" + selector + "}}}"
	}
	space := strings.Split(kubectl(t, bob, "get", "namespace", twin, "-o", `jsonpath={.metadata.annotations.kith\.dev/address-space}`), ",")
	guests := kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network.guestsHere}")
	if !slices.Contains(space, "10.42.0.0/16") || !slices.Contains(space, guests) {
		t.Errorf("alice's address space is %v at bob, her guests have %s", space, guests)
	}
	for what, c := range map[string]struct {
		manifest string
		allowed  bool
	}{
		"a pod of alice's at home":  {slice("IPv4", "10.42.0.250"), true}, // guests read it as alice would, whatever bob has there
		"alice's API server":        {slice("IPv4", "10.42.255.1"), true},
		"a guest of hers":           {slice("IPv4", strings.TrimSuffix(guests, "0/24")+"9"), true},
		"a range beside hers":       {slice("IPv4", netip.MustParsePrefix(guests).Addr().Prev().String()), false},
		"a service of bob's":        {slice("IPv4", "10.43.0.1"), false},
		"bob's laptop":              {slice("IPv4", "192.0.2.12"), false},
		"the internet":              {slice("IPv4", "198.51.100.7"), false},
		"a name for an address":     {slice("FQDN", "example.org"), false},
		"a service":                 {"{apiVersion: v1, kind: Service, " + meta + ", spec: {ports: [{port: 80}]}}", true},
		"a service without label":   {"{apiVersion: v1, kind: Service, metadata: {name: evil, namespace: TWIN}, spec: {ports: [{port: 80}]}}", false},
		"a NodePort":                {"{apiVersion: v1, kind: Service, " + meta + ", spec: {type: NodePort, ports: [{port: 80}]}}", false},
		"a LoadBalancer":            {"{apiVersion: v1, kind: Service, " + meta + ", spec: {type: LoadBalancer, ports: [{port: 80}]}}", false},
		"external addresses":        {"{apiVersion: v1, kind: Service, " + meta + ", spec: {externalIPs: [192.0.2.1], ports: [{port: 80}]}}", false},
		"a name of bob's":           {"{apiVersion: v1, kind: Service, " + meta + ", spec: {type: ExternalName, externalName: kubernetes.default.svc.cluster.local}}", false},
		"a name in its namespace":   {"{apiVersion: v1, kind: Service, " + meta + ", spec: {type: ExternalName, externalName: web.TWIN.svc.cluster.local}}", true},
		"a Secret":                  {"{apiVersion: v1, kind: Secret, " + meta + "}", true},
		"a token of bob's":          {"{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: evil, namespace: TWIN, labels: {kith.dev/managed-by: kith}, annotations: {kubernetes.io/service-account.name: default}}}", false},
		"annotations":               {"{apiVersion: v1, kind: ConfigMap, metadata: {name: evil, namespace: TWIN, labels: {kith.dev/managed-by: kith}, annotations: {replicator/from: kube-system}}}", false},
		"labels":                    {"{apiVersion: v1, kind: ConfigMap, metadata: {name: evil, namespace: TWIN, labels: {kith.dev/managed-by: kith, dashboard: '1'}}}", false},
		"finalizers":                {"{apiVersion: v1, kind: ConfigMap, metadata: {name: evil, namespace: TWIN, labels: {kith.dev/managed-by: kith}, finalizers: [x.example/y]}}", false},
		"a budget for its guests":   {budget("minAvailable: 1", "matchLabels: {kith.dev/managed-by: kith}"), true},
		"a budget for all there":    {budget("minAvailable: 1", ""), false},
		"a budget for others":       {budget("minAvailable: 1", "matchLabels: {app: web}"), false},
		"a budget of shares":        {budget("minAvailable: 50%", "matchLabels: {kith.dev/managed-by: kith}"), false},
		"a budget by controllers":   {budget("maxUnavailable: 1", "matchLabels: {kith.dev/managed-by: kith}"), false},
		"another namespace":         {"{apiVersion: v1, kind: ConfigMap, metadata: {name: evil, namespace: default, labels: {kith.dev/managed-by: kith}}}", false},
		"an object that is not his": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: TWIN, labels: {kith.dev/managed-by: kith}}}", false},
	} {
		out, err := bob.KubectlInput(t.Context(), strings.NewReader(strings.ReplaceAll(c.manifest, "TWIN", twin)), "--as="+user, "--as-group=kith:peers", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		if (err == nil) != c.allowed {
			t.Errorf("%s: allowed %v, want %v: %s", what, err == nil, c.allowed, out)
		}
	}
	if out, err := bob.Kubectl(t.Context(), "--as="+user, "--as-group=kith:peers", "-n", twin, "delete", "configmap", "mine"); err == nil {
		t.Errorf("a consumer deleted what is bob's: %s", out)
	}
}

func reflectAfterRestart(t *testing.T, alice, bob *lab.Laptop, ofBob func(string) []string) {
	twin := twinAt(t, bob, "shop")
	versions := func() string {
		return kubectl(t, bob, "-n", twin, "get", "services,configmaps,secrets", "-l", "kith.dev/managed-by=kith", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}\n{end}")
	}
	before := versions()
	if err := alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := podOfOneTaint(t, alice)
	kubectl(t, alice, "-n", "shop", "create", "service", "clusterip", "late", "--tcp=80:8080")
	if err := alice.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, "the service made meanwhile is at bob", func() string {
		if got := ofBob("services"); !slices.Contains(got, "late") {
			return fmt.Sprint(got)
		}
		return ""
	})
	after := strings.Split(versions(), "\n")
	for _, line := range strings.Split(before, "\n") {
		if !slices.Contains(after, line) {
			t.Errorf("a restart changed %q", line)
		}
	}
	toleratesNow(t, alice, old)
}

func reflectAfterCut(t *testing.T, l *lab.Lab, ofBob func(string) []string) {
	alice := l.Laptop("alice")
	if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, alice, "-n", "shop", "delete", "service", "late")
	kubectl(t, alice, "-n", "shop", "create", "service", "clusterip", "later", "--tcp=80:8080")
	time.Sleep(15 * time.Second) // calls on the way fail
	if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "bob has what alice has", func() string {
		if got := ofBob("services"); slices.Contains(got, "late") || !slices.Contains(got, "later") {
			return fmt.Sprint(got)
		}
		return ""
	})
}

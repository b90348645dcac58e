//go:build lab

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// laptopsOfTheCompany is what bob, the company, gives to laptops.
const laptopsOfTheCompany = `
apiVersion: kith.dev/v1alpha1
kind: TetherPolicy
metadata: {name: laptops}
spec:
  autoAccept: %t
  namespaces:
  - {name: team, clusterRole: edit, quota: {pods: "30"}}
  - {name: "{laptop}-own", clusterRole: view}
  node:
    labels: {company.example/laptop: "yes"}
    taints: [{key: company.example/away, value: "", effect: PreferNoSchedule}]
`

// ofTheTeam is a Deployment that may run anywhere, or on one node.
func ofTheTeam(name, node string, replicas int) string {
	selector := ""
	if node != "" {
		selector = fmt.Sprintf("\n      nodeSelector: {kubernetes.io/hostname: %s}", node)
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: team}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%[2]s
      terminationGracePeriodSeconds: 1
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}}
`, name, selector, replicas)
}

// frontFile is where the tests keep the kubeconfig of root that leads to the front door.
const frontFile = "/root/front.yaml"

// front is kubectl through the front door of a laptop; what it says on both streams.
func front(t *testing.T, p *lab.Laptop, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := p.Run(t.Context(), lab.Command{Args: append([]string{"timeout", "180", "kith-k8s", "kubectl"}, args...), Env: []string{"KUBECONFIG=" + frontFile}, Stdout: &out, Stderr: &out})
	return out.String(), err
}

// mustFront is front for what must work.
func mustFront(t *testing.T, p *lab.Laptop, args ...string) string {
	t.Helper()
	out, err := front(t, p, args...)
	if err != nil {
		t.Fatalf("%s: kubectl %s through the front door: %v\n%s", p.Name(), strings.Join(args, " "), err, out)
	}
	return out
}

// frontApply is kubectl apply through the front door.
func frontApply(t *testing.T, p *lab.Laptop, manifest string) string {
	t.Helper()
	var out bytes.Buffer
	if err := p.Run(t.Context(), lab.Command{Args: []string{"kith-k8s", "kubectl", "apply", "-f", "-"}, Env: []string{"KUBECONFIG=" + frontFile},
		Stdin: strings.NewReader(manifest), Stdout: &out, Stderr: &out}); err != nil {
		t.Fatalf("%s: kubectl apply through the front door: %v\n%s", p.Name(), err, out.String())
	}
	return out.String()
}

// modeOf is what a laptop says of its mode; the zero value when kithd does not answer.
func modeOf(t *testing.T, p *lab.Laptop) (s api.Status) {
	t.Helper()
	if out, err := p.Kith(t.Context(), "status", "-o", "json"); err == nil {
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err, out)
		}
	}
	return s
}

// inMode waits until a laptop is in a mode and its Kubernetes answers.
func inMode(t *testing.T, p *lab.Laptop, mode api.Mode, within time.Duration) time.Duration {
	t.Helper()
	return eventually(t, within, fmt.Sprintf("%s is %s", p.Name(), mode), func() string {
		if s := modeOf(t, p); s.Mode != mode || s.Engine.State != api.EngineReady {
			return fmt.Sprintf("%s %+v %+v", s.Mode, s.Tether, s.Engine)
		}
		return ""
	})
}

// tethered has the company run the laptop; both owners compare the code, if they are new to each other.
func tethered(t *testing.T, laptop, company *lab.Laptop, options ...string) {
	t.Helper()
	for _, p := range []*lab.Laptop{laptop, company} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, 20*time.Second, laptop.Name()+" sees "+company.Name(), func() string {
		if p := peerOf(t, laptop, company.Name()); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	if out, _, err := laptop.Exec(t.Context(), "sh", "-c", "umask 077; kith kubeconfig > "+frontFile); err != nil {
		t.Fatal(out, err)
	}
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := laptop.Kith(t.Context(), append([]string{"tether", company.Name(), "--yes"}, options...)...)
		done <- result{out, err}
	}()
	accepted, confirmed := false, false
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		select {
		case r := <-done:
			if t.Log("kith tether " + company.Name() + ":\n" + r.out); r.err == nil {
				return
			} else if !strings.Contains(r.err.Error(), "exit status 8") { // there is no terminal to confirm at
				t.Fatalf("kith tether: %v\n%s", r.err, r.out)
			}
		default:
		}
		if confirmed && modeOf(t, laptop).Mode == api.Tethered {
			return
		}
		if !accepted {
			for _, r := range requests(t, company) {
				if r.Peer == laptop.Name() && r.Direction == "incoming" {
					if out, err := company.Kith(t.Context(), "accept", r.ID, "--yes"); err != nil && waits(t, company, r.ID) { // no policy was faster
						t.Fatalf("kith accept: %v\n%s", err, out)
					}
					accepted = true
				}
			}
		}
		if p := peerOf(t, laptop, company.Name()); accepted && !confirmed && p.Code != "" {
			if _, err := laptop.Kith(t.Context(), "confirm", company.Name(), "--code", p.Code); err == nil {
				confirmed = true
			}
		}
	}
	t.Fatalf("%s is not tethered: %+v", laptop.Name(), modeOf(t, laptop).Tether)
}

func waits(t *testing.T, company *lab.Laptop, id string) bool {
	return slices.ContainsFunc(requests(t, company), func(r request) bool { return r.ID == id })
}

// dump is all of a namespace that its owner wrote, without what servers and controllers write.
func dump(t *testing.T, p *lab.Laptop, namespace string) string {
	t.Helper()
	var list struct{ Items []map[string]any }
	out := kubectl(t, p, "-n", namespace, "get", "deployments,services,configmaps,secrets,serviceaccounts", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		delete(item, "status")
		if meta, ok := item["metadata"].(map[string]any); ok {
			delete(meta, "resourceVersion")
			delete(meta, "managedFields")
		}
	}
	text, err := json.MarshalIndent(list.Items, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mine is what alice has before.
const mine = `
apiVersion: v1
kind: Namespace
metadata: {name: mine}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: mine}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 200m, memory: 256Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: mine}
spec: {selector: {app: db}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: mine}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: mine}
stringData: {p: w}
`

// lives are the pods of a namespace by name, with how often their containers were restarted.
func livesIn(t *testing.T, p *lab.Laptop, namespace string) string {
	t.Helper()
	var all []string
	for _, one := range pods(t, p, "-n", namespace) {
		restarts := 0
		for _, c := range one.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		all = append(all, fmt.Sprintf("%s %d", one.Metadata.Name, restarts))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestACompanyRunsALaptop: alice, a laptop, is tethered to bob, a company whose cluster Kith runs, and back.
func TestACompanyRunsALaptop(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	companyRuns(t, l)
}

func companyRuns(t *testing.T, l *lab.Lab) {
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	apply(t, bob, fmt.Sprintf(laptopsOfTheCompany, false))
	apply(t, alice, mine)
	waitReady(t, alice, 2, "-n", "mine", "-l", "app=db")
	before, lives := dump(t, alice, "mine"), livesIn(t, alice, "mine")
	t.Log("kith tether bob --check:\n" + kith(t, alice, "tether", "bob", "--check"))

	tethered(t, alice, bob)
	inMode(t, alice, api.Tethered, 5*time.Second)
	t.Log("kith status:\n" + kith(t, alice, "status"))
	t.Log("kith peers at bob:\n" + kith(t, bob, "peers"))

	t.Run("the company has a node", func(t *testing.T) {
		eventually(t, 20*time.Second, "the node carries what the policy says", func() string {
			out := kubectl(t, bob, "get", "node", "kith-alice", "-o", `jsonpath={.metadata.labels.company\.example/laptop} {.spec.taints[*].key} {.status.conditions[?(@.type=="Ready")].status}`)
			if !strings.HasPrefix(out, "yes ") || !strings.Contains(out, "company.example/away") || !strings.HasSuffix(out, "True") {
				return instead(out)
			}
			return ""
		})
		t.Log(kubectl(t, bob, "get", "nodes,peers,contracts"))
	})
	t.Run("kubectl at alice is at the company", func(t *testing.T) {
		t.Log(mustFront(t, alice, "auth", "whoami"))
		frontApply(t, alice, ofTheTeam("spread", "", 4)+"---"+ofTheTeam("hers", "kith-alice", 2))
		for app, n := range map[string]int{"spread": 4, "hers": 2} {
			waitReady(t, bob, n, "-n", "team", "-l", "app="+app)
		}
		if again := frontApply(t, alice, ofTheTeam("spread", "", 4)+"---"+ofTheTeam("hers", "kith-alice", 2)); strings.Count(again, "unchanged") != 2 {
			t.Errorf("applied twice: %s", again)
		}
		t.Log(mustFront(t, alice, "-n", "team", "get", "pods", "-o", "wide"))
		if out, err := front(t, alice, "-n", "mine", "get", "pods"); err == nil || !strings.Contains(out, "forbidden") || !strings.Contains(out, "its users work in team (") {
			t.Errorf("what is local: %v\n%s", err, out)
		}
		for _, how := range []string{"hers", "spread"} {
			if out := mustFront(t, alice, "-n", "team", "exec", "deployment/"+how, "--", "/bin/echo", "over there"); !strings.Contains(out, "over there") {
				t.Error(out)
			}
			mustFront(t, alice, "-n", "team", "logs", "deployment/"+how)
		}
		for _, streams := range []string{"true", "false"} { // WebSocket and SPDY
			script := `kith-k8s kubectl -n team port-forward deployment/hers 18081:8080 >/tmp/pf.log 2>&1 & p=$!
				for i in $(seq 600); do curl -sf http://127.0.0.1:18081/ && echo fetched && break; sleep 0.1; done; kill $p; cat /tmp/pf.log
				head -c 3000000 /dev/zero | kith-k8s kubectl -n team exec -i deployment/hers -- /bin/cat | wc -c`
			var out bytes.Buffer
			err := alice.Run(t.Context(), lab.Command{Args: []string{"timeout", "180", "bash", "-c", script}, Stdout: &out, Stderr: &out,
				Env: []string{"KUBECONFIG=" + frontFile, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + streams, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + streams}})
			if err != nil || !strings.Contains(out.String(), "fetched") || !strings.Contains(out.String(), "3000000") {
				t.Errorf("streams by WebSocket %s: %v\n%s", streams, err, out.String())
			}
		}
	})
	t.Run("the company's owner runs there what her policy allows", func(t *testing.T) { ofTheCompanysOwner(t, alice, bob) })
	t.Run("kustomize changes nothing the second time", func(t *testing.T) {
		const dir = "/root/kustomize"
		if _, stderr, err := alice.ExecInput(t.Context(), strings.NewReader(ofTheTeam("built", "", 1)), "sh", "-ec",
			"mkdir -p "+dir+"; cat > "+dir+"/built.yaml; printf 'namespace: team\nresources: [built.yaml]\nconfigMapGenerator: [{name: settings, literals: [a=b]}]\nlabels: [{pairs: {by: kustomize}}]\n' > "+dir+"/kustomization.yaml"); err != nil {
			t.Fatal(err, stderr)
		}
		mustFront(t, alice, "apply", "-k", dir)
		waitReady(t, bob, 1, "-n", "team", "-l", "app=built")
		if out := mustFront(t, alice, "apply", "-k", dir); strings.Count(out, "unchanged") != 2 || strings.Contains(out, "configured") {
			t.Error(out)
		}
		if out := mustFront(t, alice, "apply", "--server-side", "--force-conflicts", "-k", dir) + mustFront(t, alice, "diff", "--server-side", "--force-conflicts", "-k", dir); strings.Contains(out, "---") {
			t.Error(out)
		}
	})
	t.Run("nobody exceeds what the policy gives", func(t *testing.T) { mayNot(t, alice) })
	t.Run("each account may what its page says", func(t *testing.T) { tetheredRights(t, alice, bob) })
	t.Run("the laptop decides nothing", func(t *testing.T) {
		apply(t, alice, fmt.Sprintf(strings.ReplaceAll(ofBobs, "namespace: own", "namespace: mine"), "past"))
		time.Sleep(3 * time.Second)
		if out := kubectl(t, alice, "-n", "mine", "get", "replicasets,pods", "-l", "app=past", "-o", "name"); out != "" {
			t.Errorf("a Deployment past the front door has %s", out)
		}
		kubectl(t, alice, "-n", "mine", "delete", "deployment", "past")
		if now := livesIn(t, alice, "mine"); now != lives {
			t.Errorf("her own pods are %s, were %s", now, lives)
		}
		if cpu := kubectl(t, bob, "get", "node", "kith-alice", "-o", "jsonpath={.status.allocatable.cpu}"); cpu == kubectl(t, alice, "get", "node", "alice", "-o", "jsonpath={.status.allocatable.cpu}") {
			t.Errorf("the company has all cpu, %s, and her own pods some of it", cpu)
		}
	})
	t.Run("what the company's owner does to the node stays", func(t *testing.T) {
		kubectl(t, bob, "cordon", "kith-alice")
		kubectl(t, bob, "label", "node", "kith-alice", "owner=admin")
		kubectl(t, bob, "taint", "node", "kith-alice", "admin.example/mine=x:NoSchedule")
		for _, p := range []*lab.Laptop{alice, bob} {
			if err := p.RestartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		inMode(t, alice, api.Tethered, 30*time.Second)
		eventually(t, 30*time.Second, "the node is Ready", func() string {
			return kubectlUntil(t, bob, "True", "get", "node", "kith-alice", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		})
		out := kubectl(t, bob, "get", "node", "kith-alice", "-o", `jsonpath={.spec.unschedulable} {.metadata.labels.owner} {.spec.taints[*].key}`)
		if !strings.HasPrefix(out, "true admin ") || !strings.Contains(out, "admin.example/mine") || !strings.Contains(out, "company.example/away") {
			t.Error(out)
		}
		kubectl(t, bob, "uncordon", "kith-alice")
		kubectl(t, bob, "taint", "node", "kith-alice", "admin.example/mine-")
		eventually(t, 20*time.Second, "kubectl at alice is at the company", func() string {
			if out, err := front(t, alice, "-n", "team", "get", "deployments"); err != nil || !strings.Contains(out, "hers") {
				return fmt.Sprintf("%v %q", err, out)
			}
			return ""
		})
	})
	t.Run("cut", func(t *testing.T) { cutFromTheCompany(t, l, lives, 3*time.Second) })
	t.Run("and back", func(t *testing.T) {
		began := time.Now()
		t.Log("kith untether:\n" + kith(t, alice, "untether", "--yes"))
		t.Logf("after %s", time.Since(began).Round(time.Millisecond))
		untethered(t, alice, bob)
		waitReady(t, bob, 4, "-n", "team", "-l", "app=spread")
		if now := dump(t, alice, "mine"); now != before {
			t.Errorf("her objects are\n%s\nwere\n%s", now, before)
		}
		if now := livesIn(t, alice, "mine"); now != lives {
			t.Errorf("her own pods are %s, were %s", now, lives)
		}
		if out := mustFront(t, alice, "-n", "mine", "get", "deployment", "db"); !strings.Contains(out, "2/2") {
			t.Error(out)
		}
		kubectl(t, alice, "-n", "mine", "scale", "deployment", "db", "--replicas=3")
		waitReady(t, alice, 3, "-n", "mine", "-l", "app=db")
	})
}

// kubectlUntil is a check for eventually: what kubectl says must be just that.
func kubectlUntil(t *testing.T, p *lab.Laptop, want string, args ...string) string {
	t.Helper()
	if out, err := p.Kubectl(t.Context(), args...); err != nil || strings.TrimSpace(out) != want {
		return fmt.Sprintf("%q, %v", out, err)
	}
	return ""
}

// untethered checks that nothing of a tether is left on either side.
func untethered(t *testing.T, alice, bob *lab.Laptop) {
	t.Helper()
	untetheredWithin(t, alice, bob, 30*time.Second)
}

func untetheredWithin(t *testing.T, alice, bob *lab.Laptop, within time.Duration) {
	t.Helper()
	inMode(t, alice, api.Autonomous, 10*time.Second)
	for what, args := range map[string][]string{
		"guests at alice": {"get", "pods", "-A", "-l", "kith.dev/consumer", "-o", "name"}, "tenants": {"get", "namespaces", "-l", "kith.dev/consumer", "-o", "name"},
		"contracts": {"get", "contracts", "-o", "name"}, "a wish": {"get", "peer", "bob", "--ignore-not-found", "-o", "jsonpath={.spec.request}{.status.tether}"},
	} {
		eventually(t, within, "nothing is left of "+what, func() string { return kubectlUntil(t, alice, "", args...) })
	}
	for what, args := range map[string][]string{
		"the node": {"get", "nodes", "-l", "kith.dev/peer", "-o", "name"}, "contracts": {"get", "contracts", "-o", "name"},
		"the tether": {"get", "peer", "alice", "--ignore-not-found", "-o", "jsonpath={.spec.request}{.spec.tethered}{.status.tether}"},
		"rights":     {"get", "rolebindings,resourcequotas", "-A", "-l", "kith.dev/laptop", "-o", "name"},
	} {
		eventually(t, within, "the company keeps nothing of "+what, func() string { return kubectlUntil(t, bob, "", args...) })
	}
	if out, err := alice.Kubectl(t.Context(), "get", "--raw", "/healthz"); err != nil {
		t.Error(out, err)
	}
}

// tetheredRights: what the laptop's users may at the company, and the company at the laptop, stands in docs/rights.md.
func tetheredRights(t *testing.T, alice, bob *lab.Laptop) {
	const subjects = `jsonpath={.items[0].subjects[0].name}`
	who := kubectl(t, bob, "-n", "alice-own", "get", "rolebindings", "-l", "kith.dev/laptop", "-o", subjects)
	rights(t, bob, account{"A user of a laptop that this cluster runs: user `kith:laptop:ID`, group `kith:laptops`", []string{who, "kith:laptops", "system:authenticated"}, nil,
		[]particular{{"alice-own", "a namespace that its TetherPolicy names with the ClusterRole `view`"}}})
	twin := twinAt(t, alice, "team")
	company := kubectl(t, alice, "-n", twin, "get", "rolebindings", "-o", subjects)
	rights(t, alice, consumerAccount(strings.TrimPrefix(company, "kith:peer:"), twin))
}

// mayNot is what a user of a tethered laptop may not do at the company.
func mayNot(t *testing.T, alice *lab.Laptop) {
	for _, one := range [][]string{
		{"get", "secrets", "-n", "kube-system"}, {"get", "nodes"}, {"get", "peers.kith.dev"}, {"get", "pods", "-A"},
		{"-n", "team", "create", "rolebinding", "more", "--clusterrole=admin", "--user=kith:laptop:me"},
		{"create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=kith:laptop:me"},
		{"delete", "peer.kith.dev", "alice"}, {"create", "namespace", "other"}, {"-n", "team", "delete", "resourcequota", "--all"},
		{"--as=system:admin", "get", "nodes"}, {"--as=kith:peer:x", "--as-group=system:masters", "get", "secrets", "-A"},
		{"-n", "kube-system", "create", "token", "default"}, {"get", "--raw", "/metrics"}, {"get", "--raw", "/debug/pprof/"}, {"get", "--raw", "/logs/"},
		{"-n", "mine", "get", "secrets"}, {"-n", "alice-own", "create", "configmap", "x"}, {"cordon", "kith-alice"},
	} {
		out, err := front(t, alice, one...)
		if err == nil && !strings.Contains(out, "No resources found") || !strings.Contains(strings.ToLower(out), "forbidden") && !strings.Contains(out, "not passed on") {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(one, " "), err, out)
		}
	}
	var out bytes.Buffer
	err := alice.Run(t.Context(), lab.Command{Args: []string{"sh", "-c", `cat > /tmp/host.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: team}
spec:
  hostNetwork: true
  containers: [{name: a, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, securityContext: {privileged: true}, volumeMounts: [{name: r, mountPath: /r}]}]
  volumes: [{name: r, hostPath: {path: /}}]
Y
kith-k8s kubectl apply -f /tmp/host.yaml`}, Env: []string{"KUBECONFIG=" + frontFile}, Stdout: &out, Stderr: &out})
	if err == nil || !strings.Contains(out.String(), "violates PodSecurity") {
		t.Errorf("a pod of the company's host: %v\n%s", err, out.String())
	}
	if out, _, err := alice.Exec(t.Context(), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "curl", "-sk", "https://127.0.0.1:6451/api/v1/namespaces/team/pods"); err != nil || !strings.Contains(out, "Unauthorized") {
		t.Errorf("a user without a certificate: %v\n%s", err, out)
	}
}

// cutFromTheCompany: the pods go on, kubectl says why in one line, and all is as before after the heal.
func cutFromTheCompany(t *testing.T, l *lab.Lab, lives string, long time.Duration) {
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	guests := func() string {
		return kubectl(t, alice, "get", "pods", "-A", "-l", "kith.dev/consumer", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.containerStatuses[*].restartCount};{end}`)
	}
	had := guests()
	if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, "kubectl says why", func() string {
		out, err := front(t, alice, "-n", "team", "get", "pods")
		if err == nil || !strings.Contains(out, "tethered to bob") {
			return instead(out)
		}
		t.Log(out)
		return ""
	})
	t.Log("kith status:\n" + kith(t, alice, "status"))
	time.Sleep(long)
	if now := guests(); now != had || had == "" {
		t.Errorf("guests while cut: %s, were %s", now, had)
	}
	if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 40*time.Second, "all is as before", func() string {
		out, err := front(t, alice, "-n", "team", "get", "deployments", "--no-headers")
		if err != nil || !strings.Contains(out, "2/2") || !strings.Contains(out, "4/4") {
			return fmt.Sprintf("%v %q", err, out)
		}
		return kubectlUntil(t, bob, "True", "get", "node", "kith-alice", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	})
	t.Logf("healed after %s", took.Round(100*time.Millisecond))
	if now := livesIn(t, alice, "mine"); now != lives {
		t.Errorf("her own pods are %s, were %s", now, lives)
	}
}

// TestALaptopTakesItselfBack: the company does not answer for longer than alice's owner wants to wait, and finds that out when it is back.
func TestALaptopTakesItselfBack(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"autoUntetherAfter": "15s"}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	apply(t, bob, fmt.Sprintf(laptopsOfTheCompany, false))
	tethered(t, alice, bob)
	inMode(t, alice, api.Tethered, 5*time.Second)
	frontApply(t, alice, ofTheTeam("hers", "kith-alice", 1)+"---"+ofTheTeam("spread", "", 3))
	waitReady(t, bob, 1, "-n", "team", "-l", "app=hers")
	if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	took := inMode(t, alice, api.Autonomous, time.Minute)
	t.Logf("autonomous again %s after the cut", took.Round(time.Second))
	apply(t, alice, mine)
	waitReady(t, alice, 2, "-n", "mine", "-l", "app=db")
	if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	untethered(t, alice, bob)
	waitReady(t, bob, 3, "-n", "team", "-l", "app=spread")
}

// refusedTether is what kith says of a tether that does not come about.
func refusedTether(t *testing.T, p *lab.Laptop, says ...string) {
	t.Helper()
	out, err := p.Kith(t.Context(), "tether", "bob", "--yes")
	if err == nil {
		t.Fatalf("tethered:\n%s", out)
	}
	text := out + err.Error()
	if full, e := p.Kith(t.Context(), "tether", "bob", "--check"); e != nil || full != "" {
		text += full
		if e != nil {
			text += e.Error()
		}
	}
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if s := modeOf(t, p); s.Mode != api.Autonomous {
		t.Errorf("%s %+v", s.Mode, s.Tether)
	}
	if on, _ := deciding(t, p); !on {
		t.Error("what decides is off")
	}
}

// ofTheCompanysOwner: a DaemonSet that is for laptops runs on hers; what wants her host does not.
func ofTheCompanysOwner(t *testing.T, alice, bob *lab.Laptop) {
	kubectl(t, bob, "create", "namespace", "admin")
	kith(t, bob, "offload", "admin")
	apply(t, bob, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere, namespace: team}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kith.dev/tethered: "true"}
      tolerations: [{key: kith.dev/tethered, operator: Exists}]
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: admin}
spec:
  nodeSelector: {kith.dev/tethered: "true"}
  hostNetwork: true
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, securityContext: {privileged: true}, volumeMounts: [{name: root, mountPath: /host}]}]
  volumes: [{name: root, hostPath: {path: /}}]
`)
	waitReady(t, bob, 1, "-n", "team", "-l", "app=everywhere")
	if out := kubectl(t, alice, "get", "pods", "-A", "-l", "app=everywhere", "-o", "jsonpath={.items[*].spec.nodeName}"); out != "alice" {
		t.Errorf("the DaemonSet's pod runs on %q", out)
	}
	eventually(t, 30*time.Second, "what wants her host is refused, and it is said why", func() string {
		out := kubectl(t, bob, "-n", "admin", "get", "pod", "host", "-o", "jsonpath={.status.phase} {.status.reason} {.status.message}") +
			kubectl(t, bob, "-n", "admin", "get", "events", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "baseline") {
			return instead(out)
		}
		t.Log(out)
		return ""
	})
	if out := kubectl(t, alice, "get", "pods", "-A", "-o", "jsonpath={.items[?(@.spec.hostNetwork==true)].metadata.name}"); strings.Contains(out, "host ") || out == "host" {
		t.Errorf("it runs at alice: %s", out)
	}
	kubectl(t, bob, "delete", "namespace", "admin", "--wait=false")
}

const ofBobs = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: own}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}}}
`

// deciding asks a laptop's engine whether it decides, and says so first if on is given. It gives how long that took.
func deciding(t *testing.T, p *lab.Laptop, on ...bool) (bool, time.Duration) {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.Path("/run/kith/k8s/deciding.sock"))
		},
	}}
	method, body := http.MethodGet, ""
	if len(on) > 0 {
		method, body = http.MethodPut, fmt.Sprintf(`{"on":%t}`, on[0])
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://engine/deciding", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", p.Name(), err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var says struct{ On *bool }
	if err := json.Unmarshal(text, &says); err != nil || says.On == nil {
		t.Fatalf("%s: %s %s: %s %s", p.Name(), method, body, resp.Status, text)
	}
	return *says.On, time.Since(began)
}

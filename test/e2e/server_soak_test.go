//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/chart"
	"kith.dev/test/lab"
)

const serverNamespace = chart.Namespace

// server is a cluster in which Kith was installed by its chart. at is a machine whose kubectl reaches it.
type server struct {
	at *lab.Laptop
}

// kithImage makes the image of kithd as it was built, and gives its archive.
func kithImage(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := chart.Image(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// helm runs Helm at a machine, with the chart beside it.
func (s *server) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := chart.Helm(t.Context(), s.at, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// install has Helm install what was carried there.
func (s *server) install(t *testing.T, values ...string) {
	t.Helper()
	if err := chart.Install(t.Context(), s.at, values...); err != nil {
		t.Fatal(err)
	}
}

// carry puts Helm and the chart where the machine finds them.
func (s *server) carry(t *testing.T) {
	t.Helper()
	if err := chart.Carry(t.Context(), "../..", s.at); err != nil {
		t.Fatal(err)
	}
}

// leader gives the pod of the kithd that works, and its node.
func (s *server) leader(t *testing.T) (pod, node string) {
	t.Helper()
	eventually(t, 2*time.Minute, "a kithd holds the lease", func() string {
		if pod, node = chart.Leader(t.Context(), s.at); pod == "" {
			return "none is ready"
		}
		return ""
	})
	return pod, node
}

// kith runs the command in the pod of the kithd that works.
func (s *server) kith(t *testing.T, args ...string) string {
	t.Helper()
	pod, _ := s.leader(t)
	return kubectl(t, s.at, append([]string{"-n", serverNamespace, "exec", pod, "--", "kith"}, args...)...)
}

func (s *server) id(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`"id": *"([A-Z0-9-]+)"`).FindStringSubmatch(s.kith(t, "status", "-o", "json"))
	if found == nil {
		t.Fatal("kith status has no ID")
	}
	return found[1]
}

// pair makes contracts of a laptop and the cluster, in both directions; each knows the other by its whole ID. It gives the laptop's.
func (s *server) pair(t *testing.T, laptop *lab.Laptop) (me string) {
	t.Helper()
	me = regexp.MustCompile(`"id": *"([A-Z0-9-]+)"`).FindStringSubmatch(kith(t, laptop, "status", "-o", "json"))[1]
	s.kith(t, "share", "--policy", "laptops", "--to", me, "--cpu", "2", "--memory", "1Gi", "--pods", "20", "--auto-accept")
	kubectl(t, s.at, "patch", "sharingpolicy", "laptops", "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`)
	kith(t, laptop, "share", "--policy", "corp", "--to", s.id(t), "--cpu", "1", "--memory", "512Mi", "--pods", "20", "--auto-accept")
	kubectl(t, laptop, "patch", "sharingpolicy", "corp", "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`)
	kith(t, laptop, "peer", s.id(t), "--cpu", "1", "--memory", "512Mi", "--pods", "10", "--timeout", "3m")
	s.kith(t, "peer", me, "--cpu", "500m", "--memory", "256Mi", "--pods", "10", "--timeout", "3m")
	for _, one := range []string{kith(t, laptop, "peers"), s.kith(t, "peers")} {
		if strings.Count(one, "connected") != 2 {
			t.Errorf("not connected in both directions:\n%s", one)
		}
	}
	return me
}

// lend has a laptop be a consumer of the cluster's.
func (s *server) lend(t *testing.T, laptop *lab.Laptop, ask ...string) {
	t.Helper()
	me := regexp.MustCompile(`"id": *"([A-Z0-9-]+)"`).FindStringSubmatch(kith(t, laptop, "status", "-o", "json"))[1]
	s.kith(t, "share", "--policy", laptop.Name(), "--to", me, "--cpu", "2", "--memory", "1Gi", "--pods", "20", "--auto-accept")
	kubectl(t, s.at, "patch", "sharingpolicy", laptop.Name(), "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`)
	kith(t, laptop, append([]string{"peer", s.id(t), "--timeout", "3m"}, ask...)...)
}

// forbidden are the rights that pods of Kith would have needed, by their logs.
func (s *server) forbidden(t *testing.T) (lines []string) {
	t.Helper()
	for pod := range strings.FieldsSeq(kubectl(t, s.at, "-n", serverNamespace, "get", "pods", "-o", "name")) {
		out, _ := s.at.Kubectl(t.Context(), "-n", serverNamespace, "logs", pod, "--all-containers")
		for line := range strings.Lines(out) {
			if strings.Contains(line, "forbidden") && strings.Contains(line, "system:serviceaccount:"+serverNamespace) {
				lines = append(lines, pod+": "+strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// left lists what could stay in a cluster, and in the kernels of its nodes.
func (s *server) left(t *testing.T, machines ...*lab.Laptop) []string {
	t.Helper()
	var list []string
	kinds := "crd,clusterroles,clusterrolebindings,priorityclasses,namespaces,nodes,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"mutatingadmissionpolicies,mutatingadmissionpolicybindings,runtimeclasses"
	list = append(list, strings.Fields(kubectl(t, s.at, "get", kinds, "-o", "name"))...)
	list = append(list, strings.Fields(kubectl(t, s.at, "get", "roles,rolebindings,leases,secrets,serviceaccounts,configmaps,resourcequotas,podtemplates,networkpolicies", "-A", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`))...)
	list = slices.DeleteFunc(list, func(o string) bool { // kubelets make them some moments late
		return strings.HasPrefix(o, "Lease/kube-node-lease/") && !strings.HasPrefix(o, "Lease/kube-node-lease/kith-")
	})
	for _, m := range machines {
		// Without the devices of pods, which the network plugin makes for the first of them.
		out, stderr, err := m.Exec(t.Context(), "sh", "-ec", `ip -o link | sed 's/^[0-9]*: //; s/[@:].*//; s/^/link /' | grep -v -e veth -e cni0
			ip rule | sed 's/^/rule /'; ip route show table all | grep -v -e 'dev veth' -e cni0 -e fe80 -e ff00 | sed 's/^/route /'; nft list tables | grep kith- || true`)
		if err != nil {
			t.Fatal(err, stderr)
		}
		for line := range strings.Lines(out) {
			list = append(list, m.Name()+": "+strings.TrimSpace(line))
		}
	}
	slices.Sort(list)
	return list
}

const serverWeb = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: app, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 20m, memory: 16Mi}}, securityContext: {allowPrivilegeEscalation: false}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// reaches reports why a pod does not get an answer from a URL.
func reaches(t *testing.T, p *lab.Laptop, namespace, pod, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := p.Kubectl(ctx, "-n", namespace, "exec", pod, "--", "/app", "get", url)
	if err != nil || !strings.Contains(out, `"name"`) {
		return fmt.Sprintf("%s of %s gets %q from %s: %v", pod, p.Name(), out, url, err)
	}
	return ""
}

// TestAClusterInstalledByTheChart: kithd runs as a pod in somebody's cluster, with the rights that the chart gives it and no others. A laptop peers with
// it in both directions; killed, kithd comes back as who it was; and when it is uninstalled nothing is left.
func TestAClusterInstalledByTheChart(t *testing.T) {
	archive := kithImage(t)
	l := laptops(t, lab.Options{Laptops: 2, Images: []string{archive}})
	alice, corp := l.Laptop("alice"), l.Laptop("bob")
	s := &server{at: corp}
	// A cluster that is somebody else's: one of a laptop, without its kithd and all that this one made.
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, corp) })
	if err := corp.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.bare(t)
	s.story(t, alice, []*lab.Laptop{corp}, true)
}

// story is the life of Kith in a cluster that has none, and of which these are the nodes; the rights that it used are compared with the page.
func (s *server) story(t *testing.T, alice *lab.Laptop, nodes []*lab.Laptop, rights bool) {
	corp := s.at
	s.carry(t)
	before := s.left(t, nodes...)

	s.install(t, "replicas=1")
	id := s.id(t)
	tetherPolicy := func(role string) (string, error) {
		return corp.KubectlInput(t.Context(), strings.NewReader("{apiVersion: kith.dev/v1alpha1, kind: TetherPolicy, metadata: {name: roles}, spec: {namespaces: [{name: team-a, clusterRole: "+role+"}]}}"), "apply", "-f", "-")
	}
	eventually(t, time.Minute, "a policy with a role that kithd may not give is refused", func() string {
		if out, err := tetherPolicy("admin"); err == nil || !strings.Contains(err.Error(), "edit, view") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	if out, err := tetherPolicy("view"); err != nil {
		t.Errorf("a policy with one that it may give: %s, %v", out, err)
	}
	kubectl(t, corp, "delete", "tetherpolicy", "roles")
	me := s.pair(t, alice)
	for _, one := range []struct {
		at     *lab.Laptop
		kith   func(...string) string
		abroad string
	}{
		{alice, func(args ...string) string { return kith(t, alice, args...) }, "kith-corp"},
		{corp, func(args ...string) string { return s.kith(t, args...) }, "kith-alice"},
	} {
		kubectl(t, one.at, "create", "namespace", "shop")
		one.kith("offload", "shop", "--strategy", "remote")
		if _, err := one.at.KubectlInput(t.Context(), strings.NewReader(fmt.Sprintf(serverWeb, 2)), "-n", "shop", "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		kubectl(t, one.at, "run", "own", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent")
		kubectl(t, one.at, "wait", "--for=condition=Ready", "pod/own", "--timeout=3m")
		waitReady(t, one.at, 2, "-n", "shop", "-l", "app=web")
		for _, p := range pods(t, one.at, "-n", "shop", "-l", "app=web") {
			if p.Spec.NodeName != one.abroad {
				t.Errorf("%s runs on %s, want %s", p.Metadata.Name, p.Spec.NodeName, one.abroad)
			}
		}
	}
	everything := func(when string) {
		t.Helper()
		for _, at := range []*lab.Laptop{alice, corp} {
			guest := pods(t, at, "-n", "shop", "-l", "app=web")[0]
			eventually(t, 90*time.Second, when+": pods of "+at.Name()+" here and there reach each other", func() string {
				for _, url := range []string{"http://" + guest.Status.PodIP + ":8080/", "http://web.shop/"} {
					if why := reaches(t, at, "default", "own", url); why != "" {
						return why
					}
				}
				number := kubectl(t, at, "-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
				for _, host := range []string{"web", "web.shop", "web.shop.svc.cluster.local", number} {
					if why := reaches(t, at, "shop", guest.Metadata.Name, "http://"+host+"/"); why != "" {
						return why
					}
				}
				return ""
			})
			if out := kubectl(t, at, "-n", "shop", "logs", guest.Metadata.Name); !strings.Contains(out, "listens on") {
				t.Errorf("%s: logs of %s: %q", when, guest.Metadata.Name, out)
			}
		}
	}
	everything("at first")

	pod, _ := s.leader(t)
	kubectl(t, corp, "-n", serverNamespace, "delete", "pod", pod, "--grace-period=0", "--force")
	eventually(t, time.Minute, "another pod works", func() string {
		if now, _ := s.leader(t); now == pod {
			return "it is " + now
		}
		return ""
	})
	if now := s.id(t); now != id {
		t.Errorf("it is %s now, and was %s", now, id)
	}
	everything("with another pod")
	s.helm(t, append([]string{"upgrade"}, chart.Values("replicas=1", "config.logLevel=debug", "uninstall.patience=30s")...)...)
	kubectl(t, corp, "-n", serverNamespace, "rollout", "status", "deployment/kith", "--timeout=3m")
	if now := s.id(t); now != id {
		t.Errorf("after an upgrade it is %s, and was %s", now, id)
	}
	everything("after an upgrade")
	for _, line := range s.forbidden(t) {
		t.Error("a right is missing: ", line)
	}
	if rights {
		s.rights(t, me, twinAt(t, corp, "shop"))
	}

	kubectl(t, corp, "delete", "namespace", "shop", "--wait=false")
	out, err := chart.Helm(t.Context(), corp, "uninstall", "kith")
	if err != nil {
		said, _ := corp.Kubectl(t.Context(), "-n", serverNamespace, "logs", "-l", "app.kubernetes.io/component=uninstall", "--tail=-1", "--prefix")
		t.Fatalf("%v\n%s", err, said)
	}
	t.Log(out)
	kubectl(t, corp, "delete", "namespace", serverNamespace)
	kubectl(t, corp, "delete", "pod", "own", "--grace-period=1")
	var gone, come []string
	eventually(t, time.Minute, "nothing is left", func() string {
		if gone, come = difference(before, s.left(t, nodes...)); len(come) > 0 {
			return strings.Join(come, ", ")
		}
		return ""
	})
	if len(gone) > 0 {
		t.Errorf("taken away, and not its own: %q", gone)
	}
	eventually(t, time.Minute, "alice was told", func() string {
		if out := kith(t, alice, "peers"); strings.Contains(out, "connected") {
			return instead(out)
		}
		return ""
	})
}

// bare takes away what the kithd of a laptop made in its cluster and kernel, so that the chart finds a cluster that never had one.
func (s *server) bare(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"mutatingadmissionpolicybindings", "mutatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		kubectl(t, s.at, "delete", kind, "--all")
	}
	kubectl(t, s.at, "delete", "crd", "--all", "--timeout=3m")
	kubectl(t, s.at, "delete", "clusterrole", "kith:tenant", "--ignore-not-found")
	kubectl(t, s.at, "delete", "priorityclass", "kith-guest", "--ignore-not-found")
	kubectl(t, s.at, "delete", "namespace", "kith-volumes", "--ignore-not-found")
	if _, stderr, err := s.at.Exec(t.Context(), "sh", "-c", "nft delete table ip kith-fence; nft delete table ip6 kith-fence; nft delete table ip kith-limits; nft delete table arp kith-links; nft delete table bridge kith-links; nft delete table ip kith-guests; nft delete table ip kith-translate; true"); err != nil {
		t.Fatal(err, stderr)
	}
}

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/local/frontdoor"
	"kith.dev/test/lab"
)

// TestTheFrontDoor: everything that kubectl does goes through it, on one laptop; nobody else of that laptop gets an answer; and two real
// clusters behind one front door are never mixed.
func TestTheFrontDoor(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	t.Run("kubectl goes through it", func(t *testing.T) { throughTheFrontDoor(t, alice) })
	t.Run("without a certificate there is no answer", func(t *testing.T) {
		out, _, err := alice.Exec(t.Context(), "sh", "-c", `for p in healthz version api metrics; do
			setpriv --reuid 65534 --regid 65534 --clear-groups curl -sk -w ' %{http_code}\n' https://127.0.0.1:6451/$p; done`)
		if err != nil || strings.Count(out, "kith kubeconfig") != 4 || strings.Count(out, " 401\n") != 4 {
			t.Errorf("%v\n%s", err, out)
		}
		t.Log(out)
		if _, _, err := alice.Exec(t.Context(), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "cat", "/var/lib/kith/frontdoor/authority.pem"); err == nil {
			t.Error("another user reads its keys")
		}
		if _, err := bob.Dial(t.Context(), "tcp", "192.0.2.11:6451"); err == nil {
			t.Error("it is open to the LAN")
		}
	})
	t.Run("what listens on a laptop", func(t *testing.T) { whoListens(t, alice) })
	t.Run("a restart of kithd", func(t *testing.T) {
		if out := kith(t, alice, "kubeconfig", "--direct"); !strings.Contains(out, "https://127.0.0.1:6443") {
			t.Errorf("past the front door:\n%s", out)
		}
		if err := alice.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "the same kubeconfig is good", func() string {
			out, _, err := alice.Exec(t.Context(), "sh", "-c", "KUBECONFIG=/root/front.yaml kith-k8s kubectl get nodes")
			if err != nil || !strings.Contains(out, "alice") {
				return fmt.Sprint(out, err)
			}
			return ""
		})
	})
	t.Run("between two clusters", func(t *testing.T) { betweenTwoClusters(t, alice, bob) })
}

func throughTheFrontDoor(t *testing.T, p *lab.Laptop) {
	sh := func(script string, wants ...string) string {
		t.Helper()
		var out bytes.Buffer
		err := p.Run(t.Context(), lab.Command{Args: []string{"timeout", "600", "bash", "-c", script}, Env: []string{"KUBECONFIG=/root/front.yaml"}, Stdout: &out, Stderr: &out})
		for _, want := range wants {
			if err != nil || !strings.Contains(out.String(), want) {
				t.Errorf("%s: %v, want %q\n%s", script, err, want, out.String())
			}
		}
		return out.String()
	}
	sh("umask 077; kith kubeconfig > /root/front.yaml; grep server /root/front.yaml; stat -c %a /root/front.yaml", "https://127.0.0.1:6451", "600")
	sh("kith status -o json | grep -A3 front-door", "127.0.0.1:6451")
	t.Log(sh("kith-k8s kubectl auth whoami", "root", "kith:users", "system:masters"))
	sh("kith-k8s kubectl get nodes -o wide", "alice")
	sh("kith-k8s kubectl --as system:serviceaccount:default:default auth can-i list nodes; true", "no")
	sh("kith-k8s kubectl api-resources | grep -c .")
	sh("kith-k8s kubectl explain peers.spec", "Peer")
	sh("kith-k8s kubectl get --raw /apis/metrics.k8s.io/v1beta1 | head -c 300", "APIResourceList")
	sh("kith-k8s kubectl create namespace shop; kith-k8s kubectl label namespace shop pod-security.kubernetes.io/warn=restricted", "shop")
	manifest := solo("here", "alice") + `---
apiVersion: v1
kind: Pod
metadata: {name: typed, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: cat, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, command: [/bin/cat], stdin: true, stdinOnce: false}]
`
	if out, _, err := p.ExecInput(t.Context(), strings.NewReader(manifest), "sh", "-c", "cat > /root/pods.yaml"); err != nil {
		t.Fatal(out, err)
	}
	sh("kith-k8s kubectl apply --server-side -f /root/pods.yaml", "serverside-applied", "Warning: would violate PodSecurity")
	sh("kith-k8s kubectl -n shop wait --for condition=Ready pod/here pod/typed --timeout=3m", "pod/here condition met", "pod/typed condition met")
	sh("kith-k8s kubectl apply --server-side -f /root/pods.yaml; kith-k8s kubectl diff --server-side -f /root/pods.yaml && echo no difference", "no difference")
	// says runs a command that does not end by itself until it says a word.
	const says = `says() { w=$1; shift; "$@" <&0 > /tmp/said & p=$!; for i in $(seq 600); do grep -q "$w" /tmp/said && break; sleep 0.1; done; kill $p; cat /tmp/said; }; `
	for _, how := range []string{"", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false "} {
		sh(how+"kith-k8s kubectl -n shop exec here -- /bin/echo over there", "over there")
		sh("head -c 5000000 /dev/zero | "+how+"kith-k8s kubectl -n shop exec -i here -- /bin/cat | wc -c", "5000000")
		sh(says+"says hello env "+how+"kith-k8s kubectl -n shop attach -i typed < <(echo hello; exec sleep 100 2>/dev/null)", "hello")
		sh(how+"kith-k8s kubectl -n shop port-forward pod/here 18081:8080 >/tmp/pf.log 2>&1 & p=$!; for i in $(seq 600); do curl -sf http://127.0.0.1:18081/ && echo fetched && break; sleep 0.1; done; kill $p; cat /tmp/pf.log", "fetched")
	}
	sh(says+"says . kith-k8s kubectl -n shop logs -f here | head -n 1 | grep -c .", "1")
	sh("(for i in $(seq 300); do kith-k8s kubectl -n shop annotate --overwrite pod here seen=$i; sleep 0.2; done) > /dev/null & a=$!; "+
		says+"says MODIFIED kith-k8s kubectl -n shop get pods -w --output-watch-events; kill $a", "MODIFIED")
	sh("head -c 900000 /dev/urandom | base64 -w0 | head -c 1000000 > /tmp/big; kith-k8s kubectl -n shop create configmap big --from-file=/tmp/big && kith-k8s kubectl -n shop get configmap big -o jsonpath='{.data.big}' | cmp - /tmp/big && echo the same", "the same")
	sh(`head -c 4000000 /dev/zero | tr '\0' x > /tmp/huge; kith-k8s kubectl -n shop create configmap huge --from-file=/tmp/huge 2>&1; true`, "too")
	sh("kith-k8s kubectl -n shop rollout status deployment/none 2>&1; true", "NotFound")
	sh("kith-k8s kubectl -n shop delete pod here typed --now", "deleted")
}

// betweenTwoClusters has a front door of the test's own lead to alice's API server and to bob's by turns, for an informer and kubectl get -w.
func betweenTwoClusters(t *testing.T, alice, bob *lab.Laptop) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door, err := frontdoor.New(frontdoor.Config{
		Dir: t.TempDir(), Address: netip.MustParseAddrPort(listener.Addr().String()), Allowed: func(frontdoor.User) error { return nil },
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- door.Serve(ctx, listener) }()
	t.Cleanup(func() { stop(); <-ended })
	to := func(p *lab.Laptop) frontdoor.Destination {
		text, err := os.ReadFile(p.Path(lab.Kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		config.Dial = p.Dial
		d, err := frontdoor.To(p.Name(), config, func(who frontdoor.User, _ http.Header) (http.Header, error) {
			return http.Header{"Impersonate-User": {who.Name}, "Impersonate-Group": {"system:masters"}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	text, err := door.Kubeconfig(frontdoor.User{Name: "tester", UID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "front.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	door.Lead(to(alice))
	for _, p := range []*lab.Laptop{alice, bob} { // the same names at both, and names of their own
		for _, name := range []string{"both", p.Name()} {
			kubectl(t, p, "-n", "default", "create", "configmap", name, "--from-literal=of="+p.Name())
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	seen := func() string {
		found := map[string]bool{}
		for _, o := range informer.GetStore().List() {
			if m := o.(*corev1.ConfigMap); m.Data["of"] != "" {
				found[m.Name+"@"+m.Data["of"]] = true
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(found)), " ")
	}
	program, err := filepath.Abs("../../bin/kith-k8s")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	var took []time.Duration
	for round, p := range []*lab.Laptop{alice, bob, alice, bob, alice} {
		if round > 0 {
			began := time.Now()
			door.Lead(to(p))
			took = append(took, time.Since(began))
		}
		began := time.Now()
		want := fmt.Sprintf("%s@%s both@%s", p.Name(), p.Name(), p.Name())
		if p == bob {
			want = "bob@bob both@bob"
		}
		eventually(t, 30*time.Second, "the informer has what "+p.Name()+" has, and nothing else", func() string {
			if got := seen(); got != want {
				return instead(got)
			}
			return ""
		})
		t.Logf("round %d: the informer shows %s alone after %s", round, p.Name(), time.Since(began).Round(time.Millisecond))
		// kubectl get -w ends with the switch, without an error, and has shown nothing of the other.
		shows, err := os.Create(filepath.Join(t.TempDir(), "shows"))
		if err != nil {
			t.Fatal(err)
		}
		says, err := os.Create(filepath.Join(t.TempDir(), "says"))
		if err != nil {
			t.Fatal(err)
		}
		read := func(f *os.File) string {
			text, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		until, end := context.WithTimeout(ctx, 5*time.Minute) // one that is told nothing would watch for ever
		watching := exec.CommandContext(until, program, "kubectl", "-v=6", "--kubeconfig", file, "-n", "default", "get", "configmaps", "-w", "-o", "jsonpath={.data.of}{' '}")
		watching.Stdout, watching.Stderr, watching.Env = shows, says, env
		if err := watching.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "kubectl shows what there is", func() string {
			get := exec.CommandContext(ctx, program, "kubectl", "--kubeconfig", file, "-n", "default", "get", "configmap", "both", "-o", "jsonpath={.data.of}")
			get.Env = env
			direct, err := get.Output()
			if string(direct) != p.Name() {
				return fmt.Sprintf("%s %v", direct, err)
			}
			return ""
		})
		eventually(t, 20*time.Second, "its watch has begun", func() string {
			for line := range strings.Lines(read(says)) {
				if strings.Contains(line, "watch=true") && strings.Contains(line, "200 OK") {
					return ""
				}
			}
			return instead(read(says))
		})
		other := bob
		if p == bob {
			other = alice
		}
		door.Lead(to(other))
		err = watching.Wait()
		end()
		if out := read(shows); err != nil || strings.Contains(out, other.Name()) || !strings.Contains(out, p.Name()) {
			t.Errorf("kubectl get -w at %s: %v\n%s\n%s", p.Name(), err, out, read(says))
		}
		door.Lead(to(p))
	}
	t.Logf("switches took %s", took)
}

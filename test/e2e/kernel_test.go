//go:build lab

package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// TestAGuestStaysWithinItsPartOfTheMachine: the kernel under a guest, the disk, DNS and the priority of the owner's pods are
// held although the guest says nothing of them, or the worst it can.
func TestAGuestStaysWithinItsPartOfTheMachine(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	// The owner has a default class of his own, as clusters with important services do.
	apply(t, bob, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: mine}, value: 500000, globalDefault: true}`)
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "10", "--ephemeral-storage", "1Gi")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, `
apiVersion: v1
kind: Pod
metadata: {name: silent, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: kith-bob}
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, securityContext: {runAsUser: 0}}]
`)
	waitReady(t, alice, 1, "-n", "shop")
	namespace := pods(t, bob, "-A", "-l", "kith.dev/consumer-name=alice")[0].Metadata.Namespace
	inside := func(args ...string) (string, error) {
		return bob.Kubectl(t.Context(), append([]string{"-n", namespace, "exec", "silent", "--", "/app"}, args...)...)
	}

	t.Run("system calls are filtered", func(t *testing.T) {
		out, err := inside("cat", "/proc/1/status")
		if err != nil || !strings.Contains(out, "Seccomp:\t2") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("root in it would be nobody here", func(t *testing.T) {
		out, err := inside("cat", "/proc/self/uid_map")
		if f := strings.Fields(out); err != nil || len(f) != 3 || f[1] == "0" {
			t.Errorf("%v: uid_map %s", err, out)
		}
		if out, _ := bob.Kith(t.Context(), "doctor"); !strings.Contains(out, "guests run in user namespaces") {
			t.Errorf("kith doctor:\n%s", out)
		}
	})
	t.Run("it makes no packets by hand, and pings", func(t *testing.T) {
		gateway, err := inside("cat", "/proc/net/route")
		if err != nil {
			t.Fatal(err)
		}
		at := gatewayOf(t, gateway)
		if out, err := inside("ping", at); err != nil || !strings.HasPrefix(out, "echo reply ") {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := inside("raw", at); err == nil || !strings.Contains(err.Error(), "operation not permitted") {
			t.Errorf("a raw socket: %v: %s", err, out)
		}
		status, err := inside("cat", "/proc/1/status")
		_, set, ok := strings.Cut(status, "CapBnd:\t")
		bounding, scan := strconv.ParseUint(strings.Fields(set + " -")[0], 16, 64)
		if err != nil || !ok || scan != nil || bounding == 0 || bounding&(1<<unix.CAP_NET_RAW) != 0 {
			t.Errorf("%v, %v: its capabilities are at most %#x", err, scan, bounding)
		}
	})
	t.Run("process numbers are bounded", func(t *testing.T) {
		if out, err := inside("threads", "3000"); err == nil {
			t.Errorf("a guest has %s", out)
		}
		if out, err := inside("threads", "1000"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("it is below every pod of the owner's", func(t *testing.T) {
		out := kubectl(t, bob, "-n", namespace, "get", "pod", "silent", "-o", "jsonpath={.spec.priority} {.spec.preemptionPolicy} {.spec.priorityClassName}")
		if out != "-1000 Never kith-guest" {
			t.Error(out)
		}
		kubectl(t, bob, "delete", "priorityclass", "kith-guest")
		apply(t, alice, solo("later", "kith-bob"))
		waitReady(t, alice, 2, "-n", "shop")
		kubectl(t, bob, "get", "priorityclass", "kith-guest")
		kubectl(t, alice, "-n", "shop", "delete", "pod", "later")
	})
	t.Run("its questions to DNS are bounded", func(t *testing.T) {
		out, err := inside("flood", "1000")
		var answered, refused int
		if _, scan := fmt.Sscanf(out, "%d answered %d refused", &answered, &refused); err != nil || scan != nil || answered < 10 || refused < 100 {
			t.Errorf("%v: %s", err, out)
		}
		t.Log(strings.TrimSpace(out))
		eventually(t, 10*time.Second, "it may ask again", func() string {
			if out, err := inside("flood", "1"); err != nil || !strings.HasPrefix(out, "1 answered") {
				return fmt.Sprint(out, err)
			}
			return ""
		})
	})
	t.Run("the owner's Secrets are behind a socket of root's", func(t *testing.T) {
		out, _, err := bob.Exec(t.Context(), "stat", "-c", "%a", "/run/kith/k8s/datastore.sock", "/run/kith/k8s/images.sock")
		if err != nil || out != "600\n600\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("the owner's work comes first", func(t *testing.T) { ownersWorkComesFirst(t, alice, bob, namespace, inside) })
	t.Run("what matters more at home makes room among its own", func(t *testing.T) { prioritiesHold(t, alice, bob) })
	t.Run("it fills no more of the disk than its part", func(t *testing.T) { evictedAbroad(t, alice, bob, namespace) }) // and what bob evicts is evicted at home
	t.Run("disruption budgets hold when its namespace is brought home", func(t *testing.T) { budgetsHold(t, alice) })
}

// gatewayOf is that of the default route in /proc/net/route (proc_pid_net(5)).
func gatewayOf(t *testing.T, routes string) string {
	t.Helper()
	for line := range strings.Lines(routes) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == "00000000" {
			if n, err := strconv.ParseUint(f[2], 16, 32); err == nil {
				return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, uint32(n)))).String()
			}
		}
	}
	t.Fatalf("no gateway in %s", routes)
	return ""
}

// imageServer is a registry somewhere in the lab that counts who connects.
type imageServer struct {
	at    string // host:port
	asked atomic.Int32
}

func serveImages(t *testing.T, p *lab.Laptop, at string, h http.Handler) *imageServer {
	t.Helper()
	s := &imageServer{at: at}
	var l net.Listener
	if err := p.InNetwork(func() (err error) {
		l, err = net.Listen("tcp4", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.asked.Add(1)
		}
	}}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return s
}

// TestImagesOfGuestsComeFromWhereTheOwnerLets: bob's containerd asks nothing of bob's own network for a guest.
func TestImagesOfGuestsComeFromWhereTheOwnerLets(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "10")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	lan, err := alice.Address()
	if err != nil {
		t.Fatal(err)
	}
	store := registry.New()
	push(t, store)
	printer := serveImages(t, bob, "127.0.0.1:5000", store) // what listens on bob alone
	neighbour := serveImages(t, alice, lan.String()+":5000", store)
	redirects := serveImages(t, alice, lan.String()+":5001", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		http.Redirect(w, r, "http://"+printer.at+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	demands := serveImages(t, alice, lan.String()+":5002", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+printer.at+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	// A name of the internet, as far as anybody can see, that leads to bob himself.
	if _, stderr, err := bob.Exec(t.Context(), "sh", "-c", "echo 127.0.0.1 registry.example >> /etc/hosts"); err != nil {
		t.Fatal(stderr)
	}
	// What bob has for himself: an image that some registry gave to him alone.
	ctr := []string{"ctr", "--address", "/run/kith/k8s/containerd/containerd.sock", "-n", "k8s.io", "images", "tag", "kith.dev/echo:1", "company.example/secret:1"}
	if _, stderr, err := bob.Exec(t.Context(), ctr...); err != nil {
		t.Fatal(stderr)
	}

	pod := func(name, image string) string {
		return strings.Replace(solo(name, "kith-bob"), `"kith.dev/echo:1"`, fmt.Sprintf("%q", image), 1)
	}
	fails := func(t *testing.T, name, image, says string) {
		t.Helper()
		apply(t, alice, pod(name, image))
		eventually(t, 60*time.Second, "the events of "+name+" at home say why", func() string {
			out := kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name="+name, "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
			if !strings.Contains(out, says) {
				return instead(out)
			}
			return ""
		})
		if list := pods(t, alice, "-n", "shop", "--field-selector", "metadata.name="+name); len(list) != 1 || list[0].ready() {
			t.Errorf("%s runs: %+v", name, list)
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", name)
	}
	const closed = "provider's own network"
	t.Run("an address of the provider's", func(t *testing.T) {
		fails(t, "loopback", printer.at+"/app:1", closed)
		fails(t, "lan", neighbour.at+"/app:1", closed)
	})
	t.Run("a name that leads there", func(t *testing.T) { fails(t, "name", "registry.example:5000/app:1", closed) })
	t.Run("an image that is there", func(t *testing.T) { fails(t, "guessed", "company.example/secret:1", "company.example/secret:1") })

	policy := func(t *testing.T, spec string) {
		t.Helper()
		kubectl(t, bob, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":`+spec+`}`)
		eventually(t, 10*time.Second, "the policy is on the twin namespace", func() string {
			var want struct{ Images struct{ Registries []string } }
			if err := json.Unmarshal([]byte(spec), &want); err != nil {
				t.Fatal(err)
			}
			out := kubectl(t, bob, "get", "namespace", "-l", "kith.dev/consumer-name=alice", "-o", `jsonpath={.items[*].metadata.annotations.kith\.dev/registries}`)
			if !strings.HasPrefix(out, strings.Join(want.Images.Registries, ",")) || strings.Contains(spec, "Deny") == strings.Contains(out, "*") {
				return instead(out)
			}
			return ""
		})
	}
	list, _ := json.Marshal([]string{"http://" + neighbour.at, "http://" + redirects.at, "http://" + demands.at})
	policy(t, `{"images":{"registries":`+string(list)+`}}`)
	t.Run("a listed registry that sends on there", func(t *testing.T) {
		fails(t, "redirect", redirects.at+"/app:1", closed)
		fails(t, "token", demands.at+"/app:1", closed)
	})
	if n := neighbour.asked.Load() + printer.asked.Load(); n != 0 {
		t.Errorf("servers in the provider's network were asked %d times", n)
	}
	if redirects.asked.Load() == 0 || demands.asked.Load() == 0 {
		t.Error("the listed registries were not asked: the test proves nothing")
	}
	runs := func(t *testing.T, name, image string) {
		t.Helper()
		apply(t, alice, pod(name, image))
		waitReady(t, alice, 1, "-n", "shop")
		kubectl(t, alice, "-n", "shop", "delete", "pod", name)
	}
	t.Run("a listed registry", func(t *testing.T) { runs(t, "listed", neighbour.at+"/app:1") })
	t.Run("the internet is denied", func(t *testing.T) {
		policy(t, `{"network":{"internet":"Deny"},"images":{"registries":`+string(list)+`}}`)
		fails(t, "far", "quay.io/some/image:1", "listed registries only")
		runs(t, "near", neighbour.at+"/app:1")
		runs(t, "present", "kith.dev/echo:1")
	})
	t.Run("the owner's own pods pull as ever", func(t *testing.T) {
		apply(t, bob, strings.ReplaceAll(strings.Replace(solo("mine", "bob"), `"kith.dev/echo:1"`, fmt.Sprintf("%q", printer.at+"/app:1"), 1), "namespace: shop", "namespace: default"))
		waitReady(t, bob, 1, "-n", "default")
		if printer.asked.Load() == 0 {
			t.Error("nobody asked the registry on bob's loopback")
		}
	})
}

// push puts the echo image into a registry, as app:1.
func push(t *testing.T, to http.Handler) {
	t.Helper()
	dir := t.TempDir()
	if _, err := images.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(filepath.Join(dir, "echo.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(method, path string, content io.Reader, kind types.MediaType) {
		r := httptest.NewRequest(method, path, content)
		r.Header.Set("Content-Type", string(kind))
		w := httptest.NewRecorder()
		if to.ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		content, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		put(http.MethodPost, "/v2/app/blobs/uploads/?digest="+digest.String(), content, "application/octet-stream")
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	put(http.MethodPost, "/v2/app/blobs/uploads/?digest="+digest.String(), bytes.NewReader(config), "application/octet-stream")
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	put(http.MethodPut, "/v2/app/manifests/1", bytes.NewReader(manifest), types.DockerManifestSchema2)
}

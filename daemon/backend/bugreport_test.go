package backend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/cluster"
	"kith.dev/daemon/bugreport"
	"kith.dev/daemon/config"
)

// logging is an engine that is ready and has a log.
type logging struct {
	steady
	log, kubeconfig string
}

func (logging) RESTConfig() *rest.Config { return &rest.Config{Host: "127.0.0.1:1"} }

func (l logging) Facts() cluster.Facts {
	return cluster.Facts{NodeName: "alice", Log: l.log, Kubeconfig: l.kubeconfig}
}

// TestSecretsAreNotInABugReport plants secrets where they are in real life, each another one, and looks for them in all files.
func TestSecretsAreNotInABugReport(t *testing.T) {
	const marker = "pl4nt3d"
	n := 0
	planted := map[string]string{}
	plant := func(where string) string {
		n++
		planted[where] = fmt.Sprintf("%s-%03d-s3cr3t", marker, n)
		return planted[where]
	}
	const (
		jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImFiYyJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4"
		wg  = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
		pem = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"
	)
	planted["JWT"], planted["WireGuard"], planted["PEM"] = jwt, wg, pem

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("identity", "-----BEGIN PRIVATE KEY-----\n"+pem+"\n"+plant("identity key")+"\n-----END PRIVATE KEY-----\n")
	file("wireguard.key", wg+plant("WireGuard key file"))
	kubeconfig := file("k8s/admin.kubeconfig", "users:\n- user:\n    client-key-data: "+plant("kubeconfig")+"\n")
	engineLog := file("k8s/server.log", "I0301 request Authorization: Bearer "+plant("bearer token in a log")+"\n"+
		"token="+jwt+" "+jwt+"\n{\"password\":\""+plant("password in a log")+"\"}\n-----BEGIN EC PRIVATE KEY-----\n"+pem+"\n-----END EC PRIVATE KEY-----\n"+
		"peer key "+wg+"\nproxy http://me:"+plant("password in a URL")+"@proxy:3128\n"+
		`level=ERROR msg="ExecSync cmd from runtime service failed" cmd="[redis-cli -a `+plant("command of a probe")+` ping]"`+"\n"+
		`uri="/api/v1/namespaces/shop/pods/web/exec?command=psql&command=-p`+plant("command of an exec")+`&stdout=true"`+"\n"+
		`err="Pod \"web\" is invalid: spec.containers[0].env[0].value: Invalid value: \"`+plant("environment in a refusal")+`\": must be"`+"\n"+
		`GET "https://cdn.example/blob?X-Amz-Signature=`+plant("signature in a URL")+`": 403`+"\n"+"the last line\n")

	corp := corpPeer(t)
	lastApplied := map[string]string{corev1.LastAppliedConfigAnnotation: `{"spec":{"token":"` + plant("annotation last-applied") + `","x":"` + plant("annotation, without a word before") + `"}}`}
	corp.Annotations = lastApplied
	corp.Annotations[v1alpha1.GroupVersion.Group+"/note"] = "a note of Kith"
	corp.Spec.Request = &v1alpha1.ResourceRequest{Confirm: &v1alpha1.Confirm{Attempt: 1, Code: "417293"}}
	planted["six-digit code"] = "417293"
	b := tetherable(t, &switched{mode: "Autonomous"}, corp)
	b.Engine, b.Uses = logging{log: engineLog, kubeconfig: kubeconfig}, &cluster.Uses{}
	b.Settings = config.Default()
	b.Settings.DataDir, b.Settings.Socket, b.Settings.Profiling, b.Settings.Engine = dir, "", true, config.EngineKubeconfig
	b.Metrics = func(w io.Writer) error { _, err := io.WriteString(w, "kith_up 1\n"); return err }
	objects := b.Cluster().Client
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"x": plant("annotation of a pod")}},
		Spec: corev1.PodSpec{
			NodeName: "alice", Volumes: []corev1.Volume{{Name: plant("volume of a pod")}},
			Containers: []corev1.Container{{Name: "web", Image: "web", Args: []string{plant("argument of a pod")}, Env: []corev1.EnvVar{{Name: "X", Value: plant("environment of a pod")}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "web", RestartCount: 3}}},
	}
	policy := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: plant("annotation of a policy"),
	}}}
	for _, err := range []error{
		objects.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, StringData: map[string]string{"a": plant("Secret")}}),
		objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}, Data: map[string]string{"a": plant("ConfigMap")}}),
		objects.Create(t.Context(), pod), objects.Create(t.Context(), policy),
		objects.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alice", Annotations: map[string]string{"x": plant("annotation of a node")}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	b.Directory.SetPeers(nil) // the doctor would look for them
	parts := b.reportParts()
	for i := range parts {
		if parts[i].Name == "snapshot.json" { // of a world with no provider in it
			parts[i].Make = func(context.Context) ([]byte, error) {
				return scrubbed(api.Snapshot{Peers: []api.Peer{{Name: "corp", Code: "417293", Confirm: &api.Confirmation{Code: "417293"}}}}, nil, true)
			}
		}
	}
	var archive bytes.Buffer
	if err := bugreport.Write(t.Context(), &archive, time.Now(), parts); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	packed, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		if strings.HasPrefix(h.Name, "kith-bugreport/pprof/") { // gzip within
			in, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
			text, _ = io.ReadAll(in)
		}
		files[strings.TrimPrefix(h.Name, "kith-bugreport/")] = string(text)
	}
	for name, text := range files {
		for where, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the %s", name, where)
			}
		}
		if strings.Contains(text, marker) {
			t.Errorf("%s holds something planted:\n%s", name, text)
		}
		if name != "README.txt" && !strings.Contains(files["README.txt"], name) {
			t.Errorf("README.txt does not name %s", name)
		}
	}
	for name, want := range map[string]string{
		"version.json": "version", "snapshot.json": `"name": "corp"`, "doctor.json": `"area": "disk"`, "objects/peers.yaml": "a note of Kith", "objects/sharingpolicies.yaml": "name: default",
		"objects/contracts.yaml": "items", "objects/tetherpolicies.yaml": "items", "objects/reflectionpolicies.yaml": "items", "objects/peeringpolicies.yaml": "items", "objects/namespaceoffloadings.yaml": "items",
		"cluster/nodes.txt": "alice", "cluster/pods.txt": "web(ready=false restarts=3", "metrics.txt": "kith_up 1", "logs/engine.log": "the last line",
		"pprof/goroutine.pb.gz": "", "pprof/heap.pb.gz": "", "system/os.txt": "processors", "logs/kithd.log": "",
	} {
		if text, there := files[name]; !there || !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in %q", name, want, text)
		}
	}
	b.Settings.Profiling = false
	for _, p := range b.reportParts() {
		if strings.HasPrefix(p.Name, "pprof/") {
			t.Errorf("%s, though profiling is off", p.Name)
		}
	}
}

// TestASilentAPIServerIsAskedOnceForAReport: of a dozen lists each would be waited for.
func TestASilentAPIServerIsAskedOnceForAReport(t *testing.T) {
	b := tetherable(t, &switched{mode: "Autonomous"}, corpPeer(t))
	silent := &hanging{Reader: b.Cluster().Fresh}
	b.Cluster().Fresh = silent
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	lists := 0
	for _, p := range b.reportParts() {
		if strings.HasPrefix(p.Name, "objects/") || strings.HasPrefix(p.Name, "cluster/") {
			lists++
			if _, err := p.Make(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
	if silent.asked != 1 || lists < 5 {
		t.Errorf("asked %d times for %d lists", silent.asked, lists)
	}
}

// hanging is an API server that does not answer.
type hanging struct {
	client.Reader
	asked int
}

func (h *hanging) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	h.asked++
	<-ctx.Done()
	return ctx.Err()
}

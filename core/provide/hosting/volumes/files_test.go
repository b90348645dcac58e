package volumes

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/base/treecopy"
	"kith.dev/core/consume/remote"
)

// newFiles is a provider whose files are asked for at a server; the folder has one, of three bytes.
func newFiles(t *testing.T) (p *provider, at *httptest.Server, folder string) {
	t.Helper()
	p = newProvider(t)
	p.Node = "here"
	p.mux.HandleFunc("POST "+remote.CopyPath, func(w http.ResponseWriter, r *http.Request) { p.CopyClaim(w, r, r.Header.Get("By")) })
	at = httptest.NewServer(p.mux)
	t.Cleanup(at.Close)
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, at, folder
}

// filed gives bob's claim data a volume, a folder of this node.
func (p *provider) filed(folder string) {
	p.Helper()
	p.bind("bob", "data", "pv-1")
	v := p.volume("pv-1")
	v.Spec.Local = &corev1.LocalVolumeSource{Path: folder}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"here"}}},
	}}}}
	if err := p.client.Update(p.Context(), v); err != nil {
		p.Fatal(err)
	}
}

// files asks for the files of a claim; the answer is a connection, or what was said.
func (p *provider) files(at *httptest.Server, by, claim, uid, end string) (net.Conn, string) {
	p.Helper()
	return p.filesUnder(at, by, by+"-1", claim, uid, end)
}

func (p *provider) filesUnder(at *httptest.Server, by, contract, claim, uid, end string) (net.Conn, string) {
	p.Helper()
	conn, err := net.Dial("tcp", at.Listener.Addr().String())
	if err != nil {
		p.Fatal(err)
	}
	path := "/kith/v2/namespaces/shop/claims/" + claim + "/files?" + url.Values{"contract": {contract}, "uid": {uid}, "as": {end}}.Encode()
	r, err := http.NewRequestWithContext(p.Context(), http.MethodPost, "http://here"+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("By", p.id[by])
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", remote.CopyProtocol)
	if err := r.Write(conn); err != nil {
		p.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		p.Fatal(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return read{conn, in}, ""
	}
	defer conn.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return nil, string(said)
}

// read is a connection of which some was read.
type read struct {
	net.Conn
	in *bufio.Reader
}

func (r read) Read(b []byte) (int, error) { return r.in.Read(b) }

func TestFilesOfAClaimGoOutAndIn(t *testing.T) {
	p, at, folder := newFiles(t)
	other := t.TempDir()
	refused := func(word, by, claim, uid, end string) {
		t.Helper()
		conn, said := p.files(at, by, claim, uid, end)
		if conn != nil {
			conn.Close()
		}
		if conn != nil || !strings.Contains(said, word) {
			t.Errorf("%s %s of %s: %v %q, want %q", end, claim, by, conn != nil, said, word)
		}
	}
	refused("no such claim", "bob", "data", uid, "from")
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
	refused("is being made", "bob", "data", uid, "into") // nobody used it yet
	if at := p.claimOf("bob", "data").Annotations[annotationSelectedNode]; at != "here" {
		t.Errorf("its volume is to be made at %q", at)
	}
	p.filed(folder)
	refused("no such claim", "bob", "data", "ee", "from")
	refused("no such claim", "eve", "data", uid, "from")
	refused("from, from-still or into", "bob", "data", uid, "x")
	p.Node = "there"
	refused("kithd is not there", "bob", "data", uid, "from")
	p.Node = "here"

	guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.twin["bob"], Name: "db-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	}}}}
	if err := p.client.Create(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	refused("pod db-0 still has it", "bob", "data", uid, "from-still")
	refused("pod db-0 still has it", "bob", "data", uid, "into")

	var held []net.Conn
	for range mostCopies {
		conn, said := p.files(at, "bob", "data", uid, "from")
		if conn == nil {
			t.Fatal(said)
		}
		held = append(held, conn)
	}
	if !p.Copying() {
		t.Error("Kubernetes may sleep")
	}
	refused("copies are under way", "bob", "data", uid, "from")
	if stats, err := treecopy.Receive(t.Context(), held[0], other, treecopy.LimitsOf(1<<20)); err != nil || stats.Sent != 3 {
		t.Fatalf("%+v, %v", stats, err)
	}
	held[1].Close()
	if is, err := os.ReadFile(filepath.Join(other, "a")); err != nil || string(is) != "one" {
		t.Errorf("%q, %v", is, err)
	}

	if err := p.client.Delete(t.Context(), guest, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "b"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	var said string
	for conn == nil { // the copies before are ending
		if conn, said = p.files(at, "bob", "data", uid, "into"); conn == nil && !strings.Contains(said, "under way") {
			t.Fatal(said)
		}
	}
	if _, err := treecopy.Send(context.WithoutCancel(t.Context()), conn, other, treecopy.Options{Still: true}); err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(filepath.Join(folder, "b")); err != nil || string(is) != "two" {
		t.Errorf("%q, %v", is, err)
	}
}

// Files that are out of reach while their file system grows are to be had in a moment; those that are nowhere are not.
func TestFilesOfAVolumeThatGrowsAreAskedForAgain(t *testing.T) {
	p, at, root := newFiles(t)
	folder := filepath.Join(root, "pvc-1_shop_data", "data")
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
	p.filed(folder)
	said := func(word string) {
		t.Helper()
		if conn, said := p.files(at, "bob", "data", uid, "from"); conn != nil || !strings.Contains(said, word) {
			t.Errorf("%v %q, want %q", conn != nil, said, word)
		}
	}
	said(`"code":"forbidden"`)
	if err := os.WriteFile(filepath.Dir(folder)+".img", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said(`"code":"unavailable"`)
	said("try again in a moment")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	conn, no := p.files(at, "bob", "data", uid, "from")
	if conn == nil {
		t.Fatal(no)
	}
	conn.Close()
}

// What is kept since a contract ended goes out without one, to its consumer alone, and is deleted by its word.
func TestKeptFilesGoOutWithoutAContract(t *testing.T) {
	p, at, folder := newFiles(t)
	other := t.TempDir()
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
	p.filed(folder)
	without := func(by, end string) (net.Conn, string) { return p.filesUnder(at, by, "", "data", uid, end) }
	if conn, said := without("bob", "from"); conn != nil || !strings.Contains(said, "no such claim") {
		t.Errorf("while the contract is in force: %q", said)
	}
	p.want(403, "being ended", "DELETE", "bob", "", "data", uid, "")
	p.gone("bob", "data", "pv-1")
	p.look("pv-1")
	for by, end := range map[string]string{"eve": "from", "bob": "into"} {
		if conn, said := without(by, end); conn != nil || said == "" {
			t.Errorf("%s %s: %v %q", by, end, conn != nil, said)
		}
	}
	conn, said := without("bob", "from-still")
	if conn == nil {
		t.Fatal(said)
	}
	if stats, err := treecopy.Receive(t.Context(), conn, other, treecopy.LimitsOf(1<<20)); err != nil || stats.Sent != 3 {
		t.Fatalf("%+v, %v", stats, err)
	}
	p.want(200, "", "DELETE", "eve", "", "data", uid, "")
	if policy := p.volume("pv-1").Spec.PersistentVolumeReclaimPolicy; policy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("another consumer had it deleted: %s", policy)
	}
	p.want(200, "", "DELETE", "bob", "", "data", uid, "")
	if policy := p.volume("pv-1").Spec.PersistentVolumeReclaimPolicy; policy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("it is not deleted by its consumer's word: %s", policy)
	}
}

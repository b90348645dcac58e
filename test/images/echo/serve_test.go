package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newServer(t *testing.T) *httptest.Server {
	s := &server{client: http.DefaultClient}
	s.healthy.Store(true)
	w := httptest.NewServer(s.routes())
	t.Cleanup(w.Close)
	return w
}

func fetchJSON(t *testing.T, url string, status int) Answer {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var a Answer
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || r.StatusCode != status {
		t.Fatalf("%s: %s, %v, %+v", url, r.Status, err, a)
	}
	return a
}

func TestItTellsWhoItIsAndWhoAsks(t *testing.T) {
	t.Setenv("NODE_NAME", "bob")
	a := fetchJSON(t, newServer(t).URL+"/x?env&mounts", 200)
	h, _ := os.Hostname()
	if a.Name != h || a.Node != "bob" || a.Path != "/x?env&mounts" || !strings.HasPrefix(a.Client, "127.0.0.1:") {
		t.Errorf("answer %+v", a)
	}
	if !strings.Contains(strings.Join(a.Env, "\n"), "NODE_NAME=bob") || !strings.Contains(a.Mounts, " / ") {
		t.Errorf("env %v, mounts %q", a.Env, a.Mounts)
	}
}

func TestBlobIsWhatItsHashSays(t *testing.T) {
	w := newServer(t)
	var first []byte
	for range 2 {
		r, err := http.Get(w.URL + "/blob?bytes=300000")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		sum := sha256.Sum256(b)
		if len(b) != 300000 || r.Header.Get("X-Sha256") != hex.EncodeToString(sum[:]) {
			t.Fatalf("%d bytes, header %s", len(b), r.Header.Get("X-Sha256"))
		}
		if first != nil && string(first) != string(b) {
			t.Error("the second time it was other bytes")
		}
		first = b
	}
	r, err := http.Post(w.URL+"/sink", "", strings.NewReader(string(first)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var a Answer
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(first)
	if a.Bytes != 300000 || a.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("sink answers %+v", a)
	}
	fetchJSON(t, w.URL+"/blob?bytes=-1", 400)
}

func TestItReachesOthers(t *testing.T) {
	w := newServer(t)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	go echoPackets(packets)
	a := fetchJSON(t, w.URL+"/udp?size=1400&addr="+packets.LocalAddr().String(), 200)
	if a.Reply == nil || a.Reply.Bytes != 1400 || !strings.HasPrefix(a.Reply.Client, "127.0.0.1:") {
		t.Errorf("udp: %+v", a)
	}
	a = fetchJSON(t, w.URL+"/call?url="+url.QueryEscape(w.URL+"/blob?bytes=100000"), 200)
	if a.Status != 200 || a.Bytes != 100000 || len(a.SHA256) != 64 {
		t.Errorf("call: status %d, %d bytes, %s", a.Status, a.Bytes, a.SHA256)
	}
	a = fetchJSON(t, w.URL+"/dial?addr="+w.Listener.Addr().String(), 200)
	if a.Remote != w.Listener.Addr().String() {
		t.Errorf("dial: %+v", a)
	}
	if a = fetchJSON(t, w.URL+"/dial?addr=127.0.0.1:1", 502); !strings.Contains(a.Error, "refused") {
		t.Errorf("dial to nobody: %+v", a)
	}
}

func TestHealthAndFiles(t *testing.T) {
	w := newServer(t)
	fetchJSON(t, w.URL+"/healthz", 200)
	post := func(path, body string) int {
		r, err := http.Post(w.URL+path, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	post("/healthz?ok=false", "")
	fetchJSON(t, w.URL+"/healthz", 503)
	post("/healthz?ok=true", "")
	fetchJSON(t, w.URL+"/healthz", 200)

	file := filepath.Join(t.TempDir(), "f")
	if s := post("/write?path="+file, "kept"); s != 200 {
		t.Errorf("write: %d", s)
	}
	r, err := http.Get(w.URL + "/file?path=" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "kept" {
		t.Errorf("file: %q", b)
	}
	fetchJSON(t, w.URL+"/file?path=/no/such", 404)
}

// The program as a whole: its tools by name, and the grace at its end.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	app := filepath.Join(dir, "app")
	if out, err := exec.Command("go", "build", "-o", app, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink(app, filepath.Join(dir, "echo")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(dir, "echo"), "a", "b").Output(); err != nil || string(out) != "a b\n" {
		t.Errorf("echo: %q, %v", out, err)
	}
	if err := exec.Command(app, "nonsense").Run(); err == nil || err.(*exec.ExitError).ExitCode() != 127 {
		t.Errorf("unknown command: %v", err)
	}
	if err := exec.Command(app, "sleep", "0.01").Run(); err != nil {
		t.Error(err)
	}
	c := exec.Command(app)
	c.Env = []string{"HTTP_ADDR=127.0.0.1:0", "UDP_ADDR=127.0.0.1:0", "GRACE_SECONDS=0.2"}
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, _ := out.Read(buf) // it listens
	begin := time.Now()
	_ = c.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(out)
	err := c.Wait()
	if took := time.Since(begin); err != nil || took < 200*time.Millisecond || !strings.Contains(string(rest), "GRACE end") {
		t.Errorf("after %v: %v, %q%q", took, err, buf[:n], rest)
	}
}

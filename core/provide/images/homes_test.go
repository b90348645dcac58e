package images

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/core/agree/peering"
	"kith.dev/core/consume/images"
	"kith.dev/core/trust/identity"
)

func newIdentity(t testing.TB) *identity.Identity {
	t.Helper()
	me, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	return me
}

type nobody struct{ peering.Handler }

func (nobody) Recognise(context.Context, peering.Caller) bool { return true }

// TestWhatIsAskedGoesToThatHome: through a real server of the peer API, and nothing of the asker's goes with it.
func TestWhatIsAskedGoesToThatHome(t *testing.T) {
	home, here := newIdentity(t), newIdentity(t)
	log := slog.New(slog.DiscardHandler)
	server := peering.NewServer(peering.ServerConfig{Identity: home, Name: func() string { return "alice" }, Version: "1", Handler: nobody{}, Log: log})
	server.Handle("GET "+images.Path, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		if caller.ID != here.ID() || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("%s %v", caller.ID, r.Header)
		}
		if strings.Contains(r.URL.Path, "gone") {
			peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "not here"})
			return
		}
		w.Header().Set("Docker-Content-Digest", "sha256:1")
		io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Range"))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(ctx, l) }()
	client := peering.NewClient(peering.ClientConfig{Identity: here, Expect: home.ID(), Addresses: []string{l.Addr().String()}, Log: log})
	dir, err := os.MkdirTemp("", "homes-") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	most, allowed := int64(0), true
	h := &Homes{Rate: func(string) (int64, bool) { return most, allowed }, Path: filepath.Join(dir, "k8s", Socket), Log: log, Client: func(consumer string) (*peering.Client, bool) { return client, consumer == home.ID().Compact() }}
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		client.Close()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	asker := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", h.Path)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
		}
	}, DisableKeepAlives: true}}
	ask := func(method, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://home/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Basic secret")
		r.Header.Set("Cookie", "a=b")
		r.Header.Set("Range", "bytes=5-")
		resp, err := asker.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	compact := home.ID().Compact()
	if code, text := ask("GET", compact+"/shop/web/manifests/dev?ns=docker.io"); code != 200 || text != "GET "+images.Path+"shop/web/manifests/dev?ns=docker.io bytes=5-" {
		t.Errorf("%d %s", code, text)
	}
	if info, err := os.Stat(h.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	for path, want := range map[string]int{compact + "/gone/manifests/1?ns=x": 404, "nobody/shop/web/manifests/dev": 404, "": 404, compact + "/../../v2/contracts": 400} {
		if code, text := ask("GET", path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, _ := ask("DELETE", compact+"/shop/web/manifests/dev?ns=docker.io"); code != 404 {
		t.Errorf("DELETE: %d", code)
	}
	limit := h.limit(compact, 1000)
	if limit == nil || limit.Limit() != 1000 {
		t.Errorf("%+v", limit)
	}
	most = 20
	if code, _ := ask("GET", compact+"/shop/web/manifests/dev?ns=docker.io"); code != 200 || limit.Limit() != 20 || limit.Tokens() > burst-40 {
		t.Errorf("%d, %v at %v: what came was not counted, or a policy that changed changes nothing", code, limit.Tokens(), limit.Limit())
	}
	allowed = false
	if code, text := ask("GET", compact+"/shop/web/manifests/dev?ns=docker.io"); code != 503 || !strings.Contains(text, "policy") {
		t.Errorf("what no policy allows: %d %s", code, text)
	}
	allowed = true
	client.Cut()
	client.SetAddresses([]string{"127.0.0.1:1"})
	if code, text := ask("GET", compact+"/shop/web/manifests/dev?ns=docker.io"); code != 502 || !strings.Contains(text, "home does not answer") {
		t.Errorf("a home that is away: %d %s", code, text)
	}
}

package peering

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

// echo answers an upgrade (as exec over SPDY or websockets begins) and sends back what it gets.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprintf(w, "%s %s", r.Proto, r.URL.Path)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	io.Copy(conn, buf)
}

// cluster is a provider's API server behind the reverse proxy of hosting: the real one of the standard library.
func cluster(t *testing.T) func(*Server) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	seen := make(chan struct{})
	api := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seen":
			seen <- struct{}{}
			return
		case "/watch": // the next event comes when the one before was seen: none may be held back
			for i := range 3 {
				fmt.Fprintf(w, "event %d\n", i)
				http.NewResponseController(w).Flush()
				select {
				case <-seen:
				case <-r.Context().Done():
					return
				}
				time.Sleep(600 * time.Millisecond)
			}
			<-r.Context().Done()
			return
		}
		echo(w, r)
	})}
	go api.Serve(l)
	t.Cleanup(func() { api.Close() })
	return func(s *Server) {
		proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: l.Addr().String()})
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/kube")
		}}
		s.Handle("/kube/", func(w http.ResponseWriter, r *http.Request, _ Caller) { proxy.ServeHTTP(w, r) })
	}
}

func TestAddedRoutesSpeakHTTP2AndStreamPastAllDeadlines(t *testing.T) {
	t.Parallel()
	alice := someone(t)
	short := Limits{BodyTimeout: 500 * time.Millisecond, HeaderTimeout: 500 * time.Millisecond, IdleTimeout: 500 * time.Millisecond}
	bob := bob(t, short, cluster(t))
	client := dialer(t, alice, bob.ID(), bob.addr)
	get := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, client.BaseURL()+path, nil)
		must(t, err)
		resp, err := client.Transport().RoundTrip(req)
		must(t, err)
		return resp
	}
	resp := get("/kube/api/v1")
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.Proto != "HTTP/2.0" || string(body) != "HTTP/1.1 /api/v1" {
		t.Errorf("%s %q %v", resp.Proto, body, err)
	}

	watch := get("/kube/watch")
	lines := bufio.NewReader(watch.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("event %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		get("/kube/seen").Body.Close()
	}
	time.Sleep(1200 * time.Millisecond) // no event for longer than any deadline
	ended := make(chan error, 1)
	go func() { _, err := lines.ReadString('\n'); ended <- err }()
	select {
	case err := <-ended:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	bob.stop() // the end of the server ends the watch
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("the watch outlives the server")
	}
	watch.Body.Close()
}

// TestBulkHasConnectionsOfItsOwn: one long answer holds no call up, and Cut ends it.
func TestBulkHasConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	alice := someone(t)
	bob := bob(t, Limits{}, cluster(t))
	client := dialer(t, alice, bob.ID(), bob.addr)
	get := func(by http.RoundTripper, path string) *http.Response {
		req, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, client.BaseURL()+path, nil)
		must(t, err)
		resp, err := by.RoundTrip(req)
		must(t, err)
		return resp
	}
	long := get(client.Bulk(), "/kube/watch")
	defer long.Body.Close()
	lines := bufio.NewReader(long.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "event 0\n" || long.Proto != "HTTP/1.1" {
		t.Fatalf("%s %q %v", long.Proto, line, err)
	}
	call := get(client.Transport(), "/kube/api/v1")
	if call.Body.Close(); call.Proto != "HTTP/2.0" {
		t.Error(call.Proto)
	}
	client.mu.Lock()
	open := len(client.conns)
	client.mu.Unlock()
	if open != 2 {
		t.Errorf("%d connections, want one of each kind", open)
	}
	client.Cut()
	if line, err := lines.ReadString('\n'); err == nil {
		t.Errorf("%q after the cut", line)
	}
}

func TestUpgradesGoThrough(t *testing.T) {
	t.Parallel()
	alice := someone(t)
	short := Limits{BodyTimeout: 200 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 200 * time.Millisecond}
	bob := bob(t, short, cluster(t))
	client := dialer(t, alice, bob.ID(), closed(t), bob.addr)
	conn, err := client.DialTLS(within(t, patience))
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprint(conn, "POST /kube/api/v1/namespaces/web/pods/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	must(t, err)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	for _, word := range []string{"hello\n", "again\n"} {
		fmt.Fprint(conn, word)
		if got, err := r.ReadString('\n'); err != nil || got != word {
			t.Fatalf("%q, %v", got, err)
		}
		time.Sleep(500 * time.Millisecond) // quiet for longer than any deadline
	}
	bob.stop() // cuts what was taken over, too
	if _, err := r.ReadByte(); err == nil {
		t.Error("the upgraded connection outlives the server")
	}
}

func TestCallsUnderWayFinishWhenTheServerEnds(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	bob := bob(t, Limits{}, func(s *Server) {
		s.Handle("GET /kith/v2/slow", func(w http.ResponseWriter, r *http.Request, _ Caller) {
			close(began)
			<-finish
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"done":true}`)
		})
	})
	client := dialer(t, someone(t), bob.ID(), bob.addr)
	var out struct{ Done bool }
	result := make(chan error, 1)
	go func() {
		result <- client.Call(within(t, patience), http.MethodGet, "/kith/v2/slow", nil, &out)
	}()
	<-began
	stopped := make(chan struct{})
	go func() { defer close(stopped); bob.stop() }()
	time.Sleep(100 * time.Millisecond)
	select {
	case <-stopped:
		t.Error("the server did not wait for the call")
	case err := <-result:
		t.Errorf("the call was cut: %v", err)
	default:
	}
	close(finish)
	if err := <-result; err != nil || !out.Done {
		t.Errorf("%+v, %v", out, err)
	}
	<-stopped
}

func TestAConnectionForUpgradesIsPinned(t *testing.T) {
	alice, bob, mallory := someone(t), bob(t, Limits{}), bob(t, Limits{})
	conn, err := dialer(t, alice, bob.ID(), mallory.addr).DialTLS(within(t, patience))
	var mismatch *identity.MismatchError
	if !errors.As(err, &mismatch) {
		t.Errorf("another key passes: %v, %v", conn, err)
	}
}

// Upgrade and Upgraded are the two ends of what leaves HTTP; a refusal comes as one.
func TestAnUpgradeIsOneStream(t *testing.T) {
	t.Parallel()
	bob := bob(t, Limits{}, func(s *Server) {
		s.Handle("POST /kith/v2/echo", func(w http.ResponseWriter, r *http.Request, _ Caller) {
			if r.URL.Query().Get("no") != "" {
				WriteProblem(w, Refuse(CodeForbidden, "not today", "ask tomorrow"))
				return
			}
			conn, err := Upgraded(w, r, "echo")
			if err != nil {
				return
			}
			defer conn.Close()
			io.Copy(conn, conn)
		})
	})
	client := dialer(t, someone(t), bob.ID(), closed(t), bob.addr)
	conn, err := client.Upgrade(within(t, patience), "/kith/v2/echo", "echo")
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	for _, word := range []string{"hello", "again"} {
		got := make([]byte, len(word))
		fmt.Fprint(conn, word)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if _, err := client.Upgrade(within(t, patience), "/kith/v2/echo?no=1", "echo"); !errors.Is(err, &Problem{Code: CodeForbidden}) {
		t.Error(err)
	}
	if _, err := client.Upgrade(within(t, patience), "/kith/v2/echo", "shout"); !errors.Is(err, &Problem{Code: CodeBadRequest}) {
		t.Error(err)
	}
	if _, err := client.Upgrade(within(t, patience), "/kith/v2/nothing", "echo"); !errors.Is(err, &Problem{Code: CodeNotFound}) {
		t.Error(err)
	}
}

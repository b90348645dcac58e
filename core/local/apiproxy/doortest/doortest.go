// Package doortest is for tests of doors (apiproxy.Door): a caller's client, and an API server that the test plays. The door is between them.
package doortest

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Lane leads from a caller to an API server. Make it with New, and Open it with a door to Config.
type Lane struct {
	*testing.T
	Config *rest.Config

	front *httptest.Server
}

// New is one whose API server, below a path, is upstream.
func New(t *testing.T, path string, upstream http.HandlerFunc) *Lane {
	t.Helper()
	up := httptest.NewUnstartedServer(upstream)
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	return &Lane{T: t, Config: &rest.Config{Host: up.URL + path, BearerToken: "daemon-token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
}

// Open has the caller served by a door; shut ends what it has open.
func (l *Lane) Open(serve http.HandlerFunc, shut func()) {
	l.front = httptest.NewUnstartedServer(serve)
	l.front.EnableHTTP2 = true
	l.front.StartTLS()
	l.Cleanup(func() { shut(); l.front.Close() })
}

// Do has the caller ask.
func (l *Lane) Do(method, path string, body io.Reader, header http.Header) *http.Response {
	l.Helper()
	req, err := http.NewRequest(method, l.front.URL+path, body)
	if err != nil {
		l.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := l.front.Client().Do(req)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Status is what an answer says, which must be a Status of the answer's code.
func (l *Lane) Status(resp *http.Response) metav1.Status {
	l.Helper()
	var s metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || s.Kind != "Status" || int(s.Code) != resp.StatusCode {
		l.Fatalf("answer %d is %+v: %v", resp.StatusCode, s, err)
	}
	return s
}

// Dial is a connection of the caller that speaks HTTP/1.1 alone, as client-go's executors do.
func (l *Lane) Dial() *tls.Conn {
	l.Helper()
	conn, err := tls.Dial("tcp", l.front.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	return conn
}

// Upgraded is a connection after the answer to an upgrade.
type Upgraded struct {
	*tls.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (u *Upgraded) Read(p []byte) (int, error) { return u.r.Read(p) }

// Upgrade has the caller ask for an upgrade by GET.
func (l *Lane) Upgrade(path, protocol string, header http.Header) (*Upgraded, *http.Response) {
	l.Helper()
	conn := l.Dial()
	req, _ := http.NewRequest("GET", "https://peer"+path, nil)
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	if err := req.Write(conn); err != nil {
		l.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		l.Fatal(err)
	}
	return &Upgraded{conn, r}, resp
}

// Streams is an API server that upgrades to an echo, or starts a watch or a followed log that never ends; gone is done when one was cut.
func Streams(gone *sync.WaitGroup) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Protocols: %s\r\nX-User: %s\r\n\r\n",
				r.Header.Get("Upgrade"), r.Header.Get("Sec-Websocket-Protocol"), r.Header.Get("Impersonate-User"))
			_, _ = io.Copy(conn, rw)
			return
		}
		if r.URL.Query().Has("watch") || r.URL.Query().Has("follow") {
			fmt.Fprintln(w, "event")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone.Done()
		}
	}
}

// UpgradesCarryNoTokens tries that the caller's upgrades pass, as this user and without the tokens that it sends along. The API server is Streams.
func (l *Lane) UpgradesCarryNoTokens(pods, user string) {
	l.Helper()
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		conn, answer := l.Upgrade(pods+"/web/exec?command=sh", protocol, http.Header{"Authorization": {"Bearer stolen"}, "Sec-Websocket-Protocol": {
			"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c3RvbGVu", "BASE64URL.bearer.authorization.k8s.io.x",
		}})
		if answer.StatusCode != 101 || answer.Header.Get("X-Protocols") != "v5.channel.k8s.io" || answer.Header.Get("X-User") != user {
			l.Fatalf("%s: %s %v", protocol, answer.Status, answer.Header)
		}
		message := strings.Repeat("x", 100_000)
		go fmt.Fprint(conn, message)
		back := make([]byte, len(message))
		if _, err := io.ReadFull(conn, back); err != nil || string(back) != message {
			l.Errorf("%s: echo came back broken: %v", protocol, err)
		}
	}
}

// EndCutsAll opens a watch, a followed log and a shell, and tries that end cuts them all, at the API server too, and that the next request is
// refused with a sentence that says so. The API server is Streams, with two that will be gone.
func (l *Lane) EndCutsAll(pods string, gone *sync.WaitGroup, says string, end func()) {
	l.Helper()
	watch, logs := l.Do("GET", pods+"?watch=1", nil, nil), l.Do("GET", pods+"/web/log?follow=true", nil, nil)
	for _, stream := range []*http.Response{watch, logs} {
		if _, err := bufio.NewReader(stream.Body).ReadString('\n'); err != nil {
			l.Fatal(err)
		}
	}
	exec, _ := l.Upgrade(pods+"/web/exec?command=sh", "websocket", nil)
	fmt.Fprint(exec, "hello")
	if _, err := io.ReadFull(exec, make([]byte, 5)); err != nil {
		l.Fatalf("upgraded connection does not echo: %v", err)
	}
	end()
	for _, stream := range []*http.Response{watch, logs} {
		if _, err := io.ReadAll(stream.Body); err == nil {
			l.Error("a stream ended cleanly: its reader would not notice that it was cut")
		}
	}
	_ = exec.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := exec.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		l.Errorf("the upgraded connection still talks, or is silent and open: %v", err)
	}
	gone.Wait()
	if s := l.Status(l.Do("GET", pods, nil, nil)); s.Code != 403 || !strings.Contains(s.Message, says) {
		l.Errorf("afterwards: %+v", s)
	}
}

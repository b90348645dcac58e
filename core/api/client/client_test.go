package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/api"
)

// answer serves one handler at a socket.
func answer(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "kith")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	c := New(l.Addr().String())
	t.Cleanup(func() { c.Close(); server.Close(); os.RemoveAll(dir) })
	return c
}

func TestEveryFailureIsAnErrorThatSaysWhatToDo(t *testing.T) {
	ask := func(c *Client) error {
		_, err := c.Ask(t.Context(), "bob", api.PeerAsk{}, func(api.Progress) {})
		return err
	}
	status := func(c *Client) error { _, err := c.Status(t.Context()); return err }
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		call    func(*Client) error
		code    api.Code
		says    string
	}{
		"not kithd": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); io.WriteString(w, "<html>") }, status, api.CodeInternal, "is it kithd"},
		"not JSON":  {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, status, api.CodeInternal, "different versions"},
		"hangs up":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, status, api.CodeUnavailable, "journalctl"},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, `{"error":{"code":"notFound","message":"no bob","do":"look"}}`)
		}, status, api.CodeNotFound, "no bob (look)"},
		"stream of nonsense": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") }, ask, api.CodeInternal, "not understood"},
		"stream without end": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{\"progress\":\"a\"}\n") }, ask, api.CodeUnavailable, "broke"},
		"stream cut": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "{}\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, ask, api.CodeUnavailable, "broke"},
		"endless line": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", maxLine+1)) }, ask, api.CodeUnavailable, "too long"},
		"error in a stream": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "\n{\"error\":{\"code\":\"declined\",\"message\":\"no\"}}\n")
		}, ask, api.CodeDeclined, "no"},
	} {
		err := tc.call(answer(t, tc.handler))
		if !errors.Is(err, &api.Error{Code: tc.code}) || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%s: %v, want %s that says %q", name, err, tc.code, tc.says)
		}
	}
}

func TestSilentDaemonEndsWithTheContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := answer(t, func(http.ResponseWriter, *http.Request) { <-release })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, &api.Error{Code: api.CodeTimeout}) {
		t.Error(err)
	}
}

func TestForbiddenSocketNamesTheGroup(t *testing.T) {
	err := New("/run/kith/kith.sock").explain(t.Context(), &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)})
	if err.Code != api.CodeForbidden || !strings.Contains(err.Do, "usermod -aG kith") {
		t.Error(err)
	}
}

func TestDaemonThatHangsIsNotFollowedForEver(t *testing.T) {
	const silence, pause, signs = time.Second, 100 * time.Millisecond, 4
	for name, begin := range map[string]func(w http.ResponseWriter){
		"before it answers": func(http.ResponseWriter) {},
		"after a while": func(w http.ResponseWriter) {
			for range signs {
				io.WriteString(w, "\n")
				w.(http.Flusher).Flush()
				time.Sleep(pause)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			c := answer(t, func(w http.ResponseWriter, _ *http.Request) { begin(w); <-release })
			c.silence = silence
			began, n := time.Now(), 0
			for _, err := range c.Snapshots(t.Context()) {
				if n++; !errors.Is(err, &api.Error{Code: api.CodeTimeout}) || !strings.Contains(err.Error(), "no sign of life") {
					t.Error(err)
				}
			}
			if took := time.Since(began); n != 1 || name == "after a while" && took < silence+(signs-1)*pause {
				t.Errorf("%d values in %v", n, took)
			}
		})
	}
}

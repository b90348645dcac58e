package remote

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire/codec"
)

// stranger is a peer that knows nobody.
type stranger struct{ peering.Handler }

func (stranger) Recognise(context.Context, peering.Caller) bool { return false }

func TestCallsAndStreamsTakeTheirOwnWays(t *testing.T) {
	who := func() *identity.Identity {
		me, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
		if err != nil {
			t.Fatal(err)
		}
		return me
	}
	alice, bob, log := who(), who(), slog.New(slog.DiscardHandler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := peering.NewServer(peering.ServerConfig{Identity: bob, Name: func() string { return "bob" }, Version: "1", Handler: stranger{}, Log: log})
	asked := make(chan string, 10)
	server.Handle("/kube/", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		asked <- fmt.Sprint(r.Proto, " ", r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	})
	go server.Serve(t.Context(), listener)
	to := peering.NewClient(peering.ClientConfig{Identity: alice, Expect: bob.ID(), Addresses: []string{listener.Addr().String()}, Log: log})
	defer to.Close()
	c, err := NewClient(ClientConfig{Peer: "bob", Contract: "c", To: to, Since: time.Now, Older: func(time.Time) {}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	group, err := c.API.Group(v1alpha1.GroupVersion, codec.New(scheme))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := group.Get().Namespace("shop").Resource("offloadedpods").Do(t.Context()).Raw(); err != nil {
			t.Fatal(err)
		} else if got := <-asked; got != "HTTP/2.0 /kube/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods" {
			t.Errorf("call by %s", got)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", c.API.URL.JoinPath("/api/v1/namespaces/shop/pods/web/log").String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.API.Streams.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if got := <-asked; got != "HTTP/1.1 /kube/api/v1/namespaces/shop/pods/web/log" {
			t.Errorf("stream by %s", got)
		}
		to.Cut() // and after that all goes on
	}
}

package virtualnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// peerAPI is a server of HTTP/1.1 and HTTP/2 that answers every list with none, and notes how it was asked.
func peerAPI(t *testing.T) (*httptest.Server, chan string) {
	asked := make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.Proto, " ", r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

func TestCallsAndStreamsTakeTheirOwnWays(t *testing.T) {
	s, asked := peerAPI(t)
	pinned := s.Client().Transport.(*http.Transport).TLSClientConfig
	dialTLS := func(protocols ...string) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			cfg := pinned.Clone()
			cfg.NextProtos, cfg.ServerName = protocols, "example.com"
			return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		}
	}
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	for name, tc := range map[string]struct {
		cfg      *rest.Config
		upgrades http.RoundTripper
	}{
		"a transport that is told where to dial": {cfg: &rest.Config{Host: s.URL + "/kube", Transport: &http.Transport{TLSClientConfig: pinned}}},
		"a transport that dials as it likes": {
			cfg: &rest.Config{Host: "https://bob.kith.invalid/kube",
				Transport: &http.Transport{DialTLSContext: dialTLS("h2", "http/1.1"), ForceAttemptHTTP2: true}},
			upgrades: &http.Transport{DialTLSContext: dialTLS("http/1.1"), Protocols: http1}},
		"files and fields": {cfg: &rest.Config{Host: s.URL + "/kube", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}},
	} {
		a, err := newAbroad(tc.cfg, tc.upgrades)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := a.offloaded.rest.Get().Namespace("shop").Resource(resource).Do(t.Context()).Raw(); err != nil {
			t.Errorf("%s: call: %v", name, err)
		} else if got := <-asked; got != "HTTP/2.0 /kube/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods" {
			t.Errorf("%s: call by %s", name, got)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", a.base.JoinPath("/api/v1/namespaces/shop/pods/web/log").String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := a.streams.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: stream: %v", name, err)
			continue
		}
		resp.Body.Close()
		if got := <-asked; got != "HTTP/1.1 /kube/api/v1/namespaces/shop/pods/web/log" {
			t.Errorf("%s: stream by %s", name, got)
		}
		a.conns.CloseAll() // and after a cut all goes on
		if _, err := a.offloaded.rest.Get().AbsPath("/version").Do(t.Context()).Raw(); err != nil {
			t.Errorf("%s: call after a cut: %v", name, err)
		}
		<-asked
	}
	_, err := newAbroad(&rest.Config{Host: s.URL, Transport: &http.Transport{DialTLSContext: dialTLS("h2")}}, nil)
	if err == nil || !strings.Contains(err.Error(), "Upgrades") {
		t.Errorf("a transport that cannot carry streams was taken: %v", err)
	}
}

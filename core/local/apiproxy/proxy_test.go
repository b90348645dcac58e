package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestRelayTellsThePeerNothingOfTheCaller(t *testing.T) {
	var got *http.Request
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer up.Close()
	in := httptest.NewRequest("POST", "https://10.42.255.1:10260/exec/shop/web/c?command=id", nil)
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "Impersonate-User": "admin", "X-Remote-User": "admin", "Cookie": "a=b",
		"X-Forwarded-For": "192.168.1.2", "X-Stream-Protocol-Version": "v5.channel.k8s.io", "Upgrade": "SPDY/3.1", "Connection": "Upgrade",
		"Accept": "application/json", "Accept-Encoding": "br", "User-Agent": "kube-apiserver", "Content-Type": "text/plain",
		"Sec-Websocket-Protocol": "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
	} {
		in.Header.Set(name, value)
	}
	proxy := Proxy{Transport: &http.Transport{DisableCompression: true}}
	proxy.Pass(httptest.NewRecorder(), in, Hop{
		Aim: func(to *url.URL) {
			*to = url.URL{Scheme: "http", Host: up.Listener.Addr().String(), Path: "/kube/api/v1/namespaces/t/pods/web/exec", RawQuery: "command=id"}
		},
		Failed: func(err error) { t.Error(err) },
	})
	if got == nil {
		t.Fatal("nothing came")
	}
	if got.URL.String() != "/kube/api/v1/namespaces/t/pods/web/exec?command=id" || got.Host != up.Listener.Addr().String() {
		t.Errorf("goes to %s, host %q", got.URL, got.Host)
	}
	want := map[string]string{
		"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v5.channel.k8s.io",
		"Accept": "application/json", "User-Agent": "kube-apiserver", "Sec-Websocket-Protocol": "v5.channel.k8s.io", "Content-Length": "0",
	}
	for name := range got.Header {
		if want[name] != got.Header.Get(name) {
			t.Errorf("header %s: %s passes", name, got.Header.Get(name))
		}
		delete(want, name)
	}
	delete(want, "Content-Length") // may be left out
	if len(want) > 0 {
		t.Errorf("headers %v did not pass", want)
	}
}

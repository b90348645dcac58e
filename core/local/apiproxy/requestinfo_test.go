package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
)

// consumers is what the peer door lets consumers ask for.
func consumers(r *http.Request) (Info, error) {
	return Parse(r, "/kube", "discovery.k8s.io/v1", "kith.dev/v1alpha1")
}

func TestWays(t *testing.T) {
	exec := http.Header{"Upgrade": {"websocket"}}
	for _, c := range []struct {
		method, url string
		header      http.Header
		want        string // path at the API server, "" when refused
		stream      bool
	}{
		{"GET", "/kube/api/v1/namespaces/shop/pods", nil, "/api/v1/namespaces/shop/pods", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods/web-0", nil, "/api/v1/namespaces/shop/pods/web-0", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods?watch=true", nil, "/api/v1/namespaces/shop/pods", true},
		{"GET", "/kube/api/v1/namespaces/shop/pods?watch=", nil, "/api/v1/namespaces/shop/pods", true},
		{"GET", "/kube/api/v1/namespaces/shop/pods?watch=False", nil, "/api/v1/namespaces/shop/pods", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods?watch=0", nil, "/api/v1/namespaces/shop/pods", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods/web/log?follow=1", nil, "/api/v1/namespaces/shop/pods/web/log", true},
		{"GET", "/kube/api/v1/namespaces/shop/pods/web/log", nil, "/api/v1/namespaces/shop/pods/web/log", false},
		{"POST", "/kube/api/v1/namespaces/shop/pods/web/exec", exec, "/api/v1/namespaces/shop/pods/web/exec", true},
		{"GET", "/kube/api/v1/namespaces/shop/pods/web/log", exec, "", false},
		{"DELETE", "/kube/api/v1/namespaces/shop/secrets?watch=true", nil, "/api/v1/namespaces/shop/secrets", false},
		{"POST", "/kube/api/v1/namespaces/shop/secrets?watch=true", nil, "/api/v1/namespaces/shop/secrets", false},
		{"PATCH", "/kube/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods/web", nil, "/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods/web", false},
		{"GET", "/kube/version", nil, "/version", false},
		{"GET", "/kube/api/v1", nil, "/api/v1", false},
		{"GET", "/kube/apis/kith.dev", nil, "/apis/kith.dev", false},
		{"GET", "/kube/apis/kith.dev/v1alpha1", nil, "/apis/kith.dev/v1alpha1", false},
		{"POST", "/kube/api/v1", nil, "", false},
		{"GET", "/kube/apis/kith.de", nil, "", false},
		{"GET", "/kube/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", nil, "", false},
		{"GET", "/kube/apis/kith.dev/v1alpha1/peers", nil, "", false},
		{"GET", "/kube/api/v1/nodes", nil, "", false},
		{"GET", "/kube/api/v1/secrets", nil, "", false},
		{"GET", "/kube/api/v1/namespaces", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/status", nil, "", false}, // which is the namespace's
		{"PUT", "/kube/api/v1/namespaces/shop/finalize", nil, "", false},
		{"GET", "/kube/api/v1/watch/namespaces/shop/pods", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods", http.Header{"Upgrade": {"", "websocket"}}, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods/", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/services/web/proxy/metrics", nil, "", false},
		{"GET", "/kube/api/v1/namespaces//pods", nil, "", false},
		{"GET", "/kube//api/v1/namespaces/shop/pods", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/../kube-system/secrets", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods/..", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/pods/.", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/%2e%2e/kube-system/secrets", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop%2f..%2fkube-system/secrets", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/p%6fds", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop\\x/pods", nil, "", false},
		{"GET", "/kube/metrics", nil, "", false},
		{"GET", "/kube/", nil, "", false},
		{"GET", "/kube", nil, "", false},
		{"GET", "/kubeapi/v1/namespaces/shop/pods", nil, "", false},
		{"TRACE", "/kube/api/v1/namespaces/shop/pods", nil, "", false},
		{"OPTIONS", "/kube/api/v1/namespaces/shop/pods", nil, "", false},
		{"GET", "/kube/api/v1/namespaces/shop/" + strings.Repeat("p", 2000), nil, "", false},
	} {
		u, err := url.Parse("https://peer" + c.url)
		if err != nil {
			t.Fatal(err)
		}
		w, err := consumers(&http.Request{Method: c.method, URL: u, Header: c.header})
		if (err == nil) != (c.want != "") || w.Path != c.want || w.Stream != c.stream || err == nil && w.Resource != "" && w.Namespace != "shop" {
			t.Errorf("%s %s: %+v, %v; want %q, stream %v", c.method, c.url, w, err, c.want, c.stream)
		}
	}
	for url, list := range map[string]bool{"?watch=true": true, "": true, "/a": false} {
		r := httptest.NewRequest(http.MethodDelete, "/kube/api/v1/namespaces/shop/secrets"+url, nil)
		if w, err := consumers(r); err != nil || w.List != list {
			t.Errorf("DELETE secrets%s: a list of many: %v, %v", url, w.List, err)
		}
	}
}

func FuzzParseWay(f *testing.F) {
	f.Add("/kube/api/v1/namespaces/shop/pods", "watch=1")
	f.Add("/kube/api/v1/namespaces/shop/%2e%2e/x", "")
	f.Add("/kube/apis/kith.dev/v1alpha1/namespaces/a/offloadedpods/b", "follow=%zz")
	f.Fuzz(func(t *testing.T, p, q string) {
		u, err := url.ParseRequestURI(p)
		if err != nil {
			return
		}
		u.RawQuery = q
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		w, err := consumers(r)
		if err != nil {
			return
		}
		if path.Clean(w.Path) != w.Path || "/kube"+w.Path != u.Path {
			t.Errorf("%q went through as %q", p, w.Path)
		}
		if strings.Count(w.Path, "/") > 7 || strings.ContainsAny(w.Path, "%\\ ") {
			t.Errorf("%q went through as %q", p, w.Path)
		}
	})
}

func TestDescribe(t *testing.T) {
	upgrade := http.Header{"Upgrade": {"websocket"}}
	for _, c := range []struct {
		method, url string
		header      http.Header
		want        Info
		watch       bool
	}{
		{"GET", "/api/v1/pods", nil, Info{Resource: "pods", List: true}, false},
		{"GET", "/api/v1/namespaces", nil, Info{Resource: "namespaces", List: true}, false},
		{"GET", "/api/v1/namespaces/shop", nil, Info{Namespace: "shop", Resource: "namespaces", Name: "shop"}, false},
		{"PUT", "/api/v1/namespaces/shop/finalize", nil, Info{Namespace: "shop", Resource: "namespaces", Name: "shop", Subresource: "finalize", Writes: true}, false},
		{"GET", "/api/v1/namespaces/shop/pods/", nil, Info{Namespace: "shop", Resource: "pods", List: true}, false},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale", nil, Info{Group: "apps", Namespace: "shop", Resource: "deployments", Name: "web", Subresource: "scale", Writes: true}, false},
		{"GET", "/api/v1/pods?watch=1", nil, Info{Resource: "pods", Stream: true}, true},
		{"GET", "/api/v1/pods?w%61tch=", nil, Info{Resource: "pods", Stream: true}, true},
		{"GET", "/api/v1/pods?watch=false", nil, Info{Resource: "pods", List: true}, false},
		{"GET", "/api/v1/watch/namespaces/shop/pods/web", nil, Info{Namespace: "shop", Resource: "pods", Name: "web", Stream: true}, true},
		{"DELETE", "/api/v1/namespaces/shop/pods?watch=1", nil, Info{Namespace: "shop", Resource: "pods"}, false},
		{"GET", "/api/v1/namespaces/shop/pods/web/log?follow=true", nil, Info{Namespace: "shop", Resource: "pods", Name: "web", Subresource: "log", Stream: true}, false},
		{"GET", "/api/v1/namespaces/shop/pods/web/proxy/x?watch=1", nil, Info{Namespace: "shop", Resource: "pods", Name: "web", Subresource: "proxy"}, false},
		{"POST", "/api/v1/namespaces/shop/pods/web/exec?command=sh", upgrade, Info{Namespace: "shop", Resource: "pods", Name: "web", Subresource: "exec", Stream: true, Writes: true}, false},
		{"GET", "/version", nil, Info{}, false},
		{"GET", "/apis/apps/v1", nil, Info{}, false},
		{"GET", "/api", nil, Info{}, false},
		{"GET", "/", upgrade, Info{Stream: true}, false},
	} {
		r := httptest.NewRequest(c.method, c.url, nil)
		r.Header = c.header
		if got, watch := Describe(r); got != c.want || watch != c.watch {
			t.Errorf("%s %s: %+v %v", c.method, c.url, got, watch)
		}
	}
}

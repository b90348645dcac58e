package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/distribution/reference"
)

// home is a kithd that asks homes of guests, as far as it matters here.
func home(t *testing.T, answer http.HandlerFunc) (at string, asked func() []string) {
	dir, err := os.MkdirTemp("", "home-") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "h"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r.Method+" "+r.URL.String())
		mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			t.Errorf("home got %v", r.Header)
		}
		answer(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String() + ":/abc", func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// TestHomeIsAskedBeforeTheRegistry, without the credentials that are for the registry.
func TestHomeIsAskedBeforeTheRegistry(t *testing.T) {
	r := newRegistry(t, manifest)
	image, err := reference.ParseDockerRef(r.host() + "/shop/web:dev")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := newRegistry(t, manifest)
	for what, c := range map[string]struct {
		answer   http.HandlerFunc
		registry bool
	}{
		"it has the image": {manifest, false},
		"it does not":      {http.NotFound, true},
		"it is away":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, true},
		"it sends on": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, true},
		"it wants a secret": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere.URL+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, true},
		"a manifest of 1 GiB": {func(w http.ResponseWriter, r *http.Request) {
			manifest(w, r)
			w.Header().Set("Content-Length", "1073741824")
		}, true},
	} {
		at, asked := home(t, c.answer)
		before := r.asked.Load()
		o := order{Image: image.String(), Registries: []string{"http://" + r.host()}, Home: at, broken: &atomic.Bool{}, Auth: auth{Username: "me", Password: "x"}}
		_, target, err := o.resolve(t.Context(), image)
		if err != nil || target.Size != 2 {
			t.Errorf("%s: %+v %v", what, target, err)
		}
		if got := asked(); len(got) == 0 || got[0] != "HEAD /abc/shop/web/manifests/dev?ns="+strings.ReplaceAll(r.host(), ":", "%3A") {
			t.Errorf("%s: home was asked %v", what, got)
		}
		if (r.asked.Load() > before) != c.registry {
			t.Errorf("%s: the registry was asked: %v", what, !c.registry)
		}
	}
	if n := elsewhere.asked.Load(); n > 0 {
		t.Errorf("where home sends on was asked %d times", n)
	}
}

func TestAnOrderIsOneLine(t *testing.T) {
	var w what
	in := strings.NewReader(`{"socket":"/s","image":"a"}` + "\nan archive")
	if err := read(in, &w); err != nil || w.Socket != "/s" || in.Len() != len("an archive") {
		t.Errorf("%+v %v, %d bytes are left", w, err, in.Len())
	}
	if err := read(strings.NewReader("{"), &w); err == nil {
		t.Error("half an order")
	}
	if err := read(bytes.NewReader(bytes.Repeat([]byte{'x'}, 2*mostOrder)), &w); err == nil {
		t.Error("an order without an end")
	}
}

func TestNamesOfArchives(t *testing.T) {
	for ref, want := range map[string]string{
		"web:dev": "docker.io/library/web:dev", "shop/web:dev": "docker.io/shop/web:dev", "localhost/web:dev": "localhost/web:dev", "r.lan:5000/web": "r.lan:5000/web:latest",
		"dev": "", "": "", "Not:A:Name": "",
	} {
		if got := named(ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

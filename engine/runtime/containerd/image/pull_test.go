package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestOnlyTheInternetIsTheInternet(t *testing.T) {
	for _, near := range []string{
		"127.0.0.1:80", "127.1.2.3:80", "0.0.0.0:80", "10.42.0.1:80", "172.16.0.1:443", "192.168.1.1:443", "100.64.0.1:443", "169.254.169.254:80",
		"192.0.0.8:80", "198.18.0.1:80", "224.0.0.1:80", "255.255.255.255:80", "[::1]:80", "[::]:80", "[fe80::1]:80", "[fe80::1%eth0]:80", "[fd00::1]:80",
		"[fc00::1]:80", "[ff02::1]:80", "[::ffff:127.0.0.1]:80", "[::ffff:192.168.1.1]:80", "[64:ff9b::c0a8:101]:80", "[2002:c0a8:101::1]:80",
		"[2001:0:4136:e378:8000:63bf:3fff:fdd2]:80", "[::7f00:1]:80", "nas.lan:80", "",
	} {
		if err := onInternet(near); !errors.Is(err, errNear) {
			t.Errorf("%s: %v", near, err)
		}
	}
	for _, far := range []string{"1.1.1.1:443", "9.255.255.255:443", "11.0.0.1:443", "172.32.0.1:443", "100.128.0.1:443", "[2606:4700::1111]:443", "[::ffff:1.1.1.1]:443"} {
		if err := onInternet(far); err != nil {
			t.Errorf("%s: %v", far, err)
		}
	}
}

// registry is a server on this machine, so in the laptop's own network; it counts who connects.
type registry struct {
	*httptest.Server
	asked atomic.Int32
}

func newRegistry(t *testing.T, answer http.HandlerFunc) *registry {
	r := &registry{}
	r.Server = httptest.NewUnstartedServer(answer)
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.asked.Add(1)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *registry) host() string { return r.Listener.Addr().String() }

func manifest(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("a", 64))
	w.Header().Set("Content-Length", "2")
}

func resolve(t *testing.T, image string, registries ...string) error {
	domain, _, _ := strings.Cut(image, "/")
	_, _, err := order{Registries: registries, Auth: auth{Username: "me", Password: "x"}}.resolver(domain).Resolve(t.Context(), image)
	return err
}

// TestAPullStaysOutOfTheProvidersNetwork: neither the registry's name leads there, nor a redirect, nor where a token is
// to be fetched.
func TestAPullStaysOutOfTheProvidersNetwork(t *testing.T) {
	printer := newRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			fmt.Fprint(w, `{"token":"t","access_token":"t"}`)
			return
		}
		manifest(w, r)
	})
	lan := newRegistry(t, manifest)
	_, port, _ := net.SplitHostPort(printer.host())
	redirects := newRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, printer.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	demands := newRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer t" {
			manifest(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+printer.URL+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	open := []string{"*", "http://" + lan.host(), "http://" + redirects.host(), "http://" + demands.host()}

	for what, image := range map[string]string{
		"an address": printer.host() + "/x:1", "a name": "localhost:" + port + "/x:1", "a redirect": redirects.host() + "/x:1", "a token": demands.host() + "/x:1",
	} {
		for _, list := range [][]string{open, open[1:], nil} { // the internet is allowed, denied; nothing is said
			err := resolve(t, image, list...)
			if err == nil || !strings.Contains(err.Error(), "spec.images.registries") {
				t.Errorf("%s with %v: %v", what, list, err)
			}
		}
	}
	if n := printer.asked.Load(); n != 0 {
		t.Errorf("a server in the provider's network was asked %d times", n)
	}
	if err := resolve(t, lan.host()+"/x:1", open...); err != nil {
		t.Errorf("a registry that the owner lists: %v", err)
	}
	// The owner lists that one too.
	for _, image := range []string{redirects.host() + "/x:1", demands.host() + "/x:1", printer.host() + "/x:1"} {
		if err := resolve(t, image, append(open, "http://"+printer.host())...); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
	if printer.asked.Load() == 0 {
		t.Error("nobody asked the server that was listed: the test proves nothing")
	}
}

// TestALayerComesFromNowhereElse: a description names addresses for a layer, which lead into the provider's network.
func TestALayerComesFromNowhereElse(t *testing.T) {
	printer := newRegistry(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page of the printer") })
	listed := newRegistry(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a layer") })
	fetcher, err := order{Registries: []string{"http://" + listed.host()}}.resolver(listed.host()).Fetcher(t.Context(), listed.host()+"/x:1")
	if err != nil {
		t.Fatal(err)
	}
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("a layer"), Size: 7, URLs: []string{printer.URL + "/admin"}}
	read := func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		body, err := fetcher.Fetch(ctx, d)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		if err == nil && string(text) != "a layer" {
			err = fmt.Errorf("%q", text)
		}
		return nil, err
	}
	if _, err := bounded()(images.HandlerFunc(read)).Handle(t.Context(), layer); err != nil || printer.asked.Load() != 0 {
		t.Errorf("%v; the printer was asked %d times", err, printer.asked.Load())
	}
	if _, _ = read(t.Context(), layer); printer.asked.Load() == 0 {
		t.Error("containerd follows no such addresses any more: the test proves nothing")
	}
}

// TestATokenIsShort: it would be gathered in memory for as long as a registry sends.
func TestATokenIsShort(t *testing.T) {
	var sent atomic.Int64
	var r *registry
	r = newRegistry(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/token" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+r.URL+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"token":"`)
		for part := strings.Repeat("x", 1<<16); sent.Load() < 64<<20; {
			n, err := w.Write([]byte(part))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
		fmt.Fprint(w, `"}`)
	})
	if err := resolve(t, r.host()+"/x:1", "http://"+r.host()); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
	if n := sent.Load(); n == 0 || n >= 64<<20 {
		t.Errorf("%d bytes of a token were sent", n)
	}
}

// TestAListedRegistryMaySendOnToTheInternet, also where that is denied; the LAN stays closed to it.
func TestAListedRegistryMaySendOnToTheInternet(t *testing.T) {
	for _, c := range []struct {
		domain     string
		registries []string
		internet   bool
	}{
		{"ghcr.io", nil, false},
		{"ghcr.io", []string{"*"}, true},
		{"ghcr.io", []string{"ghcr.io"}, true},
		{"GHCR.io", []string{"ghcr.io"}, true},
		{"ghcr.io", []string{"docker.io", "ghcr.io.evil.example", "xghcr.io"}, false},
		{"r.lan:5000", []string{"http://r.lan:5000"}, true},
		{"r.lan", []string{"http://r.lan:5000"}, false},
	} {
		if g := newGuard(c.domain, c.registries); g.internet != c.internet {
			t.Errorf("%s with %v: internet %v", c.domain, c.registries, g.internet)
		}
	}
	g := newGuard("x", []string{"ghcr.io", "http://r.lan", "http://R.lan:5000", "nas.lan:5001", "*"})
	if got := strings.Join(g.open, " "); got != "ghcr.io:443 r.lan:80 r.lan:5000 nas.lan:5001 *:443" {
		t.Errorf("open: %s", got)
	}
}

func TestAnImageIsKeptUnderItsDigestAlone(t *testing.T) {
	var a, b = "sha256:" + strings.Repeat("a", 64), "sha256:" + strings.Repeat("b", 64)
	for image, want := range map[string]string{
		"postgres:17": "docker.io/library/postgres@" + a, "r.lan:5000/a/b:1": "r.lan:5000/a/b@" + a, "ghcr.io/a/b": "ghcr.io/a/b@" + a, "ghcr.io/a/b:1@" + b: "ghcr.io/a/b@" + a,
	} {
		named, err := reference.ParseDockerRef(image)
		if err != nil {
			t.Fatal(err)
		}
		var resolved ocispec.Descriptor
		if err := json.Unmarshal([]byte(`{"digest":"`+a+`"}`), &resolved); err != nil {
			t.Fatal(err)
		}
		if got, err := kept(named, resolved); err != nil || got.String() != want {
			t.Errorf("%s is kept as %s, %v; want %s", image, got, err, want)
		}
	}
}

func TestDescriptionsAreSmall(t *testing.T) {
	for kind, bounded := range map[string]bool{
		ocispec.MediaTypeImageManifest: true, ocispec.MediaTypeImageIndex: true, ocispec.MediaTypeImageConfig: true,
		images.MediaTypeDockerSchema2Manifest: true, "application/x-unknown": true,
		ocispec.MediaTypeImageLayerGzip: false, images.MediaTypeDockerSchema2LayerGzip: false,
	} {
		if err := small(ocispec.Descriptor{MediaType: kind, Size: 1 << 30}); (err != nil) != bounded {
			t.Errorf("%s of 1 GiB: %v", kind, err)
		}
		if err := small(ocispec.Descriptor{MediaType: kind, Size: 1 << 20}); err != nil {
			t.Errorf("%s of 1 MiB: %v", kind, err)
		}
	}
}

// A layer of terabytes is not begun, and none without an end.
func TestLayersHaveAnEnd(t *testing.T) {
	for size, fits := range map[int64]bool{-1: false, 0: false, 1: true, 20 << 30: true, 32 << 30: true, 32<<30 + 1: false, 1 << 40: false, 1<<63 - 1: false} {
		for _, kind := range []string{ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd, images.MediaTypeDockerSchema2LayerGzip} {
			if err := small(ocispec.Descriptor{MediaType: kind, Size: size}); (err == nil) != fits {
				t.Errorf("%s of %d bytes: %v", kind, size, err)
			}
		}
	}
	if err := small(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}); err == nil {
		t.Error("a manifest without a size")
	}
}

func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		in           auth
		user, secret string
		wrong        bool
	}{
		{auth{}, "", "", false},
		{auth{Username: "me", Password: "x"}, "me", "x", false},
		{auth{IdentityToken: "t", Username: "me"}, "", "t", false},
		{auth{Auth: base64.StdEncoding.EncodeToString([]byte("me:x:y"))}, "me", "x:y", false},
		{auth{Auth: "%"}, "", "", true},
		{auth{Auth: base64.StdEncoding.EncodeToString([]byte("me"))}, "", "", true},
	} {
		user, secret, err := c.in.parse()
		if (err != nil) != c.wrong || err == nil && (user != c.user || secret != c.secret) {
			t.Errorf("%+v: %q %q %v", c.in, user, secret, err)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	gcr "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"kith.dev/core/trust/identity"
	"kith.dev/test/images"
)

// bulk is what the image has beside its program, in bytes.
const bulk = 256 << 20

// image has bob get an image that only alice has, for a pod; and then its layer again and again, the way that the engine asks for it, by turns
// with the same bytes by TLS on TCP from a server of Go's at alice, straight and through a relay that does nothing but hand on.
func image(ctx context.Context, r *rig) error {
	const name = "shop/bulk:1"
	archive, layer, err := bulkImage(ctx, name)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(archive))
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := r.alice.kith.LoadImages(ctx, f, ""); err != nil {
		return err
	}
	began := time.Now()
	if err := r.start(ctx, r.alice, namespace, pod("bulk", abroad, container("app", name))); err != nil {
		return err
	}
	defer r.remove(ctx, r.alice, namespace, "bulk")
	r.report.Took(fmt.Sprintf("a pod abroad with an image of %d MiB that only home has, until Ready", bulk>>20), time.Since(began))

	text, err := layerOf(layer)
	if err != nil {
		return err
	}
	status, err := r.alice.kith.Status(ctx)
	if err != nil {
		return err
	}
	id, err := identity.ParseID(status.ID)
	if err != nil {
		return err
	}
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	plain, err := r.plainTLS(text)
	if err != nil {
		return err
	}
	defer plain.Close()
	home := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.bob.Path("/run/kith/k8s/homes.sock"))
	}}}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: r.bob.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its key is of this moment
	relay, err := relayed(plain.URL, direct.Transport, filepath.Dir(archive))
	if err != nil {
		return err
	}
	defer relay.Close()
	between := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", relay.Listener.Addr().String())
	}}}
	ways := []func() (float64, error){
		func() (float64, error) {
			return fetch(ctx, home, fmt.Sprintf("http://home/%s/shop/bulk/blobs/%s?ns=docker.io", id.Compact(), digest), len(text))
		},
		func() (float64, error) { return fetch(ctx, direct, plain.URL, len(text)) },
		func() (float64, error) { return fetch(ctx, between, "http://relay/", len(text)) },
	}
	before, err := r.usage()
	if err != nil {
		return err
	}
	for i := range max(2, r.rounds/2) {
		var speed [3]float64
		for k := range ways {
			at := (i + k) % len(ways)
			if speed[at], err = ways[at](); err != nil {
				return err
			}
		}
		r.report.Pair("layer of an image, from laptop to laptop", "MB/s", "from home", speed[0], "plain TLS", speed[1])
		r.report.Pair("layer of an image, from laptop to laptop", "MB/s", "from home", speed[0], "plain TLS behind a relay", speed[2])
	}
	after, err := r.usage()
	for _, p := range programs[:2] {
		r.report.Add("memory that it takes, "+p.role+": kithd", "MB", after[p].rss-before[p].rss)
	}
	return err
}

// fetch gives the megabytes per second of one answer of so many bytes.
func fetch(ctx context.Context, by *http.Client, url string, want int) (float64, error) {
	return fetchInto(ctx, by, url, want, io.Discard, func() error { return nil })
}

// fetchInto does so into something, which is asked to keep it at the end.
func fetchInto(ctx context.Context, by *http.Client, url string, want int, into io.Writer, keep func() error) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := by.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{into}, resp.Body, make([]byte, 1<<20)) // as containerd reads (core/content.Copy)
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(want)) {
		err = fmt.Errorf("%s: %s, %d bytes for %d", url, resp.Status, n, want)
	}
	if err == nil {
		err = keep()
	}
	return float64(n) / 1e6 / time.Since(began).Seconds(), err
}

// plainTLS serves the bytes at alice's address on the LAN.
func (r *rig) plainTLS(text []byte) (*httptest.Server, error) {
	at, err := r.alice.Address()
	if err != nil {
		return nil, err
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(text))
	}))
	s.Listener.Close()
	if err := r.alice.InNetwork(func() error {
		s.Listener, err = net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
		return err
	}); err != nil {
		return nil, err
	}
	s.StartTLS()
	return s, nil
}

// relayed hands what a server says on to a socket in a folder, as Kith does for containerd, but does nothing else: what any program between
// the two costs.
func relayed(server string, by http.RoundTripper, dir string) (*httptest.Server, error) {
	to, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	s := httptest.NewUnstartedServer(&httputil.ReverseProxy{Transport: by, BufferPool: megabytes{}, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	s.Listener.Close()
	if s.Listener, err = net.Listen("unix", filepath.Join(dir, "relay.sock")); err != nil {
		return nil, err
	}
	s.Start()
	return s, nil
}

// megabytes are buffers as large as Kith's.
type megabytes struct{}

func (megabytes) Get() []byte { return make([]byte, 1<<20) }
func (megabytes) Put([]byte)  {}

// bulkImage writes the archive of an image into a folder of its own, and gives its large layer too.
func bulkImage(ctx context.Context, name string) (archive string, layer v1.Layer, err error) {
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	is, err := echoImage(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	archive = filepath.Join(dir, "bulk.tar")
	_, layer, err = withLayer(is, bulk, name, archive)
	return archive, layer, err
}

// echoImage is the image of that name, made in a folder.
func echoImage(ctx context.Context, dir string) (v1.Image, error) {
	if _, err := images.Build(ctx, dir); err != nil {
		return nil, err
	}
	return tarball.ImageFromPath(filepath.Join(dir, "echo.tar"), nil)
}

// withLayer writes the archive of an image with one layer more, of so many bytes that nothing else has.
func withLayer(is v1.Image, size int64, name, archive string) (v1.Image, v1.Layer, error) {
	layer, err := random.Layer(size, types.DockerLayer)
	if err != nil {
		return nil, nil, err
	}
	if is, err = mutate.AppendLayers(is, layer); err != nil {
		return nil, nil, err
	}
	ref, err := gcr.NewTag(name)
	if err != nil {
		return nil, nil, err
	}
	return is, layer, tarball.WriteToFile(archive, ref, is)
}

// layerOf are the bytes that travel of a layer.
func layerOf(layer v1.Layer) ([]byte, error) {
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

package images

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/consume/images"
	local "kith.dev/core/local/images"
)

// fileStore has one layer, in a file.
type fileStore struct {
	path, digest string
	size         int64
}

func (s fileStore) Open(context.Context, local.Part) (local.Description, io.ReadCloser, error) {
	f, err := os.Open(s.path)
	return local.Description{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: s.digest, Size: s.size}, f, err
}

// BenchmarkLayer has a layer of 64 MiB come from home as kith-image asks for it, or by TLS from a server of Go's. Both ends are this process: what
// counts is the processor time of it, which other programs do not change.
func BenchmarkLayer(b *testing.B) {
	const size = 64 << 20
	path := filepath.Join(b.TempDir(), "layer")
	text := make([]byte, size)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.Fatal(err)
	}
	sum := digest.FromBytes(text).String()
	home, here := newIdentity(b), newIdentity(b)
	log := slog.New(slog.DiscardHandler)
	giver := images.New(fileStore{path, sum, size}, home, log)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "shop/bulk:1"}}}}
	server := peering.NewServer(peering.ServerConfig{Identity: home, Name: func() string { return "alice" }, Version: "1", Handler: nobody{}, Log: log})
	server.Handle("GET "+images.Path, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		giver.Serve(w, r, images.Peer{Name: "bob", ID: caller.ID, Pods: []*corev1.Pod{pod}})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go server.Serve(b.Context(), l)
	client := peering.NewClient(peering.ClientConfig{Identity: here, Expect: home.ID(), Addresses: []string{l.Addr().String()}, Log: log})
	defer client.Close()
	dir, err := os.MkdirTemp("", "homes-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h := &Homes{Path: filepath.Join(dir, Socket), Log: log, Rate: func(string) (int64, bool) { return 0, true }, Client: func(string) (*peering.Client, bool) { return client, true }}
	go h.Run(b.Context())
	for _, err := os.Stat(h.Path); err != nil; _, err = os.Stat(h.Path) {
		time.Sleep(time.Millisecond)
	}
	plain := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}))
	defer plain.Close()
	at := func(network, address string, c *tls.Config) *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
	}
	for name, c := range map[string]struct {
		by  *http.Client
		url string
	}{
		"from home": {at("unix", h.Path, nil), fmt.Sprintf("http://home/%s/shop/bulk/blobs/%s?ns=docker.io", home.ID().Compact(), sum)},
		"plain TLS": {at("tcp", plain.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}), plain.URL},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			buffer := make([]byte, 1<<20)
			before := processorTime()
			for b.Loop() {
				resp, err := c.by.Get(c.url)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buffer)
				if err != nil || n != size {
					b.Fatal(resp.Status, n, err)
				}
				resp.Body.Close()
			}
			b.ReportMetric((processorTime()-before).Seconds()/(float64(b.N)*size/1e9), "cpu-s/GB")
		})
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package images

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/local/images"
	"kith.dev/core/trust/identity"
)

const (
	manifest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	layer    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	foreign  = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

// store has parts by "image digest"; what a name means is under the digest "".
type store struct {
	parts map[string]string
	open  int
	asked []string
}

func (s *store) Open(_ context.Context, p images.Part) (images.Description, io.ReadCloser, error) {
	s.asked = append(s.asked, p.Image)
	text, ok := s.parts[p.Image+" "+p.Digest]
	if !ok {
		return images.Description{}, nil, fmt.Errorf("%w: %s", images.ErrNotFound, p.Image)
	}
	d := images.Description{MediaType: "application/x", Digest: p.Digest, Size: int64(len(text))}
	if p.Digest == "" {
		d.Digest = manifest
	}
	s.open++
	return d, &part{strings.NewReader(text[min(p.From, int64(len(text))):]), s}, nil
}

type part struct {
	io.Reader
	s *store
}

func (p *part) Close() error { p.s.open--; return nil }

func pod(images ...string) *corev1.Pod {
	p := &corev1.Pod{}
	for _, i := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: i})
	}
	return p
}

func TestAPeerGetsTheImagesOfPodsThereAndNoOthers(t *testing.T) {
	s := &store{parts: map[string]string{
		"docker.io/shop/web:dev ": "the manifest", "docker.io/shop/web:dev " + manifest: "the manifest", "docker.io/shop/web:dev " + layer: "a layer",
		"docker.io/shop/web:other ": "another", "docker.io/company/secret:1 ": "secret", "docker.io/company/secret:1 " + foreign: "secret",
		"docker.io/library/init:1 ": "init", "docker.io/library/debug:1 ": "debug", "docker.io/library/data:1 ": "data",
	}}
	g := New(s, someone(t), slog.New(slog.DiscardHandler))
	there := pod("shop/web:dev", "not a name!", "shop/web:dev")
	there.Spec.InitContainers = []corev1.Container{{Image: "init:1"}}
	there.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "debug:1"}}}
	there.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}}}}
	for _, c := range []struct {
		method, path, rng string
		status            int
		body              string
	}{
		{"GET", "shop/web/manifests/dev?ns=docker.io", "", 200, "the manifest"},
		{"HEAD", "shop/web/manifests/dev?ns=docker.io", "", 200, ""},
		{"GET", "shop/web/manifests/" + manifest + "?ns=docker.io", "", 200, "the manifest"},
		{"GET", "shop/web/blobs/" + layer + "?ns=docker.io", "", 200, "a layer"},
		{"GET", "shop/web/blobs/" + layer + "?ns=docker.io", "bytes=2-", 206, "layer"},
		{"GET", "shop/web/blobs/" + layer + "?ns=docker.io", "bytes=7-", 416, ""},
		{"GET", "shop/web/blobs/" + layer + "?ns=docker.io", "bytes=0-3", 400, ""},
		{"GET", "shop/web/blobs/" + layer + "?ns=docker.io", "bytes=-1", 400, ""},
		{"GET", "library/init/manifests/1?ns=docker.io", "", 200, "init"},
		{"GET", "library/debug/manifests/1?ns=docker.io", "", 200, "debug"},
		{"GET", "library/data/manifests/1?ns=docker.io", "", 200, "data"},
		{"GET", "shop/web/manifests/other?ns=docker.io", "", 404, ""}, // it is here, and no pod there has it
		{"GET", "company/secret/manifests/1?ns=docker.io", "", 404, ""},
		{"GET", "shop/web/blobs/" + foreign + "?ns=docker.io", "", 404, ""}, // of another image
		{"GET", "shop/web/manifests/dev?ns=quay.io", "", 404, ""},
		{"GET", "shop/web/manifests/dev", "", 400, ""},
		{"GET", "shop/web/tags/list?ns=docker.io", "", 400, ""},
		{"GET", "shop/web/blobs/dev?ns=docker.io", "", 400, ""},
		{"GET", "shop/web/blobs/sha256:short?ns=docker.io", "", 400, ""},
		{"GET", "manifests/dev?ns=docker.io", "", 400, ""},
		{"GET", "?ns=docker.io", "", 400, ""},
	} {
		r := httptest.NewRequest(c.method, Path+c.path, nil)
		if c.rng != "" {
			r.Header.Set("Range", c.rng)
		}
		w := httptest.NewRecorder()
		g.Serve(w, r, Peer{Name: "bob", Pods: []*corev1.Pod{there}})
		if w.Code != c.status || c.status < 300 && w.Body.String() != c.body {
			t.Errorf("%s %s %s: %d %q", c.method, c.path, c.rng, w.Code, w.Body)
		}
		if c.status < 300 && (w.Header().Get("Docker-Content-Digest") == "" || w.Header().Get("Content-Type") != "application/x") {
			t.Errorf("%s: %v", c.path, w.Header())
		}
	}
	for _, image := range s.asked {
		if strings.Contains(image, "secret") || strings.Contains(image, "other") {
			t.Errorf("the store was asked for %s", image)
		}
	}
	if s.open != 0 {
		t.Errorf("%d parts stay open", s.open)
	}
	w := httptest.NewRecorder()
	g.Serve(w, httptest.NewRequest("GET", Path+"shop/web/manifests/dev?ns=docker.io", nil), Peer{Name: "bob"})
	if w.Code != http.StatusNotFound {
		t.Errorf("without any pod there: %d", w.Code)
	}
}

// TestASlowPeerHoldsUpNobodyElse: one that reads nothing has all of its readings open, and no more.
func TestASlowPeerHoldsUpNobodyElse(t *testing.T) {
	s := &stuck{open: make(chan struct{}, 64)}
	g := New(s, someone(t), slog.New(slog.DiscardHandler))
	there := []*corev1.Pod{pod("shop/web:dev")}
	ask := func(ctx context.Context, peer identity.ID, done chan<- struct{}) {
		g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", Path+"shop/web/manifests/dev?ns=docker.io", nil).WithContext(ctx), Peer{ID: peer, Pods: there})
		done <- struct{}{}
	}
	mallory, bob := someone(t).ID(), someone(t).ID()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 64)
	for range 2 * mostAtOnce {
		go ask(ctx, mallory, done)
	}
	for range mostAtOnce {
		<-s.open
	}
	go ask(ctx, bob, done)
	<-s.open // or the test hangs
	select {
	case <-s.open:
		t.Error("one more than a peer may have")
	default:
	}
	cancel()
	for range 2*mostAtOnce + 1 {
		<-done
	}
}

// stuck gives parts that end with the request alone.
type stuck struct{ open chan struct{} }

func (s *stuck) Open(ctx context.Context, _ images.Part) (images.Description, io.ReadCloser, error) {
	s.open <- struct{}{}
	<-ctx.Done()
	return images.Description{}, nil, ctx.Err()
}

func FuzzAsked(f *testing.F) {
	f.Add("shop/web/manifests/dev?ns=docker.io", "bytes=1-")
	f.Add("a/b/blobs/"+layer+"?ns=x:5000", "")
	f.Fuzz(func(t *testing.T, path, rng string) {
		r, err := http.NewRequest("GET", "http://x"+Path+path, nil)
		if err != nil {
			return
		}
		r.Header.Set("Range", rng)
		q, err := asked(r)
		if err != nil {
			return
		}
		if q.from < 0 || q.repository == "" || q.tag == "" == (q.digest == "") {
			t.Errorf("%q %q: %+v", path, rng, q)
		}
	})
}

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
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/local/images"
)

// two is an image of a manifest and two layers of 100 bytes.
type two struct{}

func (two) Open(_ context.Context, p images.Part) (images.Description, io.ReadCloser, error) {
	d := images.Description{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: p.Digest, Size: 100}
	text := strings.Repeat("x", 100)
	if p.Digest == "" {
		text = `{"config":{"size":10},"layers":[{"size":100},{"size":100},{"size":-5}]}`
		d = images.Description{MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: manifest, Size: int64(len(text))}
	}
	return d, io.NopCloser(strings.NewReader(text[min(p.From, d.Size):])), nil
}

// broken takes some bytes and no more.
type broken struct {
	http.ResponseWriter
	takes int
}

func (b *broken) Write(p []byte) (int, error) {
	if b.takes -= len(p); b.takes < 0 {
		return 0, fmt.Errorf("reset")
	}
	return b.ResponseWriter.Write(p)
}

// What a peer takes is told once when it begins, seen while it goes on, and forgotten after it; no byte counts twice, also when a layer is begun anew.
func TestWhatAPeerTakesIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(two{}, someone(t), slog.New(slog.DiscardHandler))
		var began []string
		there := []*corev1.Pod{pod("shop/web:dev"), pod("shop/db:1"), pod("shop/web:dev", "shop/db:1")}
		ask := func(path, rng string, takes int) {
			r := httptest.NewRequest("GET", Path+"shop/web/"+path+"?ns=docker.io", nil)
			if rng != "" {
				r.Header.Set("Range", rng)
			}
			g.Serve(&broken{httptest.NewRecorder(), takes}, r, Peer{Name: "bob", Pods: there, Begins: func(image string, size int64, pods []*corev1.Pod) {
				began = append(began, fmt.Sprint(image, " ", size, " ", len(pods)))
			}})
		}
		see := func(want ...int64) {
			t.Helper()
			list := g.Transfers()
			if len(list) != len(want)/2 {
				t.Fatalf("%+v", list)
			}
			for i, x := range list {
				if x.Peer != "bob" || x.Image != "docker.io/shop/web:dev" || x.Sent != want[2*i] || x.Size != want[2*i+1] {
					t.Errorf("%+v, want %d of %d", x, want[0], want[1])
				}
			}
			if g.Taking("bob", "shop/web:dev") != (len(want) > 0) || g.Taking("carol", "shop/web:dev") || g.Taking("bob", "shop/db:1") || g.Taking("bob", "not a name!") {
				t.Error("who takes what?")
			}
		}
		see()
		ask("manifests/dev", "", 1000)
		see() // it may have all of it
		ask("blobs/"+layer, "", 1000)
		see(100, 210)
		time.Sleep(5 * time.Second)
		ask("blobs/"+foreign, "", 50)
		see(200, 210) // what was read for it; the rest of a part is a matter of moments
		ask("blobs/"+foreign, "bytes=30-", 1000)
		see(200, 210)
		if rate := g.Transfers()[0].Rate; rate != 40 {
			t.Errorf("%v bytes/s", rate)
		}
		time.Sleep(idle + time.Second)
		see()
		ask("blobs/"+layer, "", 1000)
		see(100, 0)
		if len(began) != 2 || began[0] != "docker.io/shop/web:dev 210 2" || began[1] != "docker.io/shop/web:dev 0 2" {
			t.Errorf("%q", began)
		}
	})
}

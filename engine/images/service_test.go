package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kith.dev/core/api/v1alpha1"
)

// The test program is also the kith-image of these tests: it notes its order beside itself and says what was pulled.
func TestMain(m *testing.M) {
	if dir, ok := strings.CutSuffix(os.Args[0], "/kith-image"); ok {
		var o order
		if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
			panic(err)
		}
		text, _ := json.Marshal(o)
		if err := os.WriteFile(filepath.Join(dir, "order"), text, 0o600); err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "env"), []byte(strings.Join(os.Environ(), "\n")), 0o600); err != nil {
			panic(err)
		}
		if strings.Contains(o.Image, "lan/") {
			fmt.Fprintln(os.Stderr, "lan is in the provider's own network")
			os.Exit(1)
		}
		fmt.Println(o.Image + "@sha256:1")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// containerd's image service, as far as it matters here: it hears of an image some moments after it is there.
type service struct {
	cri.UnimplementedImageServiceServer
	pulled, asked atomic.Int32
}

func (s *service) PullImage(context.Context, *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	s.pulled.Add(1)
	return &cri.PullImageResponse{ImageRef: "by containerd"}, nil
}

func (s *service) ImageStatus(_ context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	if s.asked.Add(1) < 3 {
		return &cri.ImageStatusResponse{}, nil
	}
	return &cri.ImageStatusResponse{Image: &cri.Image{Id: "id of " + r.Image.Image}}, nil
}

func (s *service) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: []*cri.Image{{Id: "a"}}}, nil
}

// world is a gate, what is behind it, and the kubelet in front of it.
type world struct {
	*service
	dir     string
	kubelet cri.ImageServiceClient
}

func newWorld(t *testing.T, annotations func(context.Context, string) (map[string]string, error)) *world {
	dir, err := os.MkdirTemp("", "gate-") // short: it holds unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "kith-image")); err != nil {
		t.Fatal(err)
	}
	w := &world{service: &service{}, dir: dir}
	l, err := net.Listen("unix", filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	containerd := grpc.NewServer()
	cri.RegisterImageServiceServer(containerd, w.service)
	go containerd.Serve(l)
	t.Cleanup(containerd.Stop)

	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	ours, err := Open(Options{Socket: filepath.Join(dir, "g"), Containerd: filepath.Join(dir, "c"), Root: "/data", Program: filepath.Join(dir, "kith-image"), Homes: filepath.Join(dir, "h"), Annotations: annotations},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ours.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "g"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.kubelet = cri.NewImageServiceClient(conn)
	return w
}

func (w *world) pull(t *testing.T, image string, labels map[string]string) (string, error) {
	r, err := w.kubelet.PullImage(t.Context(), &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: image}, Auth: &cri.AuthConfig{Username: "me", Password: "x"},
		SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Namespace: "shop-twin"}, Labels: labels},
	})
	return r.GetImageRef(), err
}

var guest = map[string]string{v1alpha1.LabelConsumer: "abc"}

func said(notes map[string]string, err error) func(context.Context, string) (map[string]string, error) {
	return func(_ context.Context, namespace string) (map[string]string, error) {
		if namespace != "shop-twin" {
			return nil, errors.New("not this namespace")
		}
		return notes, err
	}
}

func TestContainerdPullsNothingForGuests(t *testing.T) {
	w := newWorld(t, said(map[string]string{v1alpha1.AnnotationRegistries: "ghcr.io,http://r.lan:5000,*"}, nil))
	if ref, err := w.pull(t, "a/b:1", guest); err != nil || ref != "a/b:1@sha256:1" || w.asked.Load() < 3 {
		t.Fatalf("%q %v", ref, err)
	}
	text, _ := os.ReadFile(filepath.Join(w.dir, "order"))
	want := fmt.Sprintf(`{"socket":%q,"root":"/data","image":"a/b:1","registries":["ghcr.io","http://r.lan:5000","*"],"auth":{"username":"me","password":"x"}}`, filepath.Join(w.dir, "c"))
	if string(text) != want {
		t.Errorf("the order was %s, want %s", text, want)
	}
	if env, _ := os.ReadFile(filepath.Join(w.dir, "env")); strings.Contains(strings.ToUpper(string(env)), "PROXY") {
		t.Errorf("the company's proxy would reach what it likes: %s", env)
	}
	if _, err := w.pull(t, "lan/x", guest); err == nil || !strings.Contains(err.Error(), "lan is in the provider's own network") {
		t.Errorf("%v", err)
	}
	if n := w.pulled.Load(); n != 0 {
		t.Errorf("containerd pulled %d times", n)
	}
	// Of the owner's own pods it does as ever.
	if ref, err := w.pull(t, "lan/x", map[string]string{"app": "web"}); err != nil || ref != "by containerd" {
		t.Errorf("%q %v", ref, err)
	}
	if r, err := w.kubelet.ListImages(t.Context(), &cri.ListImagesRequest{}); err != nil || len(r.Images) != 1 {
		t.Errorf("%v %v", r, err)
	}
}

func TestWhoDoesNotKnowTheOwnersWordPullsNothing(t *testing.T) {
	for what, c := range map[string]struct {
		notes map[string]string
		err   error
		says  string
	}{
		"the API server is silent": {nil, errors.New("connection refused"), "connection refused"},
		"nothing was said":         {map[string]string{}, nil, "does not say"},
	} {
		w := newWorld(t, said(c.notes, c.err))
		if _, err := w.pull(t, "a/b:1", guest); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(filepath.Join(w.dir, "order")); err == nil || w.pulled.Load() != 0 {
			t.Errorf("%s: it was pulled", what)
		}
	}
	w := newWorld(t, said(map[string]string{v1alpha1.AnnotationRegistries: ""}, nil)) // the internet is denied, nothing is listed
	if _, err := w.pull(t, "a/b:1", guest); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(w.dir, "order")); !strings.Contains(string(text), `"registries":[]`) {
		t.Errorf("the order was %s", text)
	}
}

// TestHomeIsAskedIfItsOwnerLetsAndKithdListens: it is the home of this guest and no other.
func TestHomeIsAskedIfItsOwnerLetsAndKithdListens(t *testing.T) {
	for _, c := range []struct {
		registries string
		listens    bool
		home       string
	}{{"*,@home", true, "/h:/abc"}, {"*,@home", false, ""}, {"*", true, ""}} {
		w := newWorld(t, said(map[string]string{v1alpha1.AnnotationRegistries: c.registries}, nil))
		if c.listens {
			if err := os.WriteFile(filepath.Join(w.dir, "h"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.pull(t, "a/b:1", guest); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(w.dir, "order"))
		if err != nil {
			t.Fatal(err)
		}
		var o order
		if err := json.Unmarshal(text, &o); err != nil || strings.TrimPrefix(o.Home, w.dir) != c.home || !slices.Equal(o.Registries, []string{"*"}) {
			t.Errorf("%+v: %s %v", c, text, err)
		}
	}
}

func TestOnlyRootSpeaksToTheImageService(t *testing.T) {
	w := newWorld(t, said(nil, nil))
	if st, err := os.Stat(filepath.Join(w.dir, "g")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

func TestOneConsumersPullsDoNotHoldUpAnothers(t *testing.T) {
	g := &Service{slots: map[string]chan struct{}{}}
	ctx, cancel := context.WithCancel(t.Context())
	for range most {
		if _, err := g.slot(ctx, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	free, err := g.slot(ctx, "carol")
	if err != nil {
		t.Fatal(err)
	}
	free()
	cancel()
	if _, err := g.slot(ctx, "alice"); err == nil {
		t.Error("one more than she may have")
	}
}

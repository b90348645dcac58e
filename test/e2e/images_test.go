//go:build lab

package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	gcr "github.com/google/go-containerregistry/pkg/name"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// bulk is what the image of the story has beside its program, in bytes: five seconds of its link.
const bulk = 32 << 20

// devImage writes the archive of an image that no registry has, as docker save does, with layers of so many bytes.
func devImage(t *testing.T, name string, layers ...int64) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := images.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "echo.tar"), nil)
	for _, size := range layers {
		var layer v1.Layer
		if err == nil {
			layer, err = random.Layer(size, types.DockerLayer)
		}
		if err == nil {
			image, err = mutate.AppendLayers(image, layer)
		}
	}
	ref, wrong := gcr.NewTag(name)
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	file := filepath.Join(dir, "dev.tar")
	if err := tarball.WriteToFile(file, ref, image); err != nil {
		t.Fatal(err)
	}
	return file
}

// received counts what a laptop's link has taken in so far, in bytes.
func received(t *testing.T, p *lab.Laptop) int64 { return moved(t, p, "rx") }

// moved counts what came in ("rx") or went out ("tx") over a laptop's link so far, in bytes.
func moved(t *testing.T, p *lab.Laptop, way string) int64 {
	t.Helper()
	out, _, err := p.Exec(t.Context(), "cat", "/sys/class/net/eth0/statistics/"+way+"_bytes")
	n, wrong := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	return n
}

// TestAnImageThatOnlyHomeHasRunsAtAPeer: a developer builds an image, loads it on her own laptop, and its pods run at a peer. The link
// breaks in the middle, then home's kithd is killed, and what had come is not sent again.
func TestAnImageThatOnlyHomeHasRunsAtAPeer(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	befriend(t, alice, bob)
	archive, err := os.ReadFile(devImage(t, "shop/web:dev", bulk))
	if err != nil {
		t.Fatal(err)
	}
	load := func(p *lab.Laptop, text []byte, args ...string) (string, error) {
		out, said, err := p.ExecInput(t.Context(), bytes.NewReader(text), append([]string{"kith", "image", "load"}, args...)...)
		return out + said, err
	}
	if said, err := load(alice, archive, "-o", "name"); err != nil || !strings.Contains(said, "shop/web:dev\n") {
		t.Fatalf("%v\n%s", err, said)
	}
	if said, err := load(alice, []byte("no archive"), "-"); err == nil || !strings.Contains(said, "the archive was not loaded") {
		t.Errorf("%v\n%s", err, said)
	}
	t.Log(kith(t, alice, "image", "ls"))
	kith(t, alice, "kubectl", "create", "namespace", "shop") // without any kubeconfig
	kith(t, alice, "offload", "shop")
	pod := func(name, image string) string {
		return strings.Replace(solo(name, "kith-bob"), `"kith.dev/echo:1"`, fmt.Sprintf("%q", image), 1)
	}

	t.Run("over a slow link that breaks", func(t *testing.T) {
		if err := bob.Slow(t.Context(), lab.Link{Rate: 50_000_000}); err != nil {
			t.Fatal(err)
		}
		before := received(t, bob)
		apply(t, alice, pod("first", "shop/web:dev"))
		comes := func(part int64) {
			t.Helper()
			eventually(t, time.Minute, fmt.Sprintf("%d bytes have come", part), func() string {
				if n := received(t, bob) - before; n < part {
					return fmt.Sprintf("%d bytes", n)
				}
				return ""
			})
		}
		comes(bulk / 3)
		if said := kith(t, alice, "status"); !strings.Contains(said, "bob takes shop/web:dev from here: ") {
			t.Errorf("status says nothing of it:\n%s", said)
		}
		if said := kith(t, alice, "why", "-n", "shop", "first"); !strings.Contains(said, "bob takes its image docker.io/shop/web:dev from here") {
			t.Errorf("kith why says nothing of it:\n%s", said)
		}
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		comes(bulk * 2 / 3)
		if err := alice.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		waitReady(t, alice, 1, "-n", "shop")
		n := received(t, bob) - before
		t.Logf("%d bytes came for %d", n, bulk)
		if n > bulk*5/4 { // headers, and what was on its way when the link broke
			t.Errorf("%d bytes came for %d", n, bulk)
		}
		if err := bob.Slow(t.Context(), lab.Link{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("and then at once", func(t *testing.T) {
		before := received(t, bob)
		apply(t, alice, pod("second", "shop/web:dev"))
		waitReady(t, alice, 2, "-n", "shop")
		if n := received(t, bob) - before; n > bulk/4 {
			t.Errorf("%d bytes came once more", n)
		}
	})
	t.Run("the peer keeps it under its digest", func(t *testing.T) {
		if names := kith(t, bob, "image", "ls", "-o", "name"); !strings.Contains(names, "shop/web@sha256:") || strings.Contains(names, "shop/web:dev") {
			t.Error(names)
		}
	})
	t.Run("a second peer takes it from the first", func(t *testing.T) {
		befriend(t, alice, carol)
		before, from := moved(t, alice, "tx"), moved(t, bob, "tx")
		apply(t, alice, strings.ReplaceAll(pod("at-carol", "shop/web:dev"), "kith-bob", "kith-carol"))
		waitReady(t, alice, 3, "-n", "shop")
		if n, by := moved(t, alice, "tx")-before, moved(t, bob, "tx")-from; n > bulk/4 || by < bulk {
			t.Errorf("home sent %d bytes, and the peer that has it %d, of %d", n, by, bulk)
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", "at-carol", "--wait=true")
	})
	t.Run("podman's names", func(t *testing.T) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(archive); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		if said, err := load(alice, packed.Bytes(), "--name", "localhost/web:dev"); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		apply(t, alice, pod("third", "localhost/web:dev"))
		waitReady(t, alice, 3, "-n", "shop")
	})
	t.Run("an owner who takes none from homes", func(t *testing.T) {
		kubectl(t, bob, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"images":{"fromHome":"Deny"}}}`)
		eventually(t, 10*time.Second, "the policy is on the twin namespace", func() string {
			out := kubectl(t, bob, "get", "namespace", "-l", "kith.dev/consumer-name=alice", "-o", `jsonpath={.items[*].metadata.annotations.kith\.dev/registries}`)
			if strings.Contains(out, "@home") {
				return instead(out)
			}
			return ""
		})
		apply(t, alice, pod("fourth", "shop/web:dev"))
		eventually(t, time.Minute, "the pod says that no registry has it", func() string {
			out := kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name=fourth", "-o", "jsonpath={range .items[*]}{.message}{\"\\n\"}{end}")
			if !strings.Contains(out, "Failed to pull image") && !strings.Contains(out, "failed to pull") {
				return instead(out)
			}
			return ""
		})
	})
	t.Run("status names an image that a peer cannot get", func(t *testing.T) {
		eventually(t, time.Minute, "status says so", func() string {
			if said, err := alice.Kith(t.Context(), "status"); err != nil || !strings.Contains(said, "bob cannot get the image shop/web:dev, for which pod shop/fourth waits") {
				return fmt.Sprint(said, err)
			}
			return ""
		})
		kubectl(t, alice, "-n", "shop", "delete", "pod", "fourth", "--wait=false")
	})
	t.Run("kith run", func(t *testing.T) {
		if out, err := alice.Kith(t.Context(), "run", "--at", "bob", "kith.dev/echo:1", "exit", "3", "a last word"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%q %v", out, err)
		}
		if out := kith(t, alice, "run", "--at", "bob", "-e", "WORD=hello", "kith.dev/echo:1", "env"); !strings.Contains(out, "WORD=hello\n") {
			t.Errorf("%q", out)
		}
		if out, err := alice.Kith(t.Context(), "run", "--at", "bob", "none/such:1"); err == nil || !strings.Contains(out+err.Error(), "the command was not run") {
			t.Errorf("%q %v", out, err)
		}
		eventually(t, time.Minute, "nothing is left of it", func() string {
			out, _ := alice.Kith(t.Context(), "kubectl", "-n", "run", "get", "pods", "-o", "name")
			return out
		})
	})
	t.Run("an image is removed", func(t *testing.T) {
		kith(t, alice, "image", "rm", "localhost/web:dev")
		if out, err := alice.Kith(t.Context(), "image", "rm", "localhost/web:dev"); err == nil || !strings.Contains(out+err.Error(), "there is no image") {
			t.Errorf("%s %v", out, err)
		}
	})
}

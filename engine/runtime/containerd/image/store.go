package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// part is what a peer asks for; the same as kith.dev/core/local/images.part.
type part struct {
	Socket string `json:"socket"`
	Image  string `json:"image"`            // its name, as a pod has it
	Digest string `json:"digest,omitempty"` // of a manifest, a configuration or a layer of the image; "": what the name means
	From   int64  `json:"from,omitempty"`   // the first byte that is wanted
	Head   bool   `json:"head,omitempty"`   // none of its bytes are
}

// answer is a line of its own. The bytes come after it, and are the end, unless it says why there are none, or names a file that has them.
type answer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	File      string `json:"file,omitempty"`
	Why       string `json:"why,omitempty"`     // it is not to be had
	Missing   bool   `json:"missing,omitempty"` // because it is not here
}

// readParts answers one order after another, until there are no more: to begin takes longer than an answer.
func readParts(ctx context.Context, in io.Reader, out io.Writer) error {
	var client *containerd.Client
	at := ""
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	for {
		var p part
		if err := read(in, &p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if client == nil || at != p.Socket {
			next, err := dial(p.Socket)
			if err != nil {
				return err
			}
			if client != nil {
				client.Close()
			}
			client, at = next, p.Socket
		}
		a, r, err := describePart(ctx, client, p)
		if err != nil {
			a = answer{Why: err.Error(), Missing: errdefs.IsNotFound(err)}
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
		if r != nil {
			// In large pieces, each of which is a call to containerd; and not by ReadFrom, which has small ones of its own.
			_, err := io.CopyBuffer(struct{ io.Writer }{out}, io.NewSectionReader(r, p.From, max(0, r.Size()-p.From)), make([]byte, 1<<20))
			return errors.Join(err, r.Close())
		}
	}
}

// describePart finds a part of an image; with the reader of its bytes where they are wanted and in no file. A digest that is no part of the image is
// not found: what else is in the store is nobody's business.
func describePart(ctx context.Context, client *containerd.Client, p part) (answer, content.ReaderAt, error) {
	image, err := find(ctx, client, p.Image)
	if err != nil {
		return answer{}, nil, err
	}
	store := client.ContentStore()
	d := image.Target
	if p.Digest == "" {
		// Of an image whose layers are gone, as after unpacking with discard_unpacked_layers, nobody gets a half.
		if whole, _, _, missing, err := images.Check(ctx, store, d, platforms.Default()); err != nil || !whole || len(missing) > 0 {
			return answer{}, nil, errors.Join(fmt.Errorf("image %s is not whole: %w", p.Image, errdefs.ErrNotFound), err)
		}
	} else if d, err = within(ctx, store, d, digest.Digest(p.Digest)); err != nil {
		return answer{}, nil, fmt.Errorf("image %s: %w", p.Image, err)
	}
	r, err := store.ReaderAt(ctx, d)
	if err != nil {
		return answer{}, nil, err
	}
	a := answer{MediaType: d.MediaType, Digest: d.Digest.String(), Size: r.Size()}
	if !p.Head {
		a.File = fileOf(ctx, client, d, r.Size())
	}
	if p.Head || a.File != "" {
		return a, nil, r.Close()
	}
	return a, r, nil
}

// fileOf is where containerd's own store has a part, as it says itself; "" where it keeps its content in another way. Read by calls to containerd a
// part costs several times as much.
func fileOf(ctx context.Context, client *containerd.Client, d ocispec.Descriptor, size int64) string {
	found, err := client.IntrospectionService().Plugins(ctx, "type=="+string(plugins.ContentPlugin)+",id==content")
	if err != nil || len(found.GetPlugins()) != 1 || d.Digest.Validate() != nil {
		return ""
	}
	root := found.GetPlugins()[0].GetExports()["root"]
	path := filepath.Join(root, "blobs", d.Digest.Algorithm().String(), d.Digest.Encoded())
	if is, err := os.Lstat(path); root == "" || err != nil || !is.Mode().IsRegular() || is.Size() != size {
		return ""
	}
	return path
}

// find looks an image up by the name that a pod has for it.
func find(ctx context.Context, client *containerd.Client, name string) (images.Image, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return images.Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	image, err := client.ImageService().Get(ctx, named.String())
	exact, is := named.(reference.Canonical)
	if !errdefs.IsNotFound(err) || !is {
		return image, err
	}
	// Named by a digest it may be here by a tag.
	same, err := client.ImageService().List(ctx, "target.digest=="+exact.Digest().String())
	for _, i := range same {
		if other, err := reference.ParseDockerRef(i.Name); err == nil && other.Name() == named.Name() {
			return i, nil
		}
	}
	return images.Image{}, errors.Join(fmt.Errorf("image %s: %w", named, errdefs.ErrNotFound), err)
}

// mostParts bounds the parts of an image that are looked through for one.
const mostParts = 10_000

// within finds a digest among the manifests, configurations and layers of an image, of all platforms that are here.
func within(ctx context.Context, store content.Provider, image ocispec.Descriptor, wanted digest.Digest) (ocispec.Descriptor, error) {
	for parts := []ocispec.Descriptor{image}; len(parts) > 0 && len(parts) < mostParts; {
		d := parts[0]
		parts = parts[1:]
		if d.Digest == wanted {
			return d, nil
		}
		if !images.IsIndexType(d.MediaType) && !images.IsManifestType(d.MediaType) {
			continue
		}
		children, err := images.Children(ctx, store, d)
		if err != nil && !errdefs.IsNotFound(err) { // of another platform
			return d, err
		}
		parts = append(parts, children...)
	}
	return image, fmt.Errorf("%s is no part of it: %w", wanted, errdefs.ErrNotFound)
}

func (p *part) at() string { return p.Socket }
func (w *what) at() string { return w.Socket }

// begin reads an order and gives a client of the containerd that it is for.
func begin(in io.Reader, order interface{ at() string }) (*containerd.Client, error) {
	if err := read(in, order); err != nil {
		return nil, err
	}
	return dial(order.at())
}

// what is the order of import, list and remove.
type what struct {
	Socket string `json:"socket"`
	Image  string `json:"image,omitempty"` // import: the name for an image whose archive gives none
}

// entry is an image; the same as kith.dev/core/api.Image.
type entry struct {
	Name    string    `json:"name"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"` // bytes, as they would be sent
	Created time.Time `json:"created"`
}

// load takes all images of an archive in, unpacks them, and lists them.
func load(ctx context.Context, in io.Reader, out io.Writer) error {
	var w what
	client, err := begin(in, &w)
	if err != nil {
		return err
	}
	defer client.Close()
	var wanted reference.Named
	if w.Image != "" {
		if wanted, err = reference.ParseDockerRef(w.Image); err != nil {
			return fmt.Errorf("image %q: %w", w.Image, err)
		}
	}
	ctx, done, err := client.WithLease(ctx) // an archive whose images have no names leaves nothing
	if err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	defer done(ctx)
	opts := []containerd.ImportOpt{containerd.WithImageRefTranslator(named), containerd.WithSkipMissing()}
	all := 0
	if wanted != nil {
		opts = append(opts, containerd.WithDigestRef(func(digest.Digest) string { all++; return wanted.String() }))
	}
	archive, err := compression.DecompressStream(in)
	if err != nil {
		return fmt.Errorf("the archive: %w", err)
	}
	defer archive.Close()
	found, err := client.Import(ctx, archive, opts...)
	switch {
	case err != nil:
		return fmt.Errorf("the archive: %w", err)
	case all > 1:
		return errors.Join(fmt.Errorf("the archive has %d images, and one name was given", all), client.ImageService().Delete(ctx, wanted.String()))
	case len(found) == 0:
		return errors.New("the archive has no image with a name: give one (--name)")
	}
	var entries []entry
	for _, i := range found {
		image := containerd.NewImage(client, i)
		if err := image.Unpack(ctx, "overlayfs"); err != nil {
			return fmt.Errorf("unpack %s: %w", i.Name, err)
		}
		entries = append(entries, describe(ctx, client, i))
	}
	return json.NewEncoder(out).Encode(entries)
}

// named makes a name as pods have it of what an archive says, which is a tag alone in some. Those have none.
func named(ref string) string {
	if !strings.ContainsAny(ref, "/:") {
		return ""
	}
	n, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ""
	}
	return n.String()
}

func describe(ctx context.Context, client *containerd.Client, i images.Image) entry {
	size, _ := i.Size(ctx, client.ContentStore(), platforms.Default()) // 0 where a part is missing
	return entry{i.Name, i.Target.Digest.String(), size, i.CreatedAt}
}

// list writes what images there are by name. The kubelet's own records, under the digest of a configuration, are none.
func list(ctx context.Context, in io.Reader, out io.Writer) error {
	var w what
	client, err := begin(in, &w)
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := client.ImageService().List(ctx)
	if err != nil {
		return err
	}
	entries := []entry{}
	for _, i := range all {
		if !strings.HasPrefix(i.Name, "sha256:") {
			entries = append(entries, describe(ctx, client, i))
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return json.NewEncoder(out).Encode(entries)
}

// remove takes a name away, and what no other name has of the image.
func remove(ctx context.Context, in io.Reader, _ io.Writer) error {
	var w what
	client, err := begin(in, &w)
	if err != nil {
		return err
	}
	defer client.Close()
	image, err := find(ctx, client, w.Image)
	if err != nil {
		return err
	}
	service := client.ImageService()
	// The image service of the CRI keeps a record under the digest of the configuration as well: without it gone, all stays.
	if same, err := service.List(ctx, "target.digest=="+image.Target.Digest.String()); err == nil && len(same) <= 2 {
		for _, i := range same {
			if strings.HasPrefix(i.Name, "sha256:") {
				_ = service.Delete(ctx, i.Name)
			}
		}
	}
	return service.Delete(ctx, image.Name, images.SynchronousDelete())
}

// Package images gives a peer the images of this cluster's pods that are bound to it: a pull of the OCI distribution specification 1.1, over
// the connection of the two. A peer whose guest needs an image asks here first; what is not here it asks of the registry.
//
// It must never give a part of an image that no pod of this cluster names at that peer, nor say whether there is one.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/local/images"
)

// Path is where a peer asks: Path + "<repository>/manifests/<tag or digest>?ns=<registry>", or blobs/<digest>.
const Path = "/kith/v2/images/"

// stall is how long a peer may take for the next part of an answer.
const stall = 30 * time.Second

// mostAtOnce bounds the parts that are read at once for one peer: each is a process. Who reads slowly holds up nobody else.
const mostAtOnce = 4

// Store has the images of this laptop.
type Store interface {
	// Open gives a part and its bytes; the error is images.ErrNotFound when it is not here.
	Open(ctx context.Context, p images.Part) (images.Description, io.ReadCloser, error)
}

// Giver answers peers.
type Giver struct {
	store Store
	slots sync.Map // by peer, a chan struct{}
	taken transfers
	log   *slog.Logger
}

// Peer is one that asks.
type Peer struct {
	Name string
	Pods []*corev1.Pod // those that are bound to it
	// Begins is told when it begins to take an image, with the pods that name it. size is 0 when it is not known.
	Begins func(image string, size int64, pods []*corev1.Pod)
}

// New makes a Giver.
func New(store Store, log *slog.Logger) *Giver {
	return &Giver{store: store, log: log}
}

// Serve answers a peer.
func (g *Giver) Serve(w http.ResponseWriter, r *http.Request, peer Peer) {
	parts, err := asked(r)
	if err != nil {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeBadRequest, Message: err.Error()})
		return
	}
	of, _ := g.slots.LoadOrStore(peer.Name, make(chan struct{}, mostAtOnce))
	slots := of.(chan struct{})
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-r.Context().Done():
		return
	}
	for _, name := range named(peer.Pods) {
		part, ok := parts.of(name)
		if !ok {
			continue
		}
		d, body, err := g.store.Open(r.Context(), part)
		if errors.Is(err, images.ErrNotFound) {
			continue // another pod's image of that name may have it
		}
		if err != nil {
			g.log.Warn("image not read for a peer", "image", name.String(), "peer", peer.Name, "err", err)
			peering.WriteProblem(w, &peering.Problem{Code: peering.CodeInternal, Message: "the image cannot be read"})
			return
		}
		defer body.Close()
		began := time.Now()
		n, err := g.give(w, peer, d, part, body)
		g.log.Debug("image part for a peer", "image", name.String(), "digest", d.Digest, "peer", peer.Name, "bytes", n, "took", time.Since(began).Round(time.Millisecond), "err", err)
		return
	}
	peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "no pod there has such an image, or it is not here"})
}

// give answers with a part of an image, and notes that it is taken.
func (g *Giver) give(w http.ResponseWriter, peer Peer, d images.Description, p images.Part, body io.Reader) (int64, error) {
	if p.Head {
		return write(w, d, p, body)
	}
	x := g.taken.begin(peer.Name, p.Image, time.Now())
	defer g.taken.end(x)
	if !isManifest(d.MediaType) && p.From < d.Size {
		if size, first := g.taken.first(x); first && peer.Begins != nil {
			peer.Begins(p.Image, size, naming(peer.Pods, p.Image))
		}
	}
	return write(w, d, p, g.taken.watched(x, d, p.From, body))
}

// Transfers are the images that peers take at this moment.
func (g *Giver) Transfers() []Transfer { return g.taken.list(time.Now()) }

// Taking reports whether a peer takes an image, as a pod names it, at this moment.
func (g *Giver) Taking(peer, image string) bool {
	name, err := reference.ParseDockerRef(image)
	return err == nil && slices.ContainsFunc(g.Transfers(), func(t Transfer) bool { return t.Peer == peer && t.Image == name.String() })
}

// naming are the pods that name an image.
func naming(pods []*corev1.Pod, image string) (list []*corev1.Pod) {
	for _, pod := range pods {
		if slices.ContainsFunc(named([]*corev1.Pod{pod}), func(name reference.Named) bool { return name.String() == image }) {
			list = append(list, pod)
		}
	}
	return list
}

// question is what a request is for.
type question struct {
	repository string // with the registry, as reference.Named has it
	tag        string // or
	digest     string
	from       int64
	head       bool
}

// asked reads a request.
func asked(r *http.Request) (q question, err error) {
	rest := strings.TrimPrefix(r.URL.Path, Path)
	parts := strings.Split(rest, "/")
	if len(parts) < 3 {
		return q, fmt.Errorf("path %q: want <repository>/manifests/<reference> or <repository>/blobs/<digest>", rest)
	}
	kind, ref := parts[len(parts)-2], parts[len(parts)-1]
	named, err := reference.WithName(r.URL.Query().Get("ns") + "/" + strings.Join(parts[:len(parts)-2], "/"))
	if err != nil {
		return q, fmt.Errorf("repository: %w", err)
	}
	q.repository, q.head = named.Name(), r.Method == http.MethodHead
	switch {
	case strings.Contains(ref, ":") && (kind == "manifests" || kind == "blobs"):
		if !reference.DigestRegexp.MatchString(ref) {
			return q, fmt.Errorf("%q is no digest", ref)
		}
		q.digest = ref
	case kind == "manifests":
		q.tag = ref
	default:
		return q, fmt.Errorf("path %q: want manifests or blobs", rest)
	}
	if from, ranged := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ranged {
		first, last, _ := strings.Cut(from, "-")
		if q.from, err = strconv.ParseInt(first, 10, 64); err != nil || q.from < 0 || last != "" {
			return q, fmt.Errorf("range %q: want bytes=N-", from)
		}
	}
	return q, nil
}

// of says which part of an image is asked for, if any can be.
func (q question) of(name reference.Named) (images.Part, bool) {
	p := images.Part{Image: name.String(), Digest: q.digest, From: q.from, Head: q.head}
	if name.Name() != q.repository {
		return p, false
	}
	tagged, is := name.(reference.Tagged)
	return p, q.digest != "" || is && tagged.Tag() == q.tag
}

// named are the images of pods, each once.
func named(pods []*corev1.Pod) (names []reference.Named) {
	seen := map[string]bool{}
	add := func(image string) {
		name, err := reference.ParseDockerRef(image)
		if err != nil || seen[name.String()] {
			return
		}
		seen[name.String()] = true
		names = append(names, name)
	}
	for _, pod := range pods {
		for _, c := range pod.Spec.InitContainers {
			add(c.Image)
		}
		for _, c := range pod.Spec.Containers {
			add(c.Image)
		}
		for _, c := range pod.Spec.EphemeralContainers {
			add(c.Image)
		}
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				add(v.Image.Reference)
			}
		}
	}
	return names
}

// write answers with a part, or with its end.
func write(w http.ResponseWriter, d images.Description, p images.Part, body io.Reader) (int64, error) {
	h := w.Header()
	h.Set("Content-Type", d.MediaType)
	h.Set("Docker-Content-Digest", d.Digest)
	h.Set("Content-Length", strconv.FormatInt(max(0, d.Size-p.From), 10))
	status := http.StatusOK
	if p.From > 0 {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", p.From, d.Size-1, d.Size))
		status = http.StatusPartialContent
	}
	if p.From >= d.Size {
		h.Set("Content-Length", "0")
		status = http.StatusRequestedRangeNotSatisfiable
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(stall))
	w.WriteHeader(status)
	if p.Head || p.From >= d.Size {
		return 0, nil
	}
	return io.Copy(&patient{w, rc}, body)
}

// patient moves the deadline on with each part that the peer takes.
type patient struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(time.Now().Add(stall))
	return p.ResponseWriter.Write(b)
}

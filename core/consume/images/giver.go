// Package images gives a peer the images of this cluster's pods that are bound to it: a pull of the OCI distribution specification 1.1, over
// the connection of the two. A peer whose guest needs an image asks here first; what is not here it asks of the registry. For a layer it may be sent
// to another peer that has it, with a ticket.
//
// It must never give a part of an image that no pod of this cluster names at that peer, nor say whether there is one; nor what a cluster has to
// anybody without the ticket of the home whose image it is.
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
	"k8s.io/apimachinery/pkg/util/cache"

	"kith.dev/core/agree/peering"
	"kith.dev/core/local/images"
	"kith.dev/core/trust/identity"
)

// Path is where a peer asks: Path + "<repository>/manifests/<tag or digest>?ns=<registry>", or blobs/<digest>.
const Path = "/kith/v2/images/"

// stall is how long a peer may take for the next part of an answer.
const stall = 30 * time.Second

// mostAtOnce bounds the parts that are read at once for one peer. Who reads slowly holds up nobody else.
const mostAtOnce = 4

// Store has the images of this laptop.
type Store interface {
	// Open gives a part and its bytes; the error is images.ErrNotFound when it is not here.
	Open(ctx context.Context, p images.Part) (images.Description, io.ReadCloser, error)
}

// Giver answers peers.
type Giver struct {
	store Store
	me    *identity.Identity
	slots sync.Map // by peer, a chan struct{}
	taken transfers
	sent  *cache.Expiring // elsewhere, by ID of the peer and digest: once
	log   *slog.Logger
}

// Peer is one that asks.
type Peer struct {
	Name string
	ID   identity.ID
	Pods []*corev1.Pod // those that are bound to it
	// Begins is told when it begins to take an image, with the pods that name it. size is 0 when it is not known.
	Begins func(image string, size int64, pods []*corev1.Pod)
	// Holder is another peer, where pods of this cluster run from an image, and how that is named there, by its digest; false: there is none.
	Holder func(image string) (identity.ID, string, bool)
}

// New makes a Giver for the cluster whose identity me is.
func New(store Store, me *identity.Identity, log *slog.Logger) *Giver {
	return &Giver{store: store, me: me, sent: cache.NewExpiring(), log: log}
}

// Serve answers a peer.
func (g *Giver) Serve(w http.ResponseWriter, r *http.Request, peer Peer) {
	parts, err := asked(r)
	if err != nil {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeBadRequest, Message: err.Error()})
		return
	}
	free, ok := g.slot(w, r, peer.ID)
	if !ok {
		return
	}
	defer free()
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
		if r.Header.Get(HeaderElsewhere) != "" && g.elsewhere(w, peer, d, part) {
			return
		}
		began := time.Now()
		n, err := g.give(w, peer, d, part, body)
		g.log.Debug("image part for a peer", "image", name.String(), "digest", d.Digest, "peer", peer.Name, "bytes", n, "took", time.Since(began).Round(time.Millisecond), "err", err)
		return
	}
	peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "no pod there has such an image, or it is not here"})
}

// slot waits until one more part may be read for a peer; false: it gave up.
func (g *Giver) slot(w http.ResponseWriter, r *http.Request, of identity.ID) (free func(), ok bool) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // HTTP/1.1 leaves that of the part before
	x, _ := g.slots.LoadOrStore(of, make(chan struct{}, mostAtOnce))
	slots := x.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	case <-r.Context().Done():
		return nil, false
	}
}

const (
	// worth is what a part must have left for it to be worth a way of its own, in bytes.
	worth = 1 << 20
	// once is how long a peer that was sent elsewhere for a part gets it here when it asks again: elsewhere it did not get it.
	once = time.Hour
)

// elsewhere sends a peer to another that has the part already, if there is one.
func (g *Giver) elsewhere(w http.ResponseWriter, peer Peer, d images.Description, p images.Part) bool {
	if p.Head || isManifest(d.MediaType) || d.Size-p.From < worth || peer.Holder == nil {
		return false
	}
	key := [2]string{peer.ID.String(), d.Digest}
	if _, was := g.sent.Get(key); was {
		return false
	}
	holder, image, ok := peer.Holder(p.Image)
	if !ok {
		return false
	}
	ticket, err := Ticket{Holder: holder, Taker: peer.ID, Image: image, Digest: d.Digest, Until: time.Now().Add(lasts)}.Sign(g.me)
	if err != nil {
		return false
	}
	g.sent.Set(key, true, once)
	g.log.Info("a peer takes a part of an image from another", "image", p.Image, "digest", d.Digest, "peer", peer.Name, "from", holder.String())
	w.Header().Set(HeaderTicket, ticket)
	w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}

// Hand answers a peer of another home with a part of that home's image, which is here under its digest. limited bounds how fast; nil: not at all.
func (g *Giver) Hand(w http.ResponseWriter, r *http.Request, taker identity.ID, image, digest string, limited func(io.ReadCloser) io.ReadCloser) {
	from, err := fromOf(r)
	if err != nil {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeBadRequest, Message: err.Error()})
		return
	}
	free, ok := g.slot(w, r, taker)
	if !ok {
		return
	}
	defer free()
	p := images.Part{Image: image, Digest: digest, From: from}
	d, body, err := g.store.Open(r.Context(), p)
	if err != nil {
		if !errors.Is(err, images.ErrNotFound) {
			g.log.Warn("image not read for a peer of its home", "image", image, "peer", taker.String(), "err", err)
		}
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "the image is not here"})
		return
	}
	if limited != nil {
		body = limited(body)
	}
	defer body.Close()
	began := time.Now()
	n, err := write(w, d, p, body)
	g.log.Info("image part for a peer of its home", "image", image, "digest", digest, "peer", taker.String(), "bytes", n, "took", time.Since(began).Round(time.Millisecond), "err", err)
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

// TransferTo is the transfer of an image of a pod to the peer that it is bound to; false: none goes on.
func (g *Giver) TransferTo(peer string, pod *corev1.Pod) (Transfer, bool) {
	for _, t := range g.Transfers() {
		if t.Peer == peer && len(naming([]*corev1.Pod{pod}, t.Image)) > 0 {
			return t, true
		}
	}
	return Transfer{}, false
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
	q.from, err = fromOf(r)
	return q, err
}

// fromOf is the first byte that a request asks for.
func fromOf(r *http.Request) (first int64, err error) {
	from, ranged := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ranged {
		return 0, nil
	}
	begin, last, _ := strings.Cut(from, "-")
	if first, err = strconv.ParseInt(begin, 10, 64); err != nil || first < 0 || last != "" {
		return 0, fmt.Errorf("range %q: want bytes=N-", from)
	}
	return first, nil
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
	return io.CopyBuffer(&patient{w, rc}, body, make([]byte, piece))
}

// piece is what is read at once: with less, the deadline is most of the work.
const piece = 128 << 10

// patient moves the deadline on with each part that the peer takes.
type patient struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(time.Now().Add(stall))
	return p.ResponseWriter.Write(b)
}

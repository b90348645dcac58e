package images

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"kith.dev/core/local/images"
)

const (
	// idle is how long after its last byte an image still counts as being taken: a peer asks for the parts one after another.
	idle = 10 * time.Second
	// mostParts bounds what is kept of one image.
	mostParts = 1000
	// mostRead bounds a manifest that is looked into for the size of its image.
	mostRead = 4 << 20
)

// Transfer is an image that a peer takes from here.
type Transfer struct {
	Peer, Image string // the image as pods name it, with its registry
	Size        int64  // bytes of all layers and the configuration; 0: not known
	Sent        int64  // bytes of them that went out, each once
	Began       time.Time
	Rate        float64 // bytes per second since then
}

// transfers are those of now and of a moment ago.
type transfers struct {
	mu  sync.Mutex
	all map[[2]string]*transfer // by peer and image
}

type transfer struct {
	size        int64
	sent        map[string]int64 // by digest, up to where
	began, last time.Time
	open        int
	told        bool
}

// begin counts a part that is being sent; end must follow.
func (t *transfers) begin(peer, image string, now time.Time) *transfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, old := range t.all {
		if old.open == 0 && now.Sub(old.last) > idle {
			delete(t.all, key)
		}
	}
	key := [2]string{peer, image}
	x := t.all[key]
	if x == nil {
		x = &transfer{sent: map[string]int64{}, began: now}
		if t.all == nil {
			t.all = map[[2]string]*transfer{}
		}
		t.all[key] = x
	}
	x.open, x.last = x.open+1, now
	return x
}

// first reports, once, that the image was not being taken before, and its size if that is known.
func (t *transfers) first(x *transfer) (size int64, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, x.told = !x.told, true
	return x.size, first
}

func (t *transfers) end(x *transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.open, x.last = x.open-1, time.Now()
}

// at notes how far a layer or configuration went out.
func (t *transfers) at(x *transfer, digest string, to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, has := x.sent[digest]; to > before || !has && len(x.sent) < mostParts {
		x.sent[digest] = to
	}
}

// list gives those of now, by peer and image.
func (t *transfers) list(now time.Time) (list []Transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, x := range t.all {
		if len(x.sent) == 0 || x.open == 0 && now.Sub(x.last) > idle {
			continue
		}
		one := Transfer{Peer: key[0], Image: key[1], Size: x.size, Began: x.began}
		for _, n := range x.sent {
			one.Sent += n
		}
		if x.open == 0 && x.size > 0 && one.Sent >= x.size {
			continue
		}
		one.Rate = float64(one.Sent) / max(now.Sub(x.began).Seconds(), 1)
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Transfer) int {
		return strings.Compare(a.Peer+" "+a.Image, b.Peer+" "+b.Image)
	})
	return list
}

// watched passes the bytes of a part on, and notes them: those of a manifest to learn the size of its image, else how many there were.
func (t *transfers) watched(x *transfer, d images.Description, from int64, body io.Reader) io.Reader {
	if isManifest(d.MediaType) {
		return &reading{Reader: body, most: mostRead, done: func(text []byte) {
			if size := sizeOf(text); size > 0 {
				t.mu.Lock()
				x.size = size
				t.mu.Unlock()
			}
		}}
	}
	return &counting{body, from, func(to int64) { t.at(x, d.Digest, to) }}
}

// isManifest reports whether a part says what an image consists of, in the OCI's words or Docker's.
func isManifest(mediaType string) bool {
	return mediaType == "application/vnd.oci.image.manifest.v1+json" || mediaType == "application/vnd.docker.distribution.manifest.v2+json"
}

// sizeOf is the size of the image that a manifest describes; 0 when it says none.
func sizeOf(text []byte) (size int64) {
	type part struct {
		Size int64 `json:"size"`
	}
	var m struct {
		Config part   `json:"config"`
		Layers []part `json:"layers"`
	}
	if json.Unmarshal(text, &m) != nil {
		return 0
	}
	for _, p := range append(m.Layers, m.Config) {
		size += max(0, p.Size)
	}
	return size
}

// counting tells after each read up to where it came.
type counting struct {
	io.Reader
	to   int64
	note func(to int64)
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.to += int64(n)
	c.note(c.to)
	return n, err
}

// reading keeps what is read and gives it on at the end.
type reading struct {
	io.Reader
	most int
	kept bytes.Buffer
	done func([]byte)
}

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.kept.Len()+n <= r.most {
		r.kept.Write(b[:n])
	}
	if err == io.EOF {
		r.done(r.kept.Bytes())
	}
	return n, err
}

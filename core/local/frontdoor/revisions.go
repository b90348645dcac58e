package frontdoor

import (
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"kith.dev/core/local/apiproxy"
)

// A client lists once, then watches from the resource version of that list. Resource versions are plain numbers in both clusters.
// After a switch of clusters a client sees only that its watch ended, and resumes with a version of the former cluster. The new API
// server accepts it: a smaller number as its own past; for a greater one it waits. Either way the client would keep objects of the
// former cluster beside those of the new one.
//
// So a watch from a version, and a continued list, whose token holds one, passes only in two cases: the front door has given out
// exactly this version, of this resource, to this user's program, since the switch; or it resumes, on the same connection, a watch
// that passed (whose later versions came in events, which are not read here). All others get 410 Gone as an API server sends it, and
// clients then list again. When in doubt it refuses: one refusal too many costs a list, one too few leaves a client with wrong data.
//
// One gap remains: a version of the former cluster that is by chance equal to one that the same program got from the new cluster for
// the same resource.

// Bounds of what is remembered: 30 kB per switch, and less per connection.
const (
	booked   = 1024 // versions of lists, and as many of single objects
	followed = 256  // watches that a connection may resume
)

// book holds the resource versions given out last. Make it with newBook. Safe for concurrent use.
type book struct {
	seed maphash.Seed

	mu             sync.Mutex
	lists, objects ring // separate, so that a client that creates a thousand objects does not displace a list about to be watched
}

// ring holds what was added last.
type ring struct {
	order []uint64
	next  int
	has   map[uint64]int // how often in order
}

func newBook() book {
	return book{seed: maphash.MakeSeed(), lists: ring{has: map[uint64]int{}}, objects: ring{has: map[uint64]int{}}}
}

func (r *ring) add(entry uint64) {
	if len(r.order) < booked {
		r.order = append(r.order, entry)
	} else {
		old := r.order[r.next]
		if r.has[old]--; r.has[old] <= 0 {
			delete(r.has, old)
		}
		r.order[r.next] = entry
		r.next = (r.next + 1) % booked
	}
	r.has[entry]++
}

// reader is a program of a user, asking about a resource.
type reader struct{ user, program, resource string }

func readerOf(user User, r *http.Request, info apiproxy.Info) reader {
	return reader{user.Name + " " + strconv.Itoa(user.UID), r.UserAgent(), info.Group + "/" + info.Resource}
}

// place identifies a watch, so that the next one of the same reader for the same objects may resume it.
type place struct {
	reader
	path, labels, fields string
}

// placeOf keeps no text: a selector may be long.
func (g *generation) placeOf(who reader, r *http.Request) uint64 {
	query := r.URL.Query()
	return maphash.Comparable(g.book.seed, place{who, r.URL.Path, query.Get("labelSelector"), query.Get("fieldSelector")})
}

// unread is the version of an answer in which none was found; whoever got it may name any, once.
const unread = ""

func (b *book) entry(of reader, version string) uint64 {
	return maphash.Comparable(b.seed, struct {
		reader
		version string
	}{of, version})
}

// gave notes that a version was given out, with a list or with a single object.
func (b *book) gave(to reader, version string, list bool) {
	entry := b.entry(to, version)
	b.mu.Lock()
	defer b.mu.Unlock()
	if list {
		b.lists.add(entry)
	} else if version != unread {
		b.objects.add(entry)
	}
}

// given reports whether it was.
func (b *book) given(to reader, version string) bool {
	entry, wildcard := b.entry(to, version), b.entry(to, unread)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lists.has[entry] > 0 || b.objects.has[entry] > 0 {
		return true
	}
	if b.lists.has[wildcard] > 0 {
		delete(b.lists.has, wildcard)
		return true
	}
	return false
}

// lineage are the watches that have ended on one connection in one generation: as many may go on. Safe for concurrent use.
type lineage struct {
	mu    sync.Mutex
	of    *generation
	ended map[uint64]int // by place
}

// end notes that a watch has ended. It is called before the client can know.
func (l *lineage) end(g *generation, where uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of != g || len(l.ended) >= followed {
		l.of, l.ended = g, map[uint64]int{}
	}
	l.ended[where]++
}

// goOn reports whether a watch may be the continuation of one that has ended, and takes that one's place.
func (l *lineage) goOn(g *generation, where uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of != g || l.ended[where] == 0 {
		return false
	}
	if l.ended[where]--; l.ended[where] == 0 {
		delete(l.ended, where)
	}
	return true
}

// stale reports whether a request names what this generation has not given out.
func (g *generation) stale(s *session, who reader, r *http.Request, info apiproxy.Info, watch bool) bool {
	if !watch && !info.List {
		return false
	}
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	if token := query.Get("continue"); token != "" && !watch {
		if version = versionOf(token); version == "" {
			return false // not Kubernetes' own kind: whoever made it knows it, and nobody else
		}
	}
	if version == "" || version == "0" || g.book.given(who, version) {
		return false
	}
	return !watch || !s.lineage.goOn(g, g.placeOf(who, r))
}

// versionOf is the version in the token of a list's next page; "" if it is of another kind.
// Source: k8s.io/apiserver/pkg/storage/continue.go.
func versionOf(token string) string {
	var in struct {
		APIVersion      string `json:"v"`
		ResourceVersion int64  `json:"rv"`
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil || json.Unmarshal(text, &in) != nil || in.APIVersion == "" {
		return ""
	}
	return strconv.FormatInt(in.ResourceVersion, 10)
}

const tooOld = "too old resource version: this laptop's API leads to another cluster since, or another kithd; list again"

// refuseStale says 410 Gone as API servers do: to a watch with an event, in a stream that began, since programs that
// try again after any other answer (RetryWatcher of client-go) understand only that.
func refuseStale(w http.ResponseWriter, r *http.Request, watch bool) {
	if !watch || r.Header.Get("Upgrade") != "" {
		apiproxy.Refuse(w, http.StatusGone, tooOld)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": apiproxy.Failure(http.StatusGone, tooOld)}) // the caller is gone when this fails
}

// readable reports whether an answer to this is looked into for its version.
func readable(r *http.Request, info apiproxy.Info, watch bool) bool {
	switch {
	case info.Resource == "" || info.Stream || watch || info.Subresource != "" && info.Subresource != "status":
		return false
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		return !isDry(r.URL)
	}
	return r.Method == http.MethodGet
}

func isDry(u *url.URL) bool { return strings.Contains(u.RawQuery, "dryRun") }

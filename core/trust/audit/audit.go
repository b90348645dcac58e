// Package audit is the record of refusals: who was refused what at which door, and why. Every door that peers, guests or
// users of this machine come to records here what it refused. A refusal is always counted. It is logged at a limited rate, so that
// nobody can fill the disk, and the owner is notified of somebody who is refused again and again.
//
// It decides nothing, keeps nothing of a request but its log line, and never blocks.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"kith.dev/core/trust/wire"
)

// Door is where somebody was refused.
type Door string

// The doors.
const (
	PeerAPI Door = "peer-api" // TCP 6450, any Kith key
	Kube    Door = "kube"     // behind it: this cluster's API server, for consumers
	Company Door = "company"  // behind the first: this cluster's API server, for users of laptops that it runs
	Guests  Door = "guests"   // pods and namespaces that consumers want here
	Kubelet Door = "kubelet"  // of virtual nodes
	Socket  Door = "socket"   // the local API
	Front   Door = "front"    // the Kubernetes API for users of this machine
	Page    Door = "page"     // what browsers of this machine show (kith web)
)

// Reason is why somebody was refused: of each door one of a closed set of words, since refusals are counted by it.
type Reason string

// Refusal is one. What and Why may hold what strangers sent: they are made fit to be shown.
type Refusal struct {
	Door   Door
	Reason Reason
	ID     string         // of a cluster whose key is proven (identity.ID.String), else ""
	Addr   netip.AddrPort // whence, when it came by the network
	User   string         // who, when it came from this machine
	What   string         // method and path, or which pod
	Why    string
	Tell   bool // notify the owner at once; the caller must set it seldom
	Usual  bool // honest parties meet it too: the owner is not notified
}

// Options are what a Log may be given; all may be nil.
type Options struct {
	Named func(id string) string         // the name of a Peer, "" for a stranger
	Count func(door Door, reason Reason) // of every refusal
	Tell  func(peer, id, message string) // notifies the owner of somebody who was refused often; peer is "" for a stranger
}

// What reaches the log, and the owner.
const (
	linesBurst    = 10               // lines about one subject at once
	linesPer      = 6 * time.Second  // then at most one in this time
	strangerBurst = 20               // lines about all strangers together at once
	strangersPer  = time.Second / 2  // then at most one in this time
	sameAgain     = time.Minute      // the same line about a subject is not written again before
	often         = 10               // after so many refusals within sameAgain the owner is notified
	tellAgain     = 10 * time.Minute // at most once in this time about one subject
	tellPer       = time.Minute      // and at most once in this time in all
	maxSubjects   = 1024
	maxLines      = 64  // of one subject that are remembered
	maxText       = 400 // bytes of what and why
)

// Log is the record. It is safe for concurrent use; make it with New.
type Log struct {
	log     *slog.Logger
	options Options

	mu        sync.Mutex
	subjects  *lru.Cache // of *subject, by who it is
	strangers *rate.Limiter
	told      *rate.Limiter
}

// subject is one who was refused: a cluster, an address, a user.
type subject struct {
	lines    *rate.Limiter
	last     map[string]time.Time // when a line was written last
	unlogged int
	since    time.Time // when count began
	count    int
	told     time.Time
}

// New makes a Log that writes to log.
func New(log *slog.Logger, options Options) *Log {
	return &Log{
		log: log, options: options, subjects: lru.New(maxSubjects),
		strangers: rate.NewLimiter(rate.Every(strangersPer), strangerBurst), told: rate.NewLimiter(rate.Every(tellPer), 1),
	}
}

// Note records a refusal; a nil Log forgets it.
func (l *Log) Note(r Refusal) {
	if l == nil {
		return
	}
	if l.options.Count != nil {
		l.options.Count(r.Door, r.Reason)
	}
	r.What, r.Why = wire.Line(r.What, maxText), wire.Line(r.Why, maxText)
	peer := ""
	if r.ID != "" && l.options.Named != nil {
		peer = l.options.Named(r.ID)
	}
	now := time.Now()
	l.mu.Lock()
	s := l.of(r)
	write, unlogged := l.write(s, r, peer == "" && r.User == "", now)
	tell := r.ID != "" && !r.Usual && l.tell(s, now)
	l.mu.Unlock()
	if write {
		l.print(r, peer, unlogged)
	}
	if r.Tell && l.options.Tell != nil {
		l.options.Tell(peer, r.ID, fmt.Sprintf("refused %s: %s", r.What, r.Why))
	} else if tell && l.options.Tell != nil {
		l.options.Tell(peer, r.ID, fmt.Sprintf("refused %d times within a minute, last %s: %s", often, r.What, r.Why))
	}
}

// of finds or makes the subject. If there are too many, the one refused longest ago is dropped.
func (l *Log) of(r Refusal) *subject {
	key := cmp.Or(r.ID, r.User, r.Addr.Addr().String())
	if known, ok := l.subjects.Get(key); ok {
		return known.(*subject)
	}
	s := &subject{lines: rate.NewLimiter(rate.Every(linesPer), linesBurst), last: map[string]time.Time{}}
	l.subjects.Add(key, s)
	return s
}

// write says whether the refusal gets a line, and how many of the subject had none since the last.
func (l *Log) write(s *subject, r Refusal, stranger bool, now time.Time) (bool, int) {
	text := string(r.Door) + "\x00" + r.What + "\x00" + r.Why
	if last, ok := s.last[text]; ok && now.Sub(last) < sameAgain || !s.lines.AllowN(now, 1) || stranger && !l.strangers.AllowN(now, 1) {
		s.unlogged++
		return false, 0
	}
	if len(s.last) >= maxLines {
		clear(s.last)
	}
	s.last[text] = now
	unlogged := s.unlogged
	s.unlogged = 0
	return true, unlogged
}

// tell reports whether the owner is to be notified of the subject now.
func (l *Log) tell(s *subject, now time.Time) bool {
	if now.Sub(s.since) > sameAgain {
		s.since, s.count = now, 0
	}
	s.count++
	if s.count != often || !s.told.IsZero() && now.Sub(s.told) < tellAgain || !l.told.AllowN(now, 1) {
		return false
	}
	s.told = now
	return true
}

func (l *Log) print(r Refusal, peer string, unlogged int) {
	args := []any{"door", string(r.Door)}
	for _, one := range []struct{ key, value string }{{"peer", peer}, {"id", r.ID}, {"user", r.User}, {"what", r.What}, {"why", r.Why}} {
		if one.value != "" {
			args = append(args, one.key, one.value)
		}
	}
	if r.Addr.IsValid() {
		args = append(args, "addr", r.Addr.String())
	}
	if unlogged > 0 {
		args = append(args, "unlogged", unlogged)
	}
	level := slog.LevelWarn
	if r.Door == Guests { // what is asked in good faith may not fit either
		level = slog.LevelInfo
	}
	l.log.Log(context.Background(), level, "refused", args...)
}

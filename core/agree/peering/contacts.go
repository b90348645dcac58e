package peering

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/base/backoff"
	"kith.dev/core/base/notify"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	maxContacts    = 256 // those beyond it are not contacted
	maxDials       = 8   // at a time, not counting those that take longer than dialHold
	maxHeard       = 64  // notices nobody took yet
	jitterEach     = 20 * time.Millisecond
	jitterMax      = time.Second // of the first dials, so that a room of laptops does not start as one
	backoffMin     = time.Second // between half of it and all of it pass before one that failed is dialled again
	backoffMax     = 15 * time.Second
	steady         = 30 * time.Second // a stream that lived so long was no failure
	checkTimeout   = 3 * time.Second
	linesPerSec    = 5
	linesAtOnce    = 50
	dialHold       = time.Second            // so that peers that are off do not hold up those that are there
	heardTimeout   = 5 * time.Second        // a notice that nobody takes so long is dropped
	leastPause     = 500 * time.Millisecond // between two dials, however often something wakes
	redialAfterEnd = 300 * time.Millisecond
)

// Target is somebody to keep in contact with.
type Target struct {
	ID        identity.ID
	Name      string   // a hint, until it says its own
	Addresses []string // host:port, best first
}

// Contact is what is known of a target now.
type Contact struct {
	ID      identity.ID
	Name    string // what it calls itself; a hint
	Version string // of its program
	presence.Presence
	Address string         // where it was reached last, else the first known
	At      netip.AddrPort // the address of the connection there is; Address may be a name
	// Reached is where this machine reached it last by itself, over no other peer, whatever addresses it is said to have: it stays when the connection ends.
	Reached netip.AddrPort
	RTT     time.Duration // of the connection, smoothed by the kernel; zero when not known
	By      string        // who passes the connection on, for people: a peer of both, or the peer itself, when it called back; "" when it was dialled
	Relays  bool          // it passes connections on
	// LastWord is what it said, when it said that it goes to sleep, on whether it may be woken: a wake.Word, which was not looked at. Nil when it is awake.
	LastWord *canonical.Signed
	Clock    time.Duration // how far its clock is ahead of this one, to within a second, when the connection began; zero without one, but for one that sleeps
}

// Heard is a notice with whose it is.
type Heard struct {
	ID     identity.ID
	Notice Notice
}

// ContactsConfig is what Contacts need.
type ContactsConfig struct {
	Identity *identity.Identity
	Log      *slog.Logger
	// Silent is called for a peer that was reachable and neither sends heartbeats any more nor answers; may be nil.
	Silent func(identity.ID)
	// Ways are other ways to a target than its addresses; may be nil.
	Ways func(identity.ID) []Way
	// CallBack is called when a target asks for a connection, and must return at once; nil: nobody is called back.
	CallBack func(from identity.ID, c CallBack)
}

// Contacts keep one presence stream open to each target, and so notice at once when one comes or goes. There is no polling: streams carry
// notices and, from peers that recognise this cluster, a heartbeat every 3 s, whose absence is noticed (see watchdog). For other peers TCP
// keepalive finds a loss within about 15 s. Safe for concurrent use.
type Contacts struct {
	config  ContactsConfig
	dials   chan struct{} // one token per dial under way
	heard   chan Heard
	changed notify.Broadcast

	mu      sync.Mutex // guards what follows, and the fields of contacts below theirs
	ctx     context.Context
	running sync.WaitGroup
	all     map[identity.ID]*contact
	order   []identity.ID
}

type contact struct {
	*Contacts
	id     identity.ID
	client *Client
	stop   context.CancelFunc // nil while not running
	delay  time.Duration      // before the first dial
	wake   chan struct{}      // dial now
	direct atomic.Bool        // an address led there a moment ago, while the connection is passed on
	looks  backoff.Doubling   // between two tries of the addresses then; grows also when they lead there for moments alone

	target Target
	now    Contact
	woken  time.Time // when it last was awake after it had said that it goes to sleep
	conn   *net.TCPConn
}

// NewContacts makes contacts; they dial once they Run.
func NewContacts(config ContactsConfig) *Contacts {
	return &Contacts{
		config: config,
		dials:  make(chan struct{}, maxDials),
		heard:  make(chan Heard, maxHeard),
		all:    map[identity.ID]*contact{},
	}
}

// Run keeps the contacts until ctx ends. All connections are closed then; the error is nil.
func (c *Contacts) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.ctx = ctx
	for _, one := range c.all {
		c.start(one)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ctx = nil
	for id := range c.all {
		c.remove(id)
	}
	c.order = nil
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Set replaces the targets. One that stays keeps its connection; if it is not reachable and has a new address it is dialled at once.
func (c *Contacts) Set(targets []Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(targets) > maxContacts {
		c.config.Log.Warn("too many peers to keep in contact with", "wanted", len(targets), "kept", maxContacts)
		targets = targets[:maxContacts]
	}
	wanted := make(map[identity.ID]bool, len(targets))
	for _, t := range targets {
		wanted[t.ID] = true
	}
	for id := range c.all {
		if !wanted[id] {
			c.remove(id)
		}
	}
	c.order = c.order[:0]
	var fresh []*contact
	for _, t := range targets {
		if !wanted[t.ID] { // twice
			continue
		}
		delete(wanted, t.ID)
		c.order = append(c.order, t.ID)
		if one, ok := c.all[t.ID]; ok {
			one.update(t)
		} else {
			fresh = append(fresh, c.add(t))
		}
	}
	for _, one := range fresh {
		if spread := min(jitterMax, time.Duration(len(fresh)-1)*jitterEach); spread > 0 {
			one.delay = rand.N(spread)
		}
		if c.ctx != nil {
			c.start(one)
		}
	}
	c.changed.Notify()
}

func (one *contact) update(t Target) {
	isNew := func(a string) bool { return !slices.Contains(one.target.Addresses, a) }
	moved := slices.ContainsFunc(t.Addresses, isNew)
	one.target = t
	one.target.Addresses = slices.Clone(t.Addresses)
	one.client.SetAddresses(t.Addresses)
	if one.now.Version == "" { // it has not said its own name yet
		one.now.Name = t.Name
	}
	if moved && (!one.now.Reachable() || one.now.By != "") {
		one.dialNow()
	}
}

func (c *Contacts) add(t Target) *contact {
	t.Addresses = slices.Clone(t.Addresses)
	config := ClientConfig{Identity: c.config.Identity, Expect: t.ID, Addresses: t.Addresses, Log: c.config.Log}
	if c.config.Ways != nil {
		config.Ways = func() []Way { return c.config.Ways(t.ID) }
	}
	one := &contact{
		Contacts: c,
		id:       t.ID,
		client:   NewClient(config),
		looks:    backoff.Doubling{First: directMin, Most: directMax, Jitter: 0.5},
		wake:     make(chan struct{}, 1),
		target:   t,
		now:      Contact{ID: t.ID, Name: t.Name, Presence: presence.Presence{State: presence.Seen, Since: time.Now(), Why: "not contacted yet"}},
	}
	c.all[t.ID] = one
	return one
}

func (c *Contacts) start(one *contact) {
	if one.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(c.ctx)
	one.stop = stop
	c.running.Go(func() { one.run(ctx) })
}

func (c *Contacts) remove(id identity.ID) {
	one := c.all[id]
	delete(c.all, id)
	if one.stop != nil {
		one.stop()
	}
	one.client.Close()
}

// Poke checks these targets now, or all: one that is not reachable is dialled at once; one that is must answer within 3 s, or is dialled
// again. Call it when peers may have moved: after a resume, a change of networks, or when a user waits.
func (c *Contacts) Poke(ids ...identity.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ids) == 0 {
		ids = c.order
	}
	for _, id := range ids {
		one, ok := c.all[id]
		if !ok || c.ctx == nil {
			continue
		}
		if one.now.By != "" {
			one.dialNow()
		}
		if !one.now.Reachable() && one.conn == nil {
			one.dialNow()
			continue
		}
		ctx := c.ctx
		c.running.Go(func() { one.check(ctx) })
	}
}

func (one *contact) dialNow() {
	select {
	case one.wake <- struct{}{}:
	default:
	}
}

func (one *contact) check(ctx context.Context) {
	if err := one.answers(ctx); err != nil {
		one.client.Cut() // ends the presence stream
		one.dialNow()    // and here is the next
	}
}

// stranded says that the connection is from an address that this machine no longer has: no answer can come.
func (one *contact) stranded() error {
	one.mu.Lock()
	conn := one.conn
	one.mu.Unlock()
	if conn == nil {
		return nil
	}
	from, ok := conn.LocalAddr().(*net.TCPAddr)
	all, err := net.InterfaceAddrs()
	if !ok || err != nil {
		return nil // not known
	}
	for _, a := range all {
		if own, ok := a.(*net.IPNet); ok && own.IP.Equal(from.IP) {
			return nil
		}
	}
	return errors.New("this machine left the address " + from.IP.String())
}

// Snapshot tells of all targets, in the order they were Set.
func (c *Contacts) Snapshot() []Contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Contact, 0, len(c.order))
	for _, id := range c.order {
		list = append(list, c.all[id].look())
	}
	return list
}

// Contact is that with one peer.
func (c *Contacts) Contact(id identity.ID) (Contact, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.all[id]; one != nil {
		return one.look(), true
	}
	return Contact{}, false
}

// look asks the connection, too. Callers hold mu of Contacts.
func (one *contact) look() Contact {
	now := one.now
	now.Address = one.client.Address()
	if one.conn != nil {
		now.RTT = roundTrip(one.conn)
		now.At = remote(one.conn)
	}
	return now
}

// remote is the address at the other end of a connection.
func remote(conn *net.TCPConn) netip.AddrPort {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// Changed gives a channel that is closed when Snapshot changes next. Take it before Snapshot.
func (c *Contacts) Changed() <-chan struct{} { return c.changed.Wait() }

// Notices is the channel of notices from all peers. Keep reading it: a notice that nobody takes for 5 s is dropped.
func (c *Contacts) Notices() <-chan Heard { return c.heard }

// Client is the client of a target, so that calls share the connection of its presence. It ends with the target.
func (c *Contacts) Client(id identity.ID) (*Client, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.all[id]
	if !ok {
		return nil, false
	}
	return one.client, true
}

// set changes what is known, under the lock, and tells who wants to know if anything did change.
func (one *contact) set(change func(*Contact)) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.all[one.id] != one {
		return // no longer wanted
	}
	before := one.now
	change(&one.now)
	if one.now.State != before.State {
		one.now.Since = time.Now()
	}
	if one.now.State != before.State || one.now.Cause != before.Cause {
		level := slog.LevelInfo
		if before.State == presence.Seen && !one.now.Reachable() && one.now.Cause == "" {
			level = slog.LevelDebug
		}
		about := []any{"peer", one.name(), "id", one.id.String()}
		if one.now.Why != "" {
			about = append(about, "why", one.now.Why)
		}
		one.config.Log.Log(context.Background(), level, strings.TrimSpace("peer "+string(one.now.State)+" "+string(one.now.Cause)), about...)
	}
	if one.now != before {
		one.changed.Notify()
	}
}

// name is for the log: what the peer is called here, else what it calls itself. The caller holds mu.
func (one *contact) name() string {
	if one.target.Name != "" {
		return one.target.Name
	}
	return one.now.Name
}

// lost puts the end of a stream, or of a dial, in words.
func lost(err error, lastWord string) string {
	var unreachable *UnreachableError
	var problem *Problem
	switch {
	case lastWord != "":
		return lastWord
	case errors.As(err, &unreachable):
		return strings.TrimPrefix(wire.Line(unreachable.Error(), 1024), "peer is unreachable: ")
	case errors.As(err, &problem):
		return problem.Error()
	case errors.Is(err, errSilent):
		return "no answer"
	case errors.Is(err, net.ErrClosed):
		return "no answer over the old connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "GOAWAY"): // net/http does not export that error
		return "connection closed"
	}
	return because(err)
}

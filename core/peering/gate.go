package peering

import (
	"bufio"
	"container/list"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"kith.dev/core/audit"
	"kith.dev/core/identity"
)

// gate is the listener of the server: it bounds connections before anything is read from them, and knows all that
// are open.
//
// A connection is a stranger's until the caller behind it is known and recognised. When strangers fill their room
// the one that has been there longest goes, so a newcomer always gets as far as being recognised, which takes
// milliseconds; an attacker would have to fill the room in that time, which ConnRate forbids one address.
type gate struct {
	net.Listener
	limits   Limits
	refusals *audit.Log
	rates    *meter[netip.Addr]
	quit     chan struct{} // closed when the server begins to end

	mu         sync.Mutex
	open       map[*guarded]struct{}
	strangers  *list.List // of *guarded, oldest first
	recognised int
	perIP      map[netip.Addr]int
}

// guarded is one connection. Its caller is set once, by the first request.
type guarded struct {
	net.Conn
	gate *gate
	addr netip.AddrPort

	refusals atomic.Int32

	admitting sync.Mutex // held while the caller is looked up
	caller    *Caller
	refused   *Problem
	leave     func() // gives the caller's share back

	stranger *list.Element // guarded by gate.mu; nil when recognised
	closing  sync.Once
}

func newGate(l net.Listener, limits Limits, r *audit.Log) *gate {
	return &gate{
		Listener: l, limits: limits, refusals: r,
		rates:     newMeter[netip.Addr](limits.ConnRate),
		quit:      make(chan struct{}),
		open:      map[*guarded]struct{}{},
		strangers: list.New(),
		perIP:     map[netip.Addr]int{},
	}
}

// Accept gives the next connection that is within the limits; others are reset at once.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tune(conn, false)
		if c := g.admit(conn); c != nil {
			return c, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // reset: no TIME_WAIT for those who come too often
		}
		conn.Close()
	}
}

func (g *gate) refused(reason string, addr netip.AddrPort, why string) {
	g.refusals.Note(audit.Refusal{Door: audit.PeerAPI, Reason: reason, Addr: addr, What: "connection", Why: why})
}

func (g *gate) admit(conn net.Conn) *guarded {
	addr := addrOf(conn)
	ip := addr.Addr()
	if !g.rates.allow(ip) {
		g.refused(RefusedRate, addr, "too many new connections from this address")
		return nil
	}
	c := &guarded{Conn: conn, gate: g, addr: addr}
	g.mu.Lock()
	if g.perIP[ip] >= g.limits.ConnsPerIP {
		g.mu.Unlock()
		g.refused(RefusedAddress, addr, "too many connections from this address")
		return nil
	}
	var oldest *guarded
	if g.strangers.Len() >= g.limits.Strangers {
		oldest = g.strangers.Front().Value.(*guarded)
		g.forget(oldest)
	}
	g.perIP[ip]++
	g.open[c] = struct{}{}
	c.stranger = g.strangers.PushBack(c)
	g.mu.Unlock()
	if oldest != nil {
		g.refused(RefusedRoom, oldest.addr, "too many strangers are connected, the oldest goes")
		oldest.Close()
	}
	return c
}

// recognise moves the connection to the room of callers that are known, when there is space.
func (g *gate) recognise(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, open := g.open[c]
	if open && c.stranger != nil && g.recognised < g.limits.Recognised {
		g.strangers.Remove(c.stranger)
		c.stranger = nil
		g.recognised++
	}
}

// forget takes a connection out of all counts, once.
func (g *gate) forget(c *guarded) {
	if _, known := g.open[c]; !known {
		return
	}
	delete(g.open, c)
	if c.stranger != nil {
		g.strangers.Remove(c.stranger)
	} else {
		g.recognised--
	}
	ip := c.addr.Addr()
	if g.perIP[ip]--; g.perIP[ip] == 0 {
		delete(g.perIP, ip)
	}
}

// cut closes the connections of one caller.
func (g *gate) cut(caller identity.ID) {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.open))
	g.mu.Unlock()
	for _, c := range all {
		c.admitting.Lock()
		is := c.caller != nil && c.caller.ID == caller
		c.admitting.Unlock()
		if is {
			c.Close()
		}
	}
}

// closeAll cuts what is left: connections that were taken over for upgrades, above all.
func (g *gate) closeAll() {
	g.mu.Lock()
	left := make([]*guarded, 0, len(g.open))
	for c := range g.open {
		left = append(left, c)
	}
	g.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}

// Close is called by TLS at the end of its own, and by the gate.
func (c *guarded) Close() error {
	c.closing.Do(func() {
		c.gate.mu.Lock()
		c.gate.forget(c)
		c.gate.mu.Unlock()
		// A request may be looking its caller up just now, so this must not wait for it.
		go func() {
			c.admitting.Lock()
			defer c.admitting.Unlock()
			if c.leave != nil {
				c.leave()
			}
			c.leave, c.refused = nil, &Problem{Code: CodeUnavailable, Message: "the connection is closed"}
		}()
	})
	return c.Conn.Close()
}

func addrOf(conn net.Conn) netip.AddrPort {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

type guardedKey struct{}

// withConn lets requests know the connection they came by (http.Server.ConnContext).
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		if c, ok := t.NetConn().(*guarded); ok {
			return context.WithValue(ctx, guardedKey{}, c)
		}
	}
	return ctx
}

func connOf(ctx context.Context) *guarded {
	c, _ := ctx.Value(guardedKey{}).(*guarded)
	return c
}

// Observer counts what the server does. Its method is called from many goroutines and must return at once.
type Observer interface {
	// Answered tells that a request is being answered: the pattern of its route, "" when there is none, and the
	// HTTP status. Streams count when they begin.
	Answered(route string, status int)
}

// Reasons for refusals (audit.Refusal) that come before there is a request to answer with a Problem; with one, it is the
// Problem's Code.
const (
	RefusedRate      = "connection-rate" // too many new connections from one address
	RefusedAddress   = "connections"     // too many connections from one address
	RefusedRoom      = "strangers"       // too many strangers are connected
	RefusedHandshake = "handshake"       // no TLS 1.3 with a key
)

// nobody observes nothing.
type nobody struct{}

func (nobody) Answered(string, int) {}

// observed tells of the status of an answer when it begins. The mux has set the request's pattern by then.
type observed struct {
	http.ResponseWriter
	r    *http.Request
	by   Observer
	told bool
}

func (o *observed) tell(status int) {
	if !o.told {
		o.told = true
		o.by.Answered(o.r.Pattern, status)
	}
}

func (o *observed) WriteHeader(status int) {
	if status >= 200 {
		o.tell(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(p []byte) (int, error) {
	o.tell(http.StatusOK)
	return o.ResponseWriter.Write(p)
}

// Unwrap leads http.ResponseController to what is underneath.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Hijack is how upgrades leave HTTP.
func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.tell(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

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

	"golang.org/x/time/rate"

	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

// limitedListener is the listener of the server. It bounds connections before anything is read from them, and knows all that
// are open.
//
// A connection is a stranger's until the caller behind it is known and recognised. When strangers fill their room
// the one that has been there longest goes, so a newcomer always gets as far as being recognised, which takes
// milliseconds; an attacker would have to fill the room in that time, which ConnRate forbids one address.
type limitedListener struct {
	net.Listener
	limits   Limits
	refusals *audit.Log
	rates    *limiters[netip.Addr]
	quit     chan struct{} // closed when the server begins to end
	taken    chan net.Conn // see Server.Take

	mu         sync.Mutex
	open       map[*limitedConn]struct{}
	strangers  *list.List // of *limitedConn, oldest first
	recognised int
	perIP      map[netip.Addr]int
	passed     map[identity.ID]int // of those that are passed on, by who does
}

// limitedConn is one connection. Its caller is set once, by the first request.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	addr     netip.AddrPort // zero when it is passed on, for then it says nothing of the caller
	from     netip.Addr     // what the limits for addresses go by
	way      *passage       // nil unless it was Taken

	refusals atomic.Int32
	headers  *rate.Limiter // bytes of requests' headers, see headerSize

	admitting sync.Mutex // held while the caller is looked up
	caller    *Caller
	refused   *Problem
	leave     func() // gives the caller's share back

	stranger *list.Element // guarded by limitedListener.mu; nil when recognised
	closing  sync.Once
}

func newLimitedListener(listener net.Listener, limits Limits, r *audit.Log) *limitedListener {
	return &limitedListener{
		Listener: listener, limits: limits, refusals: r,
		rates:     newLimiters[netip.Addr](limits.ConnRate),
		quit:      make(chan struct{}),
		taken:     make(chan net.Conn),
		open:      map[*limitedConn]struct{}{},
		strangers: list.New(),
		perIP:     map[netip.Addr]int{},
		passed:    map[identity.ID]int{},
	}
}

// Accept gives the next connection that is within the limits; others are reset at once.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tune(conn, false)
		if c := l.admit(conn, nil); c != nil {
			return c, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // reset: no TIME_WAIT for those who come too often
		}
		conn.Close()
	}
}

func (l *limitedListener) refused(reason audit.Reason, addr netip.AddrPort, why string) {
	l.refusals.Note(audit.Refusal{Door: audit.PeerAPI, Reason: reason, Addr: addr, What: "connection", Why: why})
}

func (l *limitedListener) admit(conn net.Conn, way *passage) *limitedConn {
	addr := addrOf(conn)
	ip, most := addr.Addr(), l.limits.ConnsPerIP
	if way.passedOn() {
		addr, ip, most = netip.AddrPort{}, way.from(), l.limits.PassedOnEach
	}
	if !l.rates.allow(ip) {
		l.refused(RefusedRate, addr, "too many new connections from this address")
		return nil
	}
	c := &limitedConn{Conn: conn, listener: l, addr: addr, from: ip, way: way, headers: rate.NewLimiter(rate.Limit(l.limits.HeaderRate.PerSecond), l.limits.HeaderRate.Burst)}
	l.mu.Lock()
	if l.perIP[ip] >= most || way.passedOn() && l.passed[way.by] >= l.limits.PassedOn {
		l.mu.Unlock()
		l.refused(RefusedAddress, addr, "too many connections from this address")
		return nil
	}
	var oldest *limitedConn
	if l.strangers.Len() >= l.limits.Strangers {
		oldest = l.strangers.Front().Value.(*limitedConn)
		l.forget(oldest)
	}
	l.perIP[ip]++
	if way.passedOn() {
		l.passed[way.by]++
	}
	l.open[c] = struct{}{}
	c.stranger = l.strangers.PushBack(c)
	spare(conn, l.strangers.Len())
	l.mu.Unlock()
	if oldest != nil {
		l.refused(RefusedRoom, oldest.addr, "too many strangers are connected, the oldest goes")
		oldest.Close()
	}
	return c
}

// recognise moves the connection to the room of callers that are known, when there is space.
func (l *limitedListener) recognise(c *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.open[c]
	if open && c.stranger != nil && l.recognised < l.limits.Recognised {
		l.strangers.Remove(c.stranger)
		c.stranger = nil
		l.recognised++
		spare(c.Conn, 0)
	}
}

// forget takes a connection out of all counts, once.
func (l *limitedListener) forget(c *limitedConn) {
	if _, known := l.open[c]; !known {
		return
	}
	delete(l.open, c)
	if c.stranger != nil {
		l.strangers.Remove(c.stranger)
	} else {
		l.recognised--
	}
	ip := c.from
	if c.way.passedOn() {
		if l.passed[c.way.by]--; l.passed[c.way.by] == 0 {
			delete(l.passed, c.way.by)
		}
	}
	if l.perIP[ip]--; l.perIP[ip] == 0 {
		delete(l.perIP, ip)
	}
}

// conns are those that are open.
func (l *limitedListener) conns() []*limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

// cut closes the connections of one caller.
func (l *limitedListener) cut(caller identity.ID) {
	for _, c := range l.conns() {
		c.admitting.Lock()
		is := c.caller != nil && c.caller.ID == caller
		c.admitting.Unlock()
		if is {
			c.Close()
		}
	}
}

// closeAll cuts what is left: connections that were taken over for upgrades, above all.
func (l *limitedListener) closeAll() {
	for _, c := range l.conns() {
		c.Close()
	}
}

// Close is called by TLS at the end of its own, and by the listener.
func (c *limitedConn) Close() error {
	c.closing.Do(func() {
		c.listener.mu.Lock()
		c.listener.forget(c)
		c.listener.mu.Unlock()
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

type connKey struct{}

// withConn lets requests know the connection they came by (http.Server.ConnContext).
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		if c, ok := t.NetConn().(*limitedConn); ok {
			return context.WithValue(ctx, connKey{}, c)
		}
	}
	return ctx
}

func connOf(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}

// Reasons for refusals (audit.Refusal) that come before there is a request to answer with a Problem; with one, it is the
// Problem's Code.
const (
	RefusedRate      audit.Reason = "connection-rate" // too many new connections from one address
	RefusedAddress   audit.Reason = "connections"     // too many connections from one address
	RefusedRoom      audit.Reason = "strangers"       // too many strangers are connected
	RefusedHandshake audit.Reason = "handshake"       // no TLS 1.3 with a key
)

// statusWriter tells of the status of an answer when it begins. The mux has set the request's pattern by then.
type statusWriter struct {
	http.ResponseWriter
	r    *http.Request
	by   func(route string, status int) // ServerConfig.Answered
	told bool
}

func (w *statusWriter) tell(status int) {
	if !w.told {
		w.told = true
		w.by(w.r.Pattern, status)
	}
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 {
		w.tell(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.tell(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap leads http.ResponseController to what is underneath.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is how upgrades leave HTTP.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.tell(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

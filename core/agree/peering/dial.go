package peering

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	dialTimeout = 8 * time.Second        // one address: TCP and TLS
	dialStagger = 250 * time.Millisecond // before the next address is tried too (RFC 8305)
)

// UnreachableError says that no address of a peer led to it, and why for each. errors.As finds an
// *identity.MismatchError in it when somebody else answered at one.
type UnreachableError struct {
	Failures []AddressError
}

// AddressError is why one address failed.
type AddressError struct {
	Address string
	Err     error
}

func (e *AddressError) Error() string {
	at, err := netip.ParseAddrPort(e.Address)
	if err == nil && at.Addr().Zone() != "" && errors.Is(e.Err, syscall.EINVAL) { // of a link-local address, and an interface that went away
		return e.Address + ": this machine has no interface " + at.Addr().Zone()
	}
	return e.Address + ": " + because(e.Err)
}
func (e *AddressError) Unwrap() error { return e.Err }

func (e *UnreachableError) Error() string {
	if len(e.Failures) == 0 {
		return "peer is unreachable: no address of it is known"
	}
	why := make([]string, len(e.Failures))
	for i := range e.Failures {
		why[i] = e.Failures[i].Error()
	}
	return "peer is unreachable: " + strings.Join(why, "; ")
}

// Unwrap gives the failures, for errors.Is and errors.As.
func (e *UnreachableError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i := range e.Failures {
		errs[i] = &e.Failures[i]
	}
	return errs
}

// Refused says that at every address a machine answered on which no daemon listens.
func (e *UnreachableError) Refused() bool {
	for i := range e.Failures {
		if !errors.Is(e.Failures[i].Err, syscall.ECONNREFUSED) {
			return false
		}
	}
	return len(e.Failures) > 0
}

// because puts the usual failures of a connection in words for a user.
func because(err error) string {
	var netErr net.Error
	var alert tls.AlertError
	var mismatch *identity.MismatchError
	var dns *net.DNSError
	switch {
	case errors.As(err, &mismatch):
		return mismatch.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused, no kithd listens there"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.As(err, &dns):
		return "name not found: " + dns.Err
	case errors.As(err, &alert):
		return "TLS refused: " + alert.Error()
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "no answer"
	}
	return wire.Line(err.Error(), maxReason)
}

// trackedConn is a TCP connection to the peer; the client knows all of them, to be able to cut them.
type trackedConn struct {
	net.Conn
	client  *Client
	by      string // who passes it on; "" when an address led there
	patient bool
}

// Close is what TLS calls at the end of its own.
func (t *trackedConn) Close() error {
	t.client.mu.Lock()
	delete(t.client.conns, t)
	t.client.mu.Unlock()
	return outermost(t.Conn).Close()
}

// outermost is the TCP connection below those that are passed on, whose TLS would first say goodbye, which may take seconds.
func outermost(conn net.Conn) net.Conn {
	for {
		below, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = below.NetConn()
	}
}

func (c *Client) track(raw net.Conn, by string, patient bool) (*trackedConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		raw.Close()
		return nil, errClosed
	}
	t := &trackedConn{raw, c, by, patient}
	c.conns[t] = struct{}{}
	return t, nil
}

// waysAfter is how much longer addresses are given until other ways are tried, too.
const waysAfter = 750 * time.Millisecond

// attempts are what dial tries: the addresses first, then other ways to a peer whose key is known.
func (c *Client) attempts(ctx context.Context) (list []attempt) {
	for _, address := range c.Addresses() {
		list = append(list, attempt{to: address, dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
		}})
	}
	if expect, _ := c.Peer(); c.config.Ways != nil && !expect.IsZero() && ctx.Value(overAddresses{}) == nil {
		for _, way := range c.config.Ways() {
			list = append(list, attempt{to: "by " + way.By, by: way.By, dial: way.Dial, went: way.Went})
		}
	}
	return list
}

// attempt is one way to the peer.
type attempt struct {
	to   string // for people: an address, or who passes it on
	by   string // "" when it is an address
	dial func(ctx context.Context) (net.Conn, error)
	went func(error) // may be nil
}

// dial tries the attempts in order, the next one when the one before failed or is slow; the first that ends a
// handshake with the right key wins. With no key expected yet the winner's becomes the expected one, so that all
// that follows goes to the same peer.
func (c *Client) dial(ctx context.Context, protocols []string, patient bool) (net.Conn, error) {
	return c.race(ctx, c.attempts(ctx), protocols, patient)
}

type overAddresses struct{}

// OverAddresses has calls dial addresses alone: what leads to one peer by way of another must not go by way of a third.
func OverAddresses(ctx context.Context) context.Context {
	return context.WithValue(ctx, overAddresses{}, true)
}

// Direct reports whether one of the peer's addresses leads to it now.
func (c *Client) Direct(ctx context.Context) bool {
	conn, err := c.dial(OverAddresses(ctx), []string{"http/1.1"}, false)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func (c *Client) race(ctx context.Context, attempts []attempt, protocols []string, patient bool) (net.Conn, error) {
	if len(attempts) == 0 {
		return nil, &UnreachableError{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		n    int
		conn *tls.Conn
		err  error
	}
	results := make(chan result) // every attempt sends once, also after the race is over
	try := func(n int) {
		conn, err := c.dialOne(ctx, attempts[n], protocols, patient)
		results <- result{n, conn, err}
	}
	failures := make([]AddressError, 0, len(attempts))
	stagger := time.NewTimer(0)
	defer stagger.Stop()
	started, open := 0, 0
	next := func() {
		if started >= len(attempts) {
			return
		}
		go try(started)
		started, open = started+1, open+1
		pause := dialStagger
		if started < len(attempts) && attempts[started].by != "" {
			pause = waysAfter
		}
		stagger.Reset(pause)
	}
	next()
	for open > 0 {
		select {
		case <-stagger.C:
			next()
		case r := <-results:
			open--
			if r.err == nil {
				cancel()
				go func() { // the losers
					for ; open > 0; open-- {
						if late := <-results; late.conn != nil {
							late.conn.Close()
						}
					}
				}()
				return r.conn, nil
			}
			failures = append(failures, AddressError{attempts[r.n].to, r.err})
			if ctx.Err() == nil {
				next()
			}
		}
	}
	err := &UnreachableError{Failures: failures}
	c.config.Log.Debug("peer not reached", "id", c.config.Expect.String(), "err", err)
	return nil, err
}

func (c *Client) dialOne(ctx context.Context, to attempt, protocols []string, patient bool) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	tune(conn, patient)
	raw, err := c.track(conn, to.by, patient)
	if err != nil {
		return nil, err
	}
	expect, _ := c.Peer()
	config := c.config.Identity.ClientTLS(expect)
	config.NextProtos = protocols
	tlsConn := tls.Client(raw, config)
	err = tlsConn.HandshakeContext(ctx)
	if to.went != nil && !errors.Is(err, context.Canceled) { // another one was the faster
		to.went(err)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	if err := c.pin(tlsConn, to); err != nil {
		tlsConn.Close()
		return nil, err
	}
	return tlsConn, nil
}

// pin notes whose connection it is; of several handshakes of a first contact only one key stays.
func (c *Client) pin(tlsConn *tls.Conn, to attempt) error {
	id, key, err := identity.PeerOf(tlsConn.ConnectionState())
	if err != nil {
		return err
	}
	if id == c.config.Identity.ID() {
		return fmt.Errorf("this cluster itself answers there")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.peer.IsZero() && c.peer != id {
		return &identity.MismatchError{Want: c.peer, Got: id}
	}
	if c.peer, c.key = id, key; to.by == "" {
		c.good = to.to
	}
	return nil
}

// A peer that went away without a word is noticed within 5 + 3·3 = 14 s: by the kernel's keepalive when nothing
// is under way, by unacknowledged (TCP_USER_TIMEOUT, Linux) when something is; keepalives do not count then.
// No timer of ours ticks. On connections with beats (see watchdog) keepalives are never due.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}

const unacknowledged = 14 * time.Second

// spare has the kernel ask more seldom over one of so many connections: those of a room full of laptops, which have no beats, are asked for a few
// times a second together. A neighbour that lost its power is noticed later there, after half a minute among sixty.
func spare(conn net.Conn, many int) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		often := keepAlive
		often.Idle = max(often.Idle, time.Duration(many)*time.Second/2)
		tcp.SetKeepAliveConfig(often)
	}
}

// tune sets both. A connection that was taken over for an upgrade may stand still as long as its reader wants
// (a paused terminal), which user timeout would take for death: there patient is true.
func tune(conn net.Conn, patient bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	tcp.SetKeepAliveConfig(keepAlive)
	limit := unacknowledged
	if patient {
		limit = 0
	}
	setUserTimeout(tcp, limit)
}

package peering

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kith.dev/core/trust/identity"
)

// ClientConfig is what a Client needs.
type ClientConfig struct {
	Identity *identity.Identity
	// Expect is the peer's ID; connections to any other key fail. The zero ID is for a first contact: the key of the first completed
	// handshake is expected from then on.
	Expect identity.ID
	// Addresses are host:port of the peer API, best first.
	Addresses []string
	// Ways are asked for at each dial, after the addresses: other ways to the peer, best first. May be nil.
	Ways func() []Way
	Log  *slog.Logger
}

// Client makes calls to one peer, over one HTTP/2 connection where possible. It dials at the first call, and again after a connection was lost.
// Its errors wrap
//
//   - *UnreachableError: no connection came about (Refused tells whether machines answered),
//   - *identity.MismatchError: somebody else answers,
//   - *Problem: the peer says no, or speaks another version (CodeVersion),
//
// and are otherwise those of a connection that broke. It is safe for concurrent use; Close it.
//
// # Kubernetes clients through the peer's /kube/
//
// For everything but upgrades a rest.Config goes over the same connection:
//
//	rest.Config{Host: client.BaseURL() + "/kube", Transport: client.Transport()}
//
// exec, attach and port-forward leave HTTP by an upgrade, which needs HTTP/1.1 and a connection of its own: DialTLS gives it.
type Client struct {
	config    ClientConfig
	transport *transport
	bulk      *transport
	http      *http.Client

	mu        sync.Mutex // guards what follows; nothing is called with it held
	addresses []string
	peer      identity.ID // expected, or learned by the first contact
	key       ed25519.PublicKey
	good      string // the address of the last connection
	conns     map[*trackedConn]struct{}
	closed    bool
}

// NewClient makes a client; it dials nobody yet.
func NewClient(config ClientConfig) *Client {
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	c := &Client{
		config:    config,
		addresses: slices.Clone(config.Addresses),
		peer:      config.Expect,
		conns:     map[*trackedConn]struct{}{},
	}
	c.transport = newTransport(&http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx, []string{"h2", "http/1.1"}, false)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // packed, a thousand times as much would come as was sent
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
		ExpectContinueTimeout:  time.Second,
	})
	c.bulk = newTransport(&http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx, []string{"http/1.1"}, false)
		},
		DisableCompression:     true,
		MaxConnsPerHost:        mostBulk,
		IdleConnTimeout:        10 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
	})
	c.http = &http.Client{
		Transport: c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("a peer API does not redirect")
		},
	}
	return c
}

// Addresses are those tried, in this order; the one that led to the peer last comes first.
func (c *Client) Addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.addresses)
	if i := slices.Index(all, c.good); i > 0 {
		copy(all[1:i+1], all[:i])
		all[0] = c.good
	}
	return all
}

// SetAddresses replaces the addresses for the next dial; connections that are up stay.
func (c *Client) SetAddresses(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses = slices.Clone(addresses)
}

// Address is where the peer was reached last, else the first that is known, else "".
func (c *Client) Address() string {
	if all := c.Addresses(); len(all) > 0 {
		return all[0]
	}
	return ""
}

// Peer is the peer's ID and key: the expected ID, or the one proven by the first contact; zero before that. The key is nil before the first
// connection.
func (c *Client) Peer() (identity.ID, ed25519.PublicKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer, c.key
}

// BaseURL is what the URLs of requests through Transport begin with. Its host only names the peer, and stays what it
// is: no DNS is asked.
func (c *Client) BaseURL() string {
	if c.config.Expect.IsZero() {
		return "https://peer.kith.invalid"
	}
	return "https://" + c.config.Expect.Compact() + ".kith.invalid"
}

// Transport sends requests to the peer whatever host their URL names. It sets no deadline; contexts do.
func (c *Client) Transport() http.RoundTripper { return c.transport }

// mostBulk is how many connections Bulk has at most.
const mostBulk = 4

// Bulk sends requests as Transport does, over HTTP/1.1 and connections of its own: for long answers, behind which no call shall wait.
func (c *Client) Bulk() interface {
	http.RoundTripper
	CloseIdleConnections()
} {
	return c.bulk
}

// DialTLS opens a connection of its own to the peer, for HTTP/1.1 with an upgrade. It may stand still as long as
// its user likes.
func (c *Client) DialTLS(ctx context.Context) (net.Conn, error) {
	return c.dial(ctx, []string{"http/1.1"}, true)
}

// Close cuts all connections, those of DialTLS too. The client cannot be used again.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Cut()
}

// Cut closes all connections, so that the next call dials anew.
func (c *Client) Cut() {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	for _, t := range open {
		t.Close() // below TLS, which would first wait to say goodbye
	}
	for _, t := range []*transport{c.transport, c.bulk} {
		t.CloseIdleConnections() // the transport would find out in a moment, and use them until then
	}
}

// dialAnew has the next call dial anew. What is under way stays where it is until it ends: a watch, an answer, a terminal.
func (c *Client) dialAnew() {
	c.transport.renew()
	c.bulk.renew()
}

// transport is one that can be made anew, while the calls under way end on the one before.
type transport struct {
	now atomic.Pointer[http.Transport]
}

func newTransport(first *http.Transport) *transport {
	t := &transport{}
	t.now.Store(first)
	return t
}

func (t *transport) renew() {
	was := t.now.Load()
	t.now.Store(was.Clone())
	was.CloseIdleConnections() // the others end when they were idle for a while
}

// RoundTrip is http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.now.Load().RoundTrip(r)
}

// CloseIdleConnections is that of http.Transport.
func (t *transport) CloseIdleConnections() { t.now.Load().CloseIdleConnections() }

var errClosed = errors.New("peering: this client was closed")

package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kith.dev/core/identity"
)

// DefaultPort is the peer API's, for addresses that name none.
const DefaultPort = 6450

const (
	maxManual      = 256
	manualAgain    = 5 * time.Minute // names are resolved again; the system's resolver tells no TTL
	manualRetry    = 15 * time.Second
	resolveTimeout = 5 * time.Second
	resolveAtOnce  = 8
)

// Resolver resolves host names; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Manual holds the addresses the user typed in. It reports each as a sighting named as typed, without ID
// until peering has contacted it and called Identify; also while its name does not resolve, then without
// addresses. It is safe for concurrent use.
type Manual struct {
	resolver Resolver
	changed  chan struct{}

	mu      sync.Mutex
	entries map[string]*typed // by canonical host:port
}

type typed struct {
	host      string
	port      uint16
	id        identity.ID
	addresses []netip.AddrPort
	seen      time.Time
	failures  int
	dueAt     time.Time // when to resolve (again); zero: never
	busy      bool
}

// NewManual makes an empty list; net.DefaultResolver is the usual resolver.
func NewManual(r Resolver) *Manual {
	return &Manual{resolver: r, changed: make(chan struct{}, 1), entries: map[string]*typed{}}
}

func (m *Manual) String() string { return "addresses typed in" }

// Add takes "host:port", "host", "192.0.2.1", "[2001:db8::1]:6450" or "2001:db8::1" into the list, and
// gives the form in which it is listed. Adding it twice is no error.
func (m *Manual) Add(address string) (string, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return "", err
	}
	listed := net.JoinHostPort(host, strconv.Itoa(int(port)))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[listed] != nil {
		return listed, nil
	}
	if len(m.entries) >= maxManual {
		return "", fmt.Errorf("peer address %q: the list is full (%d), remove some first", address, maxManual)
	}
	m.entries[listed] = &typed{host: host, port: port, dueAt: time.Now()}
	m.wake()
	return listed, nil
}

// Remove takes an address, in any form that Add takes, off the list and says whether it was there.
func (m *Manual) Remove(address string) bool {
	return m.change(address, func(listed string, _ *typed) { delete(m.entries, listed) })
}

// Identify says which cluster answered at an address, proven by its handshake. From then on the sighting
// has that ID and joins the other sightings of it.
func (m *Manual) Identify(address string, id identity.ID) bool {
	return m.change(address, func(_ string, e *typed) { e.id = id })
}

// List gives the addresses, sorted.
func (m *Manual) List() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for listed := range m.entries {
		out = append(out, listed)
	}
	slices.Sort(out)
	return out
}

func (m *Manual) change(address string, f func(string, *typed)) bool {
	host, port, err := splitAddress(address)
	if err != nil {
		return false
	}
	listed := net.JoinHostPort(host, strconv.Itoa(int(port)))
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[listed]
	if e == nil {
		return false
	}
	f(listed, e)
	m.wake()
	return true
}

func (m *Manual) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// splitAddress makes one form of the many that people type.
func splitAddress(address string) (host string, port uint16, err error) {
	bad := func(why string) (string, uint16, error) {
		return "", 0, fmt.Errorf("peer address %q: %s; write host, host:port or [IPv6]:port", address, why)
	}
	text := strings.TrimSpace(address)
	if len(text) > 300 {
		return "", 0, errors.New("peer address: longer than any host name; write host, host:port or [IPv6]:port")
	}
	host, port = text, DefaultPort
	bare, bareErr := netip.ParseAddr(strings.Trim(text, "[]"))
	if bareErr == nil {
		host = bare.String()
	} else if strings.Contains(text, ":") {
		h, p, err := net.SplitHostPort(text)
		if err != nil {
			return bad("is not host and port")
		}
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return bad(fmt.Sprintf("port %q is not a number from 1 to 65535", p))
		}
		host, port = h, uint16(n)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsUnspecified() || a.IsMulticast() {
			return bad("no single host has this address")
		}
		return a.Unmap().String(), port, nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isHostName(host) {
		return bad(fmt.Sprintf("%q is neither a host name nor an IP address", host))
	}
	return host, port, nil
}

func isHostName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	// The last label is never all digits (RFC 3696 section 2); 10.0.0.300 is a mistyped address.
	last := host[strings.LastIndex(host, ".")+1:]
	return strings.Trim(last, "0123456789") != ""
}

// resolved is one lookup's result.
type resolved struct {
	listed    string
	addresses []netip.Addr
	err       error
}

// Run resolves what is listed and reports it, until ctx ends.
func (m *Manual) Run(ctx context.Context, events chan<- Event) error {
	results := make(chan resolved)
	told := map[string]Sighting{}
	m.mu.Lock()
	for _, e := range m.entries {
		e.busy, e.dueAt = false, time.Now()
	}
	m.mu.Unlock()
	for {
		next := m.resolveDue(ctx, results)
		for _, e := range m.news(told) {
			select {
			case <-ctx.Done():
				return nil
			case events <- e:
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-timer:
		case r := <-results:
			m.take(r)
		}
	}
}

// resolveDue starts the lookups that are due, a few at once, and says when the next will be.
func (m *Manual) resolveDue(ctx context.Context, results chan<- resolved) (next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, busy := time.Now(), 0
	for _, e := range m.entries {
		if e.busy {
			busy++
		}
	}
	for listed, e := range m.entries {
		if e.busy || e.dueAt.IsZero() {
			continue
		}
		if now.Before(e.dueAt) {
			next = earlier(next, e.dueAt)
			continue
		}
		if a, err := netip.ParseAddr(e.host); err == nil {
			e.addresses, e.seen, e.dueAt = []netip.AddrPort{netip.AddrPortFrom(a, e.port)}, now, time.Time{}
			continue
		}
		if busy == resolveAtOnce {
			continue // a result will come and call here again
		}
		busy++
		e.busy = true
		go func() {
			timed, cancel := context.WithTimeout(ctx, resolveTimeout)
			defer cancel()
			addresses, err := m.resolver.LookupNetIP(timed, "ip", e.host)
			select {
			case results <- resolved{listed, addresses, err}:
			case <-ctx.Done():
			}
		}()
	}
	return next
}

func (m *Manual) take(r resolved) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[r.listed]
	if e == nil {
		return // removed meanwhile
	}
	e.busy = false
	if r.err != nil {
		// The old addresses stay: a failing resolver does not move the host.
		e.failures++
		wait := min(manualRetry<<min(e.failures-1, 5), manualAgain)
		e.dueAt = time.Now().Add(wait + rand.N(wait/4))
		return
	}
	e.failures, e.seen, e.addresses = 0, time.Now(), nil
	e.dueAt = e.seen.Add(manualAgain + rand.N(manualAgain/4))
	for _, a := range r.addresses {
		if a = a.Unmap(); !a.IsUnspecified() && !a.IsMulticast() && len(e.addresses) < maxAddresses {
			e.addresses = append(e.addresses, netip.AddrPortFrom(a, e.port))
		}
	}
}

// news compares the list with what was told.
func (m *Manual) news(told map[string]Sighting) (events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Sighting
	for _, listed := range slices.Sorted(maps.Keys(m.entries)) {
		e := m.entries[listed]
		all = append(all, Sighting{Name: listed, ID: e.id, Source: ManualSource, Addresses: e.addresses, Seen: e.seen})
	}
	return changes(told, union(all)) // once identified, two addresses may be one cluster
}

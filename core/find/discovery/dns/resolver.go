package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	resolvConf   = "/etc/resolv.conf"
	askTimeout   = 2 * time.Second // for one question to one server, which is asked twice
	rounds       = 2
	restFor      = time.Minute // that a server which does not answer comes last
	maxServers   = 4
	maxStray     = 64   // packets that are no answer, until one is no longer waited for
	ednsUDPBytes = 1232 // fits every path unfragmented
)

// resolver asks the system's name servers itself, because package net tells no TTLs. It remembers what they say.
type resolver struct {
	memory
	servers  []string // instead of the system's
	exchange func(ctx context.Context, server string, q question) (answer, error)

	resting struct {
		sync.Mutex
		since map[string]time.Time // by server that did not answer
	}
}

func newResolver(servers []string) *resolver {
	r := &resolver{memory: memory{kept: map[question]*kept{}}, servers: servers, exchange: exchange}
	r.resting.since = map[string]time.Time{}
	return r
}

// current are the servers to ask, those that answered of late first.
func (r *resolver) current() (out []string, err error) {
	if out = slices.Clone(r.servers); len(out) == 0 {
		if out, err = nameServers(); err != nil {
			return nil, err
		}
	}
	r.resting.Lock()
	defer r.resting.Unlock()
	for server, since := range r.resting.since {
		if time.Since(since) > restFor {
			delete(r.resting.since, server)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int {
		_, restsA := r.resting.since[a]
		_, restsB := r.resting.since[b]
		switch {
		case restsA == restsB:
			return 0
		case restsA:
			return 1
		}
		return -1
	})
	return out, nil
}

// nameServers are the system's: the lines "nameserver ADDRESS" of resolv.conf(5).
func nameServers() (out []string, err error) {
	conf, err := os.ReadFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("the name servers are not known: %w", err)
	}
	for line := range strings.Lines(string(conf)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" && len(out) < maxServers {
			out = append(out, net.JoinHostPort(f[1], "53"))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no name server", resolvConf)
	}
	return out, nil
}

// query asks the servers in turn until one answers. That there are no such records is an answer; an error means that nobody would say.
func (r *resolver) query(ctx context.Context, q question) (answer, error) {
	servers, err := r.current()
	if err != nil {
		return answer{}, err
	}
	why := map[string]error{}
	for range rounds {
		for _, server := range servers {
			if last := why[server]; last != nil && !timedOut(last) {
				continue // a packet may be lost; another answer will not come
			}
			a, err := r.exchange(ctx, server, q)
			if a.server = server; err == nil {
				return a, nil
			}
			why[server] = err
			if ctx.Err() != nil {
				break
			}
			if timedOut(err) || errors.Is(err, syscall.ECONNREFUSED) {
				r.resting.Lock()
				r.resting.since[server] = time.Now()
				r.resting.Unlock()
			}
		}
	}
	var words []string
	for _, server := range servers {
		if err := why[server]; err != nil {
			words = append(words, fmt.Sprintf("name server %s: %s", shown(server), reason(err)))
		}
	}
	return answer{}, fmt.Errorf("%s: %s", q, strings.Join(words, "; "))
}

// shown is a server as its user wrote it.
func shown(server string) string {
	if host, port, err := net.SplitHostPort(server); err == nil && port == "53" {
		return host
	}
	return server
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// reason is what went wrong with a server, for people.
func reason(err error) string {
	switch {
	case timedOut(err):
		return "no answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused, no name server listens there"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route"
	}
	return err.Error()
}

// exchange asks one server: by UDP, by TCP what is too long for that, and without extensions whoever does not know them.
func exchange(ctx context.Context, server string, q question) (answer, error) {
	network, extended := "udp", true
	for {
		a, err := exchangeOnce(ctx, server, network, extended, q)
		var f failure
		switch {
		case errors.Is(err, errTruncated) && network == "udp":
			network = "tcp"
		case errors.As(err, &f) && f.basic && extended:
			extended = false
		default:
			return a, err
		}
	}
}

func exchangeOnce(ctx context.Context, server, network string, extended bool, q question) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return answer{}, err
	}
	defer raw.Close()
	deadline, _ := ctx.Deadline()
	raw.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })()
	id := uint16(rand.Uint32())
	packet, err := packetOf(id, q, extended)
	if err != nil {
		return answer{}, err
	}
	conn := exchanger{raw, network == "tcp"}
	if err := conn.write(packet); err != nil {
		return answer{}, err
	}
	for range maxStray {
		reply, err := conn.read()
		if err != nil {
			return answer{}, err
		}
		m, err := decode(reply)
		if err != nil {
			if conn.stream {
				return answer{}, err
			}
			continue // anybody can send a packet from the server's address
		}
		a, err := read(m, id, q)
		if errors.Is(err, errOther) && !conn.stream {
			continue
		}
		return a, err
	}
	return answer{}, errors.New("only packets that are no answer")
}

// packetOf is the packet of a question; extended: it says how long an answer may be (EDNS, RFC 6891).
func packetOf(id uint16, q question, extended bool) ([]byte, error) {
	name, err := dnsmessage.NewName(q.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: q.qtype, Class: dnsmessage.ClassINET}},
	}
	if extended {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(ednsUDPBytes, dnsmessage.RCodeSuccess, false); err != nil {
			return nil, err
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	return m.Pack()
}

// exchanger carries messages: each is a packet, or in a stream, where its length is before it (RFC 1035 section 4.2.2).
type exchanger struct {
	net.Conn
	stream bool
}

func (c exchanger) write(message []byte) error {
	if c.stream {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	_, err := c.Write(message)
	return err
}

func (c exchanger) read() ([]byte, error) {
	if !c.stream {
		packet := make([]byte, ednsUDPBytes)
		n, err := c.Read(packet)
		return packet[:n], err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(c, message)
	return message, err
}

package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Server is the server. Safe for concurrent use.
type Server struct {
	upstream netip.AddrPort // the cluster's DNS
	log      *slog.Logger
	limits   limits
	long     chan struct{} // has an element for each answer by TCP that is under way
	guests   atomic.Pointer[map[netip.Addr]*Tenant]
}

// New makes a server that asks the cluster's DNS at this address.
func New(dns netip.Addr, log *slog.Logger) *Server {
	s := &Server{upstream: netip.AddrPortFrom(dns, 53), log: log, long: make(chan struct{}, longUnderWay)}
	s.guests.Store(&map[netip.Addr]*Tenant{})
	return s
}

// Tell says whose guests there are. The tenants are the server's from now on.
func (s *Server) Tell(guests map[netip.Addr]*Tenant) {
	for _, t := range guests {
		if t.at == nil { // several may have the same
			t.ready()
		}
	}
	s.guests.Store(&guests)
	s.limits.keep(func(a netip.Addr) bool { return guests[a] != nil })
}

const (
	patience = 5 * time.Second  // for the cluster's DNS, which may have to ask others
	idle     = 10 * time.Second // of a connection by TCP
	mostTCP  = 1 << 16
	mostUDP  = 4096
)

// Serve answers at a port of this address, of UDP and of TCP, until ctx ends. It says which to listens, whose context ends when nobody
// answers there any more.
func (s *Server) Serve(ctx context.Context, at netip.Addr, listens func(ctx context.Context, port uint16)) error {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		return fmt.Errorf("answer guests' questions to DNS: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, port)))
	if err != nil {
		l.Close()
		return fmt.Errorf("answer guests' questions to DNS: %w", err) // another has it: the next try has another
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(ctx, func() { l.Close(); u.Close() })
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { end(s.byUDP(ctx, u)) })
	all.Go(func() { end(s.byTCP(ctx, l)) })
	listens(ctx, port)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("answer guests' questions to DNS: %w", err)
	}
	return nil
}

func (s *Server) tenant(from netip.Addr) *Tenant { return (*s.guests.Load())[from.Unmap()] }

func (s *Server) byUDP(ctx context.Context, u *net.UDPConn) error {
	buf := make([]byte, mostAsked+1)
	for {
		n, from, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		guest := from.Addr().Unmap()
		t := s.tenant(guest)
		if t == nil || n < headerSize || n > mostAsked || buf[2]&flagQR != 0 || !s.limits.enter(guest) {
			continue // it asks again
		}
		asked := append([]byte(nil), buf[:n]...)
		go func() {
			defer s.limits.leave(guest)
			if answer := s.answer(ctx, guest, t, asked, "udp4", room(asked)); answer != nil {
				_, _ = u.WriteToUDPAddrPort(answer, from)
			}
		}()
	}
}

func (s *Server) byTCP(ctx context.Context, l *net.TCPListener) error {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return err
		}
		guest := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if s.tenant(guest) == nil || !s.limits.enter(guest) {
			c.Close()
			continue
		}
		go func() {
			defer s.limits.leave(guest)
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			for s.one(ctx, guest, c) == nil {
			}
		}()
	}
}

// one answers the next question of a connection.
func (s *Server) one(ctx context.Context, guest netip.Addr, c *net.TCPConn) error {
	_ = c.SetDeadline(time.Now().Add(idle))
	asked, err := receive(c, mostAsked)
	t := s.tenant(guest)
	if err != nil || t == nil {
		return errors.Join(err, errNoQuestion)
	}
	answer := s.answer(ctx, guest, t, asked, "tcp4", mostTCP-1)
	if answer == nil {
		return errNoQuestion
	}
	return send(c, answer)
}

// answer is what a guest gets; nil is nothing.
func (s *Server) answer(ctx context.Context, guest netip.Addr, t *Tenant, asked []byte, by string, most int) []byte {
	q, answer, err := read(t, asked)
	if err != nil {
		return nil
	}
	if answer != nil {
		return answer
	}
	var header dnsmessage.Header
	header.ID = binary.BigEndian.Uint16(asked)
	if !s.limits.allows(guest, q.asked.Name.String()) {
		return q.refusal(header, dnsmessage.RCodeRefused)
	}
	said, err := s.ask(ctx, by, q.ask)
	if err == nil {
		binary.BigEndian.PutUint16(said, header.ID)
		answer, err = q.back(said, most)
	}
	if err != nil {
		s.log.Debug("a guest's question to DNS was not answered", "guest", guest, "name", q.asked.Name.String(), "err", err)
		return q.refusal(header, dnsmessage.RCodeServerFailure)
	}
	return answer
}

// ask asks the cluster's DNS, from a port and by a number that nobody knows.
func (s *Server) ask(ctx context.Context, by string, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, by, s.upstream.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	until, _ := ctx.Deadline()
	_ = c.SetDeadline(until)
	id := uint16(rand.Uint32())
	binary.BigEndian.PutUint16(question, id)
	if by == "tcp4" {
		select {
		case s.long <- struct{}{}:
			defer func() { <-s.long }()
		default:
			return nil, errors.New("too many long answers are under way")
		}
		if err := send(c, question); err != nil {
			return nil, err
		}
		said, err := receive(c, mostTCP)
		if err == nil && !answers(said, id) {
			err = errors.New("the cluster's DNS answered something else")
		}
		return said, err
	}
	if _, err := c.Write(question); err != nil {
		return nil, err
	}
	buf := make([]byte, mostUDP+1)
	for {
		n, err := c.Read(buf)
		switch {
		case err != nil:
			return nil, err
		case !answers(buf[:n], id):
		case n > mostUDP:
			return truncated(question), nil
		default:
			return buf[:n:n], nil
		}
	}
}

func answers(said []byte, id uint16) bool {
	return len(said) >= headerSize && binary.BigEndian.Uint16(said) == id && said[2]&flagQR != 0
}

// send and receive are of a message by TCP (RFC 1035, 4.2.2).
func send(c net.Conn, m []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}

func receive(c net.Conn, most int) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < headerSize || n > most {
		return nil, errNoQuestion
	}
	m := make([]byte, n)
	_, err := io.ReadFull(c, m)
	return m, err
}

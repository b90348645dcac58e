package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/localapi"
)

func TestWhoMayUseWhatWasOpened(t *testing.T) {
	const alice, mallory = 1000, 1001
	for name, c := range map[string]struct {
		opened, comes int
		want          bool
	}{
		"its own":                      {alice, alice, true},
		"another user":                 {alice, mallory, false},
		"root":                         {alice, 0, true},
		"of root, to whom it was told": {0, mallory, true},
		"where nobody knows":           {alice, anybody, true},
	} {
		if got := (visit{Visitor: localapi.Visitor{UID: c.opened}}).admits(c.comes); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnotherUsersConnectionIsCut(t *testing.T) {
	s := New(Options{Log: quiet, Changed: func() {}})
	defer s.Close()
	var mu sync.Mutex
	who, failed := 1000, error(nil)
	s.owner = func(net.Conn) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return who, failed
	}
	comes := func(uid int, err error) {
		mu.Lock()
		defer mu.Unlock()
		who, failed = uid, err
	}
	opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, ticket := at(t, opened.URL)
	try := func() error {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := c.Do(b.request("GET", "/", ""))
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := try(); err != nil {
		t.Error(err)
	}
	comes(1001, nil)
	if try() == nil {
		t.Error("another user is answered")
	}
	comes(0, errors.New("it is closed"))
	if try() == nil {
		t.Error("somebody unknown is answered")
	}
	// With root's beside it a connection is taken, and the ticket is of no use to another all the same.
	comes(1001, nil)
	if _, err := s.Open(localapi.Visitor{UID: 0}, api.WebOptions{}); err != nil {
		t.Fatal(err)
	}
	if status, _ := b.redeem(ticket); status != http.StatusUnauthorized {
		t.Errorf("another's ticket: %d", status)
	}
	comes(1000, nil)
	status, token := b.redeem(ticket)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	comes(1001, nil)
	b.token = token.Token
	if status, _ := b.call("GET", "/api/v1/snapshot", ""); status != http.StatusUnauthorized {
		t.Errorf("another's token: %d", status)
	}
}

// A connection may come at the very moment at which nobody uses the page any more.
// TestWhereNobodyKnowsTheOwnerNoPageIsOpened: an address that no browser gets through to is none.
func TestWhereNobodyKnowsTheOwnerNoPageIsOpened(t *testing.T) {
	s := New(Options{Log: quiet, Changed: func() {}})
	defer s.Close()
	s.owner = func(net.Conn) (int, error) { return 0, errors.New("the kernel has no sock_diag") }
	for range 2 {
		var e *api.Error
		if opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{}); !errors.As(err, &e) || !strings.Contains(e.Reason, "sock_diag") || s.Address() != "" || len(s.tickets) != 0 {
			t.Errorf("%+v, %v, at %q", opened, err, s.Address())
		}
	}
	s.owner = owner
	if _, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAConnectionThatIsBeingAdmittedHoldsUpNobody(t *testing.T) {
	s := New(Options{Log: quiet, Changed: func() {}})
	came, goOn := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	s.owner = func(net.Conn) (int, error) {
		if hold.Load() {
			close(came)
			<-goOn
		}
		return 1000, nil
	}
	opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hold.Store(true) // from the first connection of another on
	b, _ := at(t, opened.URL)
	conn, err := net.Dial("tcp4", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-came
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	for s.Address() != "" {
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("the page is not closed")
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes after the end", n)
	}
}

// network is connections in memory, for clocks that are not waited for.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newNetwork() *network { return &network{make(chan net.Conn), make(chan struct{})} }

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}
func (n *network) Close() error   { close(n.closed); return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7777} }

func (n *network) dial() net.Conn {
	here, there := net.Pipe()
	n.conns <- there
	return here
}

func timed(t *testing.T) (*Server, *network) {
	s, n := New(Options{Log: quiet, Changed: func() {}}), newNetwork()
	s.listen = func() (net.Listener, error) { n = newNetwork(); return n, nil }
	s.owner = func(net.Conn) (int, error) { return 1000, nil }
	t.Cleanup(s.Close)
	return s, n
}

func TestATicketIsGoodForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := timed(t)
		opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, ticket := at(t, opened.URL)
		time.Sleep(ticketLife - time.Nanosecond)
		if s.Address() == "" {
			t.Error("it is gone too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, e := s.redeem(ticket, 1000); e == nil || s.Address() != "" {
			t.Errorf("%v, it is at %q", e, s.Address())
		}
		if s.timer != nil {
			t.Error("a timer runs for nothing")
		}
	})
}

func TestAPageThatNobodyUsesIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := timed(t)
		open := func() string {
			opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, ticket := at(t, opened.URL)
			token, e := s.redeem(ticket, 1000)
			if e != nil {
				t.Fatal(e)
			}
			return token.Token
		}
		token := open()
		for range 3 {
			time.Sleep(idle - time.Second)
			_, done, e := s.begin(token, 1000)
			if e != nil {
				t.Fatal(e)
			}
			time.Sleep(24 * time.Hour) // a stream is under way: the page is shown
			done()
		}
		time.Sleep(idle - time.Second)
		if s.Address() == "" {
			t.Error("it was closed too early")
		}
		time.Sleep(2 * time.Second)
		if _, _, e := s.begin(token, 1000); e == nil || s.Address() != "" || s.timer != nil {
			t.Errorf("%v, it is at %q", e, s.Address())
		}
		if again := open(); s.Address() == "" || again == token {
			t.Error("it cannot be opened again")
		}
	})
}

func TestSlowClientsAreCut(t *testing.T) {
	for name, sent := range map[string]string{
		"no request":            "",
		"half a header":         "GET / HTTP/1.1\r\nHost: 127.0.0.1:7777\r\n",
		"half a body":           "POST /session HTTP/1.1\r\nHost: 127.0.0.1:7777\r\nContent-Length: 100\r\n\r\n{",
		"an answer is not read": "GET / HTTP/1.1\r\nHost: 127.0.0.1:7777\r\n\r\n",
		"nothing more":          "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1:7777\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := timed(t)
				s.listen = func() (net.Listener, error) { return n, nil }
				if _, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{}); err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				s.sessions[secret{}] = &session{calls: 1} // the page is shown for long
				s.mu.Unlock()
				conn := n.dial()
				defer conn.Close()
				conn.SetWriteDeadline(time.Now().Add(time.Hour))
				if _, err := io.WriteString(conn, sent); err != nil {
					t.Fatal(err)
				}
				if name == "nothing more" {
					conn.Read(make([]byte, 1<<16))
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if _, err := io.WriteString(conn, "x"); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("it is still held: %v", err)
				}
			})
		})
	}
}

package peering

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

// raw is a TLS connection on which tests write what they like, in HTTP/1.1.
func raw(t testing.TB, who *identity.Identity, d *daemon) *tls.Conn {
	t.Helper()
	config := who.ClientTLS(d.ID())
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", d.addr, config)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return conn
}

// preface begins HTTP/2: the magic words and an empty SETTINGS frame (RFC 9113 section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// isCut reads until the server cuts, long before a caller without deadlines of its own would give up.
func isCut(t testing.TB, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, conn)
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		t.Fatal("the server does not cut")
	}
}

func TestSlowCallersAreCut(t *testing.T) {
	t.Parallel()
	alice := someone(t)
	bob := bob(t, Limits{HeaderTimeout: 400 * time.Millisecond, BodyTimeout: 400 * time.Millisecond, IdleTimeout: 600 * time.Millisecond})
	t.Run("no handshake", func(t *testing.T) {
		conn, err := net.Dial("tcp", bob.addr)
		must(t, err)
		defer conn.Close()
		isCut(t, conn)
	})
	t.Run("half a handshake", func(t *testing.T) {
		conn, err := net.Dial("tcp", bob.addr)
		must(t, err)
		defer conn.Close()
		conn.Write([]byte{0x16, 3, 1, 2, 0, 1, 0}) // a record that announces more
		isCut(t, conn)
	})
	t.Run("headers drop by drop", func(t *testing.T) {
		conn := raw(t, alice, bob)
		fmt.Fprint(conn, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n")
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					fmt.Fprintf(conn, "X-%d: y\r\n", i)
				}
			}
		}()
		isCut(t, conn)
	})
	t.Run("body drop by drop", func(t *testing.T) {
		conn := raw(t, alice, bob)
		fmt.Fprint(conn, "POST /kith/v2/requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		isCut(t, conn)
	})
	t.Run("a body nobody asked for", func(t *testing.T) {
		conn := raw(t, alice, bob)
		fmt.Fprint(conn, "GET /kith/v2/presence HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		isCut(t, conn)
	})
	t.Run("idle", func(t *testing.T) {
		conn := raw(t, alice, bob)
		fmt.Fprint(conn, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
		isCut(t, conn)
	})
	t.Run("idle HTTP/2", func(t *testing.T) {
		conn, err := tls.Dial("tcp", bob.addr, alice.ClientTLS(bob.ID()))
		must(t, err)
		defer conn.Close()
		conn.Write([]byte(preface))
		isCut(t, conn)
	})
	t.Run("half a frame of HTTP/2", func(t *testing.T) {
		conn, err := tls.Dial("tcp", bob.addr, alice.ClientTLS(bob.ID()))
		must(t, err)
		defer conn.Close()
		conn.Write([]byte(preface + "\x00\x10\x00\x01\x04\x00\x00\x00\x01")) // the head of a header frame
		isCut(t, conn)
	})
	t.Run("body drop by drop in HTTP/2", func(t *testing.T) {
		client := dialer(t, alice, bob.ID(), bob.addr)
		pr, pw := io.Pipe()
		defer pw.Close()
		go pw.Write([]byte("{"))
		req, err := http.NewRequest(http.MethodPost, client.BaseURL()+"/kith/v2/requests", pr)
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Transport().RoundTrip(req.WithContext(within(t, patience)))
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the server does not cut")
		} else if err == nil {
			defer resp.Body.Close()
			wantProblem(t, readProblem(resp), CodeBadRequest)
		}
	})
	if _, err := dialer(t, alice, bob.ID(), bob.addr).Hello(within(t, patience)); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestALongCallOutlivesTheDeadlineOfItsBody(t *testing.T) {
	t.Parallel()
	alice := someone(t)
	short := Limits{BodyTimeout: 200 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 300 * time.Millisecond}
	bob := bob(t, short, func(s *Server) {
		s.call("POST /kith/v2/slow", callTimeout, func(w http.ResponseWriter, r *http.Request, _ Caller) (message, error) {
			var in Opened
			if err := read(w, r, &in); err != nil {
				return nil, err
			}
			select {
			case <-time.After(time.Second):
				return &in, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
	})
	conn := raw(t, alice, bob)
	body := `{"id":"a","commitment":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`
	fmt.Fprintf(conn, "POST /kith/v2/slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if err := dialer(t, alice, bob.ID(), bob.addr).Call(within(t, patience), "POST", "/kith/v2/slow", &Opened{"a", make([]byte, 32)}, &Opened{}); err != nil {
		t.Errorf("HTTP/2: %v", err)
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{AskRate: Rate{1000, 1000}})
	client := dialer(t, alice, bob.ID(), bob.addr)
	send := func(contentType string, body io.Reader) error {
		req, err := http.NewRequestWithContext(within(t, patience), http.MethodPost, client.BaseURL()+"/kith/v2/requests/x/question", body)
		must(t, err)
		req.Header.Set("Content-Type", contentType)
		resp, err := client.Transport().RoundTrip(req)
		must(t, err)
		defer resp.Body.Close()
		if resp.StatusCode < 300 {
			return nil
		}
		return readProblem(resp)
	}
	wantProblem(t, send("application/json", bytes.NewReader(make([]byte, MaxMessage+1))), CodeTooLarge)
	wantProblem(t, send("application/json", strings.NewReader("\xff\xfe\x00garbage")), CodeBadRequest)
	wantProblem(t, send("text/plain", strings.NewReader("{}")), CodeBadRequest)
	wantProblem(t, send("application/json", strings.NewReader(`{"nonce":"AA=="}`)), CodeBadRequest)
	wantProblem(t, send("application/json", nil), CodeBadRequest)
	if len(bob.asks()) != 0 {
		t.Error("garbage came before the owner")
	}
}

func TestTooMuchHeaderAndNoTLSAndCutTLS(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{HeaderTimeout: time.Second})
	conn := raw(t, alice, bob)
	fmt.Fprint(conn, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n")
	io.WriteString(conn, "X-Much: "+strings.Repeat("x", 40<<10)+"\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Error(resp.Status)
		}
	}

	plainText, err := net.Dial("tcp", bob.addr)
	must(t, err)
	defer plainText.Close()
	fmt.Fprint(plainText, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, _ := io.ReadAll(plainText); bytes.Contains(answer, []byte("kith/v1")) {
		t.Errorf("%s", answer)
	}

	// A handshake that breaks off in its middle.
	cut, err := net.Dial("tcp", bob.addr)
	must(t, err)
	limited := &cutConn{Conn: cut, left: 300}
	if tls.Client(limited, alice.ClientTLS(bob.ID())).Handshake() == nil {
		t.Error("a cut handshake passes")
	}
	cut.Close()

	anonymous := alice.ClientTLS(bob.ID())
	anonymous.Certificates = nil
	if c, err := tls.Dial("tcp", bob.addr, anonymous); err == nil {
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without a certificate there is an answer, or the connection stays: %v", err)
		}
		c.Close()
	}
	if _, err := dialer(t, alice, bob.ID(), bob.addr).Hello(within(t, patience)); err != nil {
		t.Errorf("after all that: %v", err)
	}
	eventually(t, "the log names the failed handshakes", func() bool {
		return strings.Contains(bob.log.String(), "TLS handshake")
	})
}

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if len(p) > c.left {
		c.Conn.Write(p[:c.left])
		c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	c.left -= len(p)
	return c.Conn.Write(p)
}

func TestRatesAreLimitedPerCaller(t *testing.T) {
	alice, carol := someone(t), someone(t)
	bob := bob(t, Limits{CallerRate: Rate{0.01, 5}, AskRate: Rate{0.01, 1}})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, patience)
	for range 5 {
		if _, err := client.Hello(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		_, err := client.Hello(ctx)
		wantProblem(t, err, CodeRateLimited)
	}
	if n := strings.Count(bob.log.String(), "refused"); n != 1 {
		t.Errorf("%d refusals are logged, want 1:\n%s", n, bob.log.String())
	}
	if text := bob.log.String(); !strings.Contains(text, "id="+alice.ID().String()) || !strings.Contains(text, "addr=127.0.0.1:") {
		t.Error(text)
	}
	other := dialer(t, carol, bob.ID(), bob.addr)
	if _, err := other.Ask(ctx, someQuestion(), true, goOn); err != nil {
		t.Errorf("alice's calls count against carol: %v", err)
	}
	_, err := other.Ask(ctx, someQuestion(), true, goOn)
	wantProblem(t, err, CodeRateLimited)
	// A fresh key does not help at the same address.
	_, err = dialer(t, someone(t), bob.ID(), bob.addr).Ask(ctx, someQuestion(), true, goOn)
	wantProblem(t, err, CodeRateLimited)
}

func TestWhoDoesNotLearnFromRefusalsIsCut(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{CallerRate: Rate{0.0001, 1}})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, patience)
	stream, err := client.presence(ctx)
	must(t, err)
	defer stream.close()
	for range maxRefusals {
		_, err := client.Hello(ctx)
		wantProblem(t, err, CodeRateLimited)
	}
	client.mu.Lock()
	n := len(client.conns)
	client.mu.Unlock()
	if n != 1 {
		t.Errorf("%d connections: a refusal costs a handshake", n)
	}
	client.Hello(ctx)
	if _, err := stream.next(nil); err == nil {
		t.Error("it is still connected")
	}
}

func TestMetersForgetTheOldestKey(t *testing.T) {
	m := newLimiters[int](Rate{0.001, 1})
	if !m.allow(0) || m.allow(0) {
		t.Fatal("the burst is not 1")
	}
	for i := range maxLimiters {
		m.allow(i + 1)
	}
	if len(m.known) != maxLimiters || m.order.Len() != maxLimiters {
		t.Errorf("%d keys", len(m.known))
	}
	if !m.allow(0) {
		t.Error("the oldest key is still known")
	}
	if m.allow(maxLimiters) {
		t.Error("the newest key is not known")
	}
}

// knock connects; nil when it was reset so fast that the dial saw it.
func knock(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func alive(conn net.Conn) bool {
	if conn == nil {
		return false
	}
	conn.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	bob := bob(t, Limits{ConnsPerIP: 3})
	var conns []net.Conn
	for range 5 {
		conns = append(conns, knock(t, bob.addr))
	}
	for i, conn := range conns {
		if alive(conn) != (i < 3) {
			t.Errorf("connection %d: alive %v", i, i >= 3)
		}
	}
	conns[0].Close()
	eventually(t, "a place is free again", func() bool {
		return alive(knock(t, bob.addr))
	})
}

func TestNewConnectionsPerAddressAreLimited(t *testing.T) {
	bob := bob(t, Limits{ConnRate: Rate{0.01, 2}})
	for i := range 4 {
		if alive(knock(t, bob.addr)) != (i < 2) {
			t.Errorf("connection %d", i)
		}
	}
}

func TestConnectionsPerCallerAreLimited(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{ConnsPerCaller: 2})
	ask := func(conn net.Conn) int {
		fmt.Fprint(conn, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	first, second, third := raw(t, alice, bob), raw(t, alice, bob), raw(t, alice, bob)
	for i, c := range []struct {
		conn net.Conn
		want int
	}{{first, 200}, {second, 200}, {third, 429}, {first, 200}} {
		if got := ask(c.conn); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
	first.Close()
	eventually(t, "a place is free again", func() bool { return ask(raw(t, alice, bob)) == 200 })
}

// An attacker with many keys fills the room of strangers. Who is recognised stays, who is new gets in.
func TestStrangersGiveWayAndFriendsStay(t *testing.T) {
	friend := someone(t)
	bob := bob(t, Limits{Strangers: 4})
	bob.recognised[friend.ID()] = true
	before := dialer(t, friend, bob.ID(), bob.addr)
	stream, err := before.presence(within(t, patience))
	must(t, err)
	defer stream.close()

	var crowd []net.Conn
	for range 12 {
		conn, err := net.Dial("tcp", bob.addr)
		must(t, err)
		defer conn.Close()
		crowd = append(crowd, conn)
	}
	time.Sleep(100 * time.Millisecond)
	for i, conn := range crowd {
		if alive(conn) != (i >= 8) {
			t.Errorf("stranger %d: alive %v", i, i < 8)
		}
	}
	bob.tell(friend.ID(), Notice{Type: NoticeContractChanged})
	if n, err := stream.next(nil); err != nil || n.Type != NoticeContractChanged {
		t.Errorf("the friend was pushed out: %+v, %v", n, err)
	}
	if _, err := dialer(t, friend, bob.ID(), bob.addr).Hello(within(t, patience)); err != nil {
		t.Errorf("the friend does not get in again: %v", err)
	}
}

func TestStreamsAndPollsPerCallerAreLimited(t *testing.T) {
	alice := someone(t)
	bob := bob(t, Limits{Presences: 1, Polls: 1, Requests: 1}, func(s *Server) {
		s.Handle("GET /kith/v2/wait", func(w http.ResponseWriter, r *http.Request, _ Caller) {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
	})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx, cancel := context.WithCancel(within(t, patience))
	defer cancel()
	stream, err := client.presence(ctx)
	must(t, err)
	defer stream.close()
	_, err = client.presence(ctx)
	wantProblem(t, err, CodeRateLimited)
	client = dialer(t, alice, bob.ID(), bob.addr)

	asked, err := client.Ask(ctx, someQuestion(), true, goOn)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil { // the other may have come first
			client.Outcome(ctx, asked.RequestID)
		}
	})
	eventually(t, "the second poll is refused", func() bool {
		short, done := context.WithTimeout(ctx, 100*time.Millisecond)
		defer done()
		_, err := dialer(t, alice, bob.ID(), bob.addr).Outcome(short, asked.RequestID)
		return errors.Is(err, &Problem{Code: CodeRateLimited})
	})
	get := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, client.BaseURL()+"/kith/v2/wait", nil)
		must(t, err)
		return client.Transport().RoundTrip(req)
	}
	first, err := get()
	must(t, err)
	defer first.Body.Close()
	second, err := get()
	must(t, err)
	defer second.Body.Close()
	if first.StatusCode != 200 || second.StatusCode != 429 {
		t.Errorf("%s, %s", first.Status, second.Status)
	}
	cancel()
	wg.Wait()
	eventually(t, "nothing is counted any more", func() bool {
		bob.server.inFlight.mu.Lock()
		defer bob.server.inFlight.mu.Unlock()
		for key := range bob.server.inFlight.n {
			if key.of != "connections" {
				return false
			}
		}
		return true
	})
}

func TestCountsReturnToZero(t *testing.T) {
	alice := someone(t)
	who := someone(t)
	server := NewServer(ServerConfig{Identity: who, Name: func() string { return "bob" }, Handler: newMemory(who), Log: quiet()})
	l := listen(t, "127.0.0.1:0")
	g := newLimitedListener(l, server.limits, server.refusals)
	defer g.Close()
	server.config.Handler.(*memory).recognised[alice.ID()] = true
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, g) }() // a listener in a listener: the outer is the one we look into
	for range 20 {
		client := dialer(t, alice, who.ID(), l.Addr().String())
		if _, err := client.Hello(within(t, patience)); err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
	eventually(t, "all are forgotten", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		server.inFlight.mu.Lock()
		defer server.inFlight.mu.Unlock()
		return len(g.open) == 0 && g.strangers.Len() == 0 && len(g.perIP) == 0 && len(server.inFlight.n) == 0
	})
	cancel()
	must(t, <-done)
}

package peering

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

const helloTimeout = 12 * time.Second // from the dial to the first line

// stream is a presence stream: it lives as long as the peer's daemon and the way to it.
type stream struct {
	hello Hello
	conn  *net.TCPConn  // what it runs over, to ask for its round-trip time
	ahead time.Duration // the peer's clock, see clockOf
	asked time.Time
	lines *bufio.Reader
	each  func(presenceLine) error // called for every line after the first, nil for none; its error ends next
	body  io.Closer
	ctx   context.Context // of the request
	end   context.CancelCauseFunc
}

// presence opens the stream and reads the first line. The peer's ID and version have been checked.
func (c *Client) presence(ctx context.Context) (*stream, error) {
	ctx, end := context.WithCancelCause(ctx)
	late := time.AfterFunc(helloTimeout, func() { end(errNoAnswer) })
	defer late.Stop()
	s := &stream{ctx: ctx, end: end}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		s.asked = time.Now()
		if t, ok := info.Conn.(*tls.Conn); ok {
			if known, ok := t.NetConn().(*tracked); ok {
				s.conn, _ = known.Conn.(*net.TCPConn)
			}
		}
	}})
	err := c.openStream(traced, s)
	if other := (&Problem{Code: CodeVersion}); errors.Is(err, other) { // said in words of its own, which do not know who asks
		if _, said := c.Hello(ctx); errors.Is(said, other) {
			err = said
		}
	}
	if err != nil {
		s.close()
		return nil, c.failure(ctx, err)
	}
	return s, nil
}

func (c *Client) openStream(ctx context.Context, s *stream) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.BaseURL()+"/kith/v2/presence", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	s.body = resp.Body
	s.ahead, _ = clockOf(resp.Header, s.asked, time.Now())
	if resp.StatusCode >= 300 {
		return readProblem(resp)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/x-ndjson" {
		return fmt.Errorf("the peer's presence is %.64q, not lines of JSON", media)
	}
	s.lines = bufio.NewReaderSize(resp.Body, maxLine)
	first, err := s.line()
	if err != nil {
		return err
	}
	if first.Hello == nil {
		return errors.New("the peer's presence does not begin with who it is")
	}
	s.hello = *first.Hello
	return c.checkHello(&s.hello)
}

func (s *stream) close() {
	s.end(nil)
	if s.body != nil {
		s.body.Close()
	}
}

// next waits for a notice, or for the end.
func (s *stream) next() (Notice, error) {
	for {
		l, err := s.line()
		if err == nil && s.each != nil {
			err = s.each(l)
		}
		if err != nil {
			return Notice{}, err
		}
		if l.Notice != nil {
			return *l.Notice, nil
		}
	}
}

func (s *stream) line() (presenceLine, error) {
	data, err := s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return presenceLine{}, fmt.Errorf("the peer sent a line of more than %d bytes", maxLine)
	}
	if err != nil {
		return presenceLine{}, err
	}
	var l presenceLine
	if err := unmarshal(data, &l); err != nil {
		return presenceLine{}, fmt.Errorf("the peer's line cannot be used: %w", err)
	}
	return l, nil
}

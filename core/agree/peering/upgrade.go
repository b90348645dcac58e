package peering

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Upgrade asks the peer to leave HTTP for a protocol, on a connection of its own, which is the caller's afterwards. The peer's own no is a *Problem.
func (c *Client) Upgrade(ctx context.Context, path, protocol string) (net.Conn, error) {
	within, cancel := context.WithTimeoutCause(ctx, callTimeout, errNoAnswer)
	defer cancel()
	conn, err := c.DialTLS(within)
	if err != nil {
		return nil, c.failure(within, err)
	}
	stop := context.AfterFunc(within, func() { conn.SetDeadline(time.Unix(1, 0)) })
	req, err := http.NewRequest(http.MethodPost, c.BaseURL()+path, nil)
	var upgraded net.Conn
	if err == nil {
		upgraded, err = upgrade(conn, req, protocol)
	}
	if err == nil && !stop() {
		err = context.Cause(within)
	}
	if err != nil {
		conn.Close()
		return nil, c.failure(within, fmt.Errorf("%s: %w", protocol, err))
	}
	return upgraded, nil
}

func upgrade(conn net.Conn, req *http.Request, protocol string) (net.Conn, error) {
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &buffered{conn, in}, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return nil, fmt.Errorf("the peer answers %s, and does not speak it", resp.Status)
	}
	return nil, readProblem(resp)
}

// Upgrades reports whether a request asks for an upgrade to the protocol, before anything is done for it; the error is the answer when it does not.
func Upgrades(r *http.Request, protocol string) error {
	if r.Header.Get("Upgrade") != protocol || r.ProtoMajor != 1 {
		return Refuse(CodeBadRequest, "this call is an upgrade to "+protocol+", by HTTP/1.1", "")
	}
	return nil
}

// Upgraded answers a request of Upgrade, and gives the connection, which is the handler's from then on. After an error nothing is left to answer.
func Upgraded(w http.ResponseWriter, r *http.Request, protocol string) (net.Conn, error) {
	if err := Upgrades(r, protocol); err != nil {
		WriteProblem(w, err)
		return nil, err
	}
	conn, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		conn.Close()
		return nil, err
	}
	return &buffered{conn, rest.Reader}, nil
}

// buffered is a connection of which some was read already.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

// NetConn is what is below.
func (b *buffered) NetConn() net.Conn { return b.Conn }

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

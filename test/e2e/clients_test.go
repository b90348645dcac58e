//go:build lab

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// local is a client of a laptop's local API.
func local(p *lab.Laptop) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.Path(lab.Socket))
	}}}
}

// knock makes a TLS connection out of a laptop's network.
func knock(ctx context.Context, from *lab.Laptop, address string, config *tls.Config) (net.Conn, error) {
	tcp, err := from.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(tcp, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		tcp.Close()
		return nil, err
	}
	return conn, nil
}

// caller is a client with connections of its own to one address, whatever its URLs say; HTTP/2 where both can.
func caller(from *lab.Laptop, address string, config *tls.Config) *http.Client {
	return &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return knock(ctx, from, address, config)
	}}}
}

// logOf is what a laptop's kithd has logged so far.
func logOf(t *testing.T, p *lab.Laptop) string {
	t.Helper()
	var log bytes.Buffer
	if err := p.Logs(t.Context(), &log, "kithd", false); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

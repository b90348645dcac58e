package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Listen opens the TCP address at which Serve answers. One that other machines reach is refused unless public.
func Listen(address string, public bool) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("metricsAddress: %q is not an IP address and a port: %w", address, err)
	}
	if !at.Addr().IsLoopback() && !public {
		return nil, fmt.Errorf("metricsAddress: %s can be reached by other machines, and metrics have no password; set metricsPublic to allow it", at)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("open metricsAddress: %w; is another program at that port?", err)
	}
	return l, nil
}

// Serve answers GET /metrics at l, and closes it, until ctx ends.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	handler := m.Handler()
	if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil && at.Addr().IsLoopback() {
		handler = byAddress(handler)
	}
	mux.Handle("GET /metrics", handler)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics at %s: %w", l.Addr(), err)
	}
	return nil
}

// byAddress answers only those who asked for an address or localhost: a web page whose name was made to point at this
// machine must not read along (DNS rebinding). Who scrapes by a name can do so at the local API.
func byAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			http.Error(w, "ask for metrics by IP address, not by name", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

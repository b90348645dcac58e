package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"kith.dev/core/api/client"
)

// Probes answers a kubelet: /livez says whether this process does what it should, /readyz whether it could do its work. One that stands by for
// another is well on both. A Kubernetes that is away is no reason to be started again, so /livez does not ask for it.
type Probes struct {
	Readiness func(context.Context) error // of a process that is no Daemon; nil of one that is, or will be

	working atomic.Pointer[Daemon] // nil while it stands by
}

// probePatience is less than a kubelet has (timeoutSeconds of the chart).
const probePatience = 4 * time.Second

// Serve answers at an address until ctx ends.
func (p *Probes) Serve(ctx context.Context, address string) error {
	at, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("open healthAddress: %w; is another program at that port?", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", answer(p.alive))
	mux.HandleFunc("GET /readyz", answer(p.ready))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10}
	go func() {
		stop := context.AfterFunc(ctx, func() { server.Close() })
		defer stop()
		_ = server.Serve(at) // what it ends with, a kubelet sees
	}()
	return nil
}

// Of has the probes be about a Daemon that runs; nil: none does.
func (p *Probes) Of(d *Daemon) { p.working.Store(d) }

func answer(ask func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probePatience)
		defer cancel()
		if err := ask(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

func (p *Probes) alive(ctx context.Context) error {
	d := p.working.Load()
	if d == nil {
		return nil
	}
	c := client.New(d.cfg.Socket)
	defer c.Close()
	_, err := c.Version(ctx)
	return err
}

func (p *Probes) ready(ctx context.Context) error {
	if p.Readiness != nil {
		return p.Readiness(ctx)
	}
	if d := p.working.Load(); d != nil {
		if why := d.works(); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

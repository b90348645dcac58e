// Package images lets this laptop's engine ask the homes of guests for their images: it listens at a unix socket, beside the engine's own, and
// passes what is asked on to the home over the connection of the two. kith-image, which pulls for guests, asks there.
//
// It must never keep an image, believe what a home says of one (kith-image compares digests), or take a credential to a home.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/peering"
	"kith.dev/core/consume/images"
	"kith.dev/core/trust/identity"
)

// Socket is where kith-image asks, in the folder of the engine's sockets: the path /<consumer, compact>/<what images.Path leads to>.
const Socket = "homes.sock"

// silent is how long a home may take for its first word.
const silent = 15 * time.Second

// Homes passes requests on.
type Homes struct {
	Path string // of the socket
	// Client of a consumer's kithd, by its compact ID; false: it is nobody's here.
	Client func(consumer string) (*peering.Client, bool)
	// Rate is how many bytes per second may come from a consumer, in all; 0: no bound. allowed: something may, as far as is known now.
	Rate func(consumer string) (most int64, allowed bool)
	// Me is this cluster. Hands reports whether it may give a consumer's other peers parts of an image, named by its digest: the consumer's guests
	// run here from it, and its contract lets this be.
	Me    identity.ID
	Hands func(ctx context.Context, consumer, image string) bool
	Giver *images.Giver
	Log   *slog.Logger

	limits  sync.Map // by consumer, a *rate.Limiter
	buffers buffers
}

// buffers are those of answers under way.
type buffers struct{ pool sync.Pool }

// piece is what is passed on at once, in bytes: several records of TLS, so that kith-image wakes up less often.
const piece = 1 << 20

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if old, is := b.pool.Get().(*[]byte); is {
		return *old
	}
	return make([]byte, piece)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(old []byte) { b.pool.Put(&old) }

// whole fills what it reads into, as far as that does not take long.
type whole struct{ io.ReadCloser }

const soon = 200 * time.Millisecond

func (w whole) Read(b []byte) (n int, err error) {
	for began := time.Now(); n < len(b) && err == nil && time.Since(began) < soon; {
		var more int
		more, err = w.ReadCloser.Read(b[n:])
		n += more
	}
	return n, err
}

// Run listens until ctx ends.
func (h *Homes) Run(ctx context.Context) error {
	if err := os.Remove(h.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket for images of homes: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(h.Path), 0o711); err != nil {
		return fmt.Errorf("socket for images of homes: %w", err)
	}
	listener, err := net.Listen("unix", h.Path)
	if err != nil {
		return fmt.Errorf("socket for images of homes: %w", err)
	}
	if err := os.Chmod(h.Path, 0o600); err != nil {
		listener.Close()
		return fmt.Errorf("socket for images of homes: %w", err)
	}
	server := &http.Server{ConnContext: roomy, Handler: http.HandlerFunc(h.serve), ReadHeaderTimeout: silent, ErrorLog: slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// roomy lets a connection hold several pieces, so that who writes and who reads need not take turns.
func roomy(ctx context.Context, conn net.Conn) context.Context {
	if c, is := conn.(*net.UnixConn); is {
		_ = c.SetWriteBuffer(4 * piece) // as far as the kernel lets it (net.core.wmem_max)
	}
	return ctx
}

func (h *Homes) serve(w http.ResponseWriter, r *http.Request) {
	consumer, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	client, ok := h.Client(consumer)
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "no such home", http.StatusNotFound)
		return
	}
	most, allowed := h.Rate(consumer)
	if !allowed {
		http.Error(w, "its owner's policy lets no images of that home in, or is not read yet", http.StatusServiceUnavailable)
		return
	}
	base, err := url.Parse(client.BaseURL())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	late := time.AfterFunc(silent, cancel)
	defer late.Stop()
	proxy := httputil.ReverseProxy{
		Transport: round{h, client}, BufferPool: &h.buffers,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = base.Scheme, base.Host, base.Host
			p.Out.URL.Path, p.Out.URL.RawPath = images.Path+rest, ""
			p.Out.Header = http.Header{}
			for _, name := range []string{"Accept", "Range"} {
				if v := p.In.Header.Values(name); len(v) > 0 {
					p.Out.Header[name] = v
				}
			}
			p.Out.Header.Set(images.HeaderElsewhere, "yes")
		},
		ModifyResponse: func(r *http.Response) error {
			late.Stop()
			if limit := h.limit(consumer, most); limit != nil {
				r.Body = &limited{r.Body, ctx, limit}
			}
			r.Body = whole{r.Body}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			h.Log.Info("a guest's home was not asked for an image", "consumer", consumer, "err", err)
			http.Error(w, "home does not answer", http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// burst is what may come at once, in bytes: at least what one reading takes.
const burst = 256 << 10

// limit is that of a consumer, by what its policy says now; nil: none.
func (h *Homes) limit(consumer string, most int64) *rate.Limiter {
	if most <= 0 {
		return nil
	}
	x, _ := h.limits.LoadOrStore(consumer, rate.NewLimiter(rate.Limit(most), burst))
	limiter := x.(*rate.Limiter)
	limiter.SetLimit(rate.Limit(most))
	return limiter
}

// limited reads no faster than it may.
type limited struct {
	io.ReadCloser
	ctx   context.Context
	limit *rate.Limiter
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b[:min(len(b), burst)])
	if n > 0 {
		if late := l.limit.WaitN(l.ctx, n); late != nil && err == nil {
			err = late
		}
	}
	return n, err
}

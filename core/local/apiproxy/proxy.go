package apiproxy

import (
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy passes requests on to a Kubernetes API. Answers are flushed as they come, so a watch's event waits for no other, and logs
// are read while they are written. The streams of exec, attach and port-forward are the same ones on every hop from kubectl to the
// container: they are passed on as they are.
type Proxy struct {
	// Transport carries requests; Upgrades those that change the protocol, which HTTP/1.1 alone knows. Nil: Transport does.
	Transport, Upgrades http.RoundTripper
	// Headers are passed on besides those of streams.
	Headers []string
	// All passes on every header except those that say who asks, or whence, for callers whose requests must reach the API unchanged.
	All bool
	// Log gets a line for each copy that broke off; every watch that is cut is one.
	Log *log.Logger
}

// Hop is where one request goes, and what becomes of the answer.
type Hop struct {
	Aim      func(to *url.URL)          // rewrites the request's URL to the one at the API
	As       http.Header                // who asks, if the API takes that from headers (impersonation)
	Answered func(*http.Response) error // may read and change the answer
	Failed   func(err error)            // writes the answer when none came
}

// Pass answers a request with what the API says.
func (p *Proxy) Pass(w http.ResponseWriter, r *http.Request, hop Hop) {
	transport := p.Transport
	if p.Upgrades != nil && r.Header.Get("Upgrade") != "" {
		transport = p.Upgrades
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			hop.Aim(r.Out.URL)
			r.Out.Host = ""
			r.Out.Header = p.passed(r.Out.Header)
			maps.Copy(r.Out.Header, hop.As)
		},
		Transport:      transport,
		FlushInterval:  -1,
		BufferPool:     buffers,
		ModifyResponse: hop.Answered,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { hop.Failed(err) },
		ErrorLog:       p.Log,
	}
	proxy.ServeHTTP(w, r)
}

// streamHeaders belong to a stream, or say what the caller can read.
var streamHeaders = []string{
	"Accept", "Connection", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	"Upgrade", "User-Agent", "X-Stream-Protocol-Version",
}

// tokenProtocol: the API server takes a bearer token from a WebSocket protocol that starts with this.
// Source: k8s.io/apiserver/pkg/authentication/request/websocket.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// claims say who asks, or whence: X-Kith-* among Kith's own programs, X-Real-Ip in an API server's audit log.
var (
	claims        = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Real-Ip"}
	claimPrefixes = []string{"Impersonate-", "X-Remote-", "X-Kith-"}
)

// passed gives the headers to pass on: those of an allow list, so that no header that claims an identity gets through, or all but claims.
func (p *Proxy) passed(in http.Header) http.Header {
	out := http.Header{}
	for name, values := range in {
		passes := slices.Contains(streamHeaders, name) || slices.Contains(p.Headers, name)
		if p.All {
			passes = !slices.Contains(claims, name) && !slices.ContainsFunc(claimPrefixes, func(c string) bool { return strings.HasPrefix(name, c) })
		}
		if passes {
			out[name] = slices.Clone(values)
		}
	}
	withoutToken(out)
	return out
}

// withoutToken takes bearer tokens out of the WebSocket protocols.
func withoutToken(header http.Header) {
	offered, ok := header["Sec-Websocket-Protocol"]
	if !ok {
		return
	}
	var kept []string
	for _, p := range strings.Split(strings.Join(offered, ","), ",") {
		if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(strings.ToLower(p), tokenProtocol) {
			kept = append(kept, p)
		}
	}
	header.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
}

// buffers is the pool of buffers for copying answers: a new one for each request would be most of a request's cost.
var buffers = bufferPool{&sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type bufferPool struct{ pool *sync.Pool }

func (b bufferPool) Get() []byte       { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b bufferPool) Put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }

// Transports makes two transports to the API server of config, with connections of their own, so that the daemon's requests never wait
// behind those of others. The second speaks only HTTP/1.1, for upgrades (SPDY, WebSocket).
func Transports(config *rest.Config) (plain, upgrades http.RoundTripper, err error) {
	if plain, err = transport(config, false); err == nil {
		upgrades, err = transport(config, true)
	}
	return plain, upgrades, err
}

func transport(config *rest.Config, http1 bool) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 32,
		DisableCompression:  true, // what is asked for is passed on as it is
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}
	if config.Dial != nil {
		t.DialContext = config.Dial
	}
	if tlsConfig != nil {
		t.TLSClientConfig = tlsConfig.Clone()
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if http1 {
		if t.TLSClientConfig != nil {
			t.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
	} else {
		t.Protocols.SetHTTP2(true)
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	}
	return rest.HTTPWrappersForConfig(config, t)
}

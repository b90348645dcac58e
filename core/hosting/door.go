package hosting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"kith.dev/core/audit"
)

// Names under which the provider's API server knows consumers.
const (
	userPrefix = "kith:peer:"
	group      = "kith:peers"
)

// Access says who may pass the door. *Host is one.
type Access interface {
	// Admitted: is a contract with the consumer in force, and how many twin namespaces has it? Once it
	// says no, Shut has to be called: what is open already does not ask again.
	Admitted(consumerID string) (namespaces int, ok bool)
	// Kept counts what the consumer keeps in the API server here, and says how much that may be.
	Kept(ctx context.Context, consumerID string) (has, most Stock, err error)
}

// Limits bound what one consumer may do at the door.
type Limits struct {
	Requests int           // at the same time, streams aside
	Lists    int           // of these, lists of objects, and deletions of them by list; others wait for their turn
	Turn     time.Duration // as long as this, then they are refused
	Streams  int           // followed logs, upgraded connections, and watches at the same time
	Rate     float64       // requests per second on average
	Burst    int           // and at once
	Patience time.Duration // a request over the rate waits as long, then it is refused
	Timeout  time.Duration // for everything that is not a stream
	Body     int64         // bytes of a request
	Bodies   int64         // bytes of all requests under way; one that does not say how long it is counts as Body
	Recount  time.Duration // what a consumer keeps is not counted again before
}

// DefaultLimits let a consumer start and watch a thousand pods without noticing, and keep one that
// spins from taking the API server away from its owner.
func DefaultLimits() Limits {
	return Limits{
		Requests: 128, Lists: 4, Turn: 10 * time.Second, Streams: 128,
		Rate: 200, Burst: 400, Patience: time.Second,
		Timeout: time.Minute,
		Body:    2 << 20, // a Secret of 1 MiB in base64, with room
		Bodies:  16 << 20,
		Recount: 10 * time.Second,
	}
}

// Door lets consumers through to the provider's API server, each as itself: user kith:peer:<ID>, group
// kith:peers. What they may do there is RBAC's business (ClusterRole kith:tenant); the door sees to it that
// nobody passes as somebody else, outside the few paths a tenant needs, without a contract, or too often.
type Door struct {
	// Limits may be changed before the first request.
	Limits Limits

	access  Access
	target  *url.URL
	plain   *httputil.ReverseProxy
	upgrade *httputil.ReverseProxy
	gates   gates
	audits  *audit.Log
	log     *slog.Logger
}

// NewDoor makes the door to the API server that config leads to. The identity in config must be allowed
// to impersonate users and groups. Refusals are noted in audits, with the reasons below; it may be nil.
func NewDoor(config *rest.Config, access Access, audits *audit.Log, log *slog.Logger) (*Door, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("door: address of the API server: %w", err)
	}
	plain, err := transport(config, false)
	if err != nil {
		return nil, fmt.Errorf("door: connecting to the API server: %w", err)
	}
	// Upgrades (SPDY, WebSocket) exist in HTTP/1.1 only.
	upgrade, err := transport(config, true)
	if err != nil {
		return nil, fmt.Errorf("door: connecting to the API server: %w", err)
	}
	d := &Door{Limits: DefaultLimits(), access: access, target: target, audits: audits, log: log}
	d.plain, d.upgrade = d.proxy(plain), d.proxy(upgrade)
	return d, nil
}

// transport has connections of its own: the daemon's must not wait behind a consumer's.
func transport(config *rest.Config, http1 bool) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 32,
		DisableCompression:  true, // what the consumer asks for is passed on as it is
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

func (d *Door) proxy(t http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        d.rewrite,
		Transport:      t,
		FlushInterval:  -1, // a watch event must not wait for the next one
		ErrorHandler:   d.failed,
		ModifyResponse: d.answered,
		ErrorLog:       log.New(debugWriter{d.log}, "", 0),
	}
}

// debugWriter takes what ReverseProxy says of copies that broke off: each cut watch is one.
type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug("door: " + string(p))
	return len(p), nil
}

// Reasons for which the door does not let a request through, or gives no answer.
const (
	RefusedPath        = "path"        // not a path, method or upgrade that a tenant needs
	RefusedForbidden   = "forbidden"   // the API server said no: rights, admission, quota
	RefusedFull        = "full"        // the consumer keeps too much here already
	RefusedContract    = "contract"    // no contract is in force
	RefusedLimits      = "limits"      // too much at once, or too often
	RefusedBody        = "body"        // too large, or of a kind that no consumer writes
	RefusedTimeout     = "timeout"     // the API server took too long
	RefusedUnavailable = "unavailable" // the API server does not answer
)

// RefusedReasons are all of them.
func RefusedReasons() []string {
	return []string{RefusedPath, RefusedForbidden, RefusedFull, RefusedContract, RefusedLimits, RefusedBody, RefusedTimeout, RefusedUnavailable}
}

// usual reasons are those that an honest consumer meets too: the contract ended before it heard of that, it has much to do,
// this side is slow.
var usual = []string{RefusedContract, RefusedLimits, RefusedTimeout, RefusedUnavailable}

// refused notes that a request was.
func (d *Door) refused(r *http.Request, consumerID, reason, why string) {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // left out when it is none
	d.audits.Note(audit.Refusal{
		Door: audit.Kube, Reason: reason, ID: consumerID, Addr: addr,
		What: r.Method + " " + r.URL.EscapedPath(), Why: why, Usual: slices.Contains(usual, reason),
	})
}

type passKey struct{}

// pass is what a request was let through with.
type pass struct {
	consumerID string
	path       string
	keeps      bool
	in         *http.Request
}

// rewrite builds the request to the API server. Only named headers travel: whatever would claim an
// identity (Authorization, Impersonate-*, X-Remote-*, a token among the WebSocket protocols) stays out.
func (d *Door) rewrite(r *httputil.ProxyRequest) {
	p := r.In.Context().Value(passKey{}).(pass)
	r.Out.URL.Scheme, r.Out.URL.Host = d.target.Scheme, d.target.Host
	r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimSuffix(d.target.Path, "/")+p.path, ""
	r.Out.Host = ""
	r.Out.Header = safeHeaders(r.Out.Header)
	if p.keeps {
		// By default the API server looks for unknown and repeated fields, and writes down the whole path to each, with all
		// the names in it: 2 MiB make a hundred gigabytes. Nobody reads what it would say of them.
		query := r.Out.URL.Query()
		query.Set("fieldValidation", metav1.FieldValidationIgnore)
		r.Out.URL.RawQuery = query.Encode()
	}
	r.Out.Header.Set("Impersonate-User", userPrefix+p.consumerID)
	r.Out.Header.Set("Impersonate-Group", group)
}

// Serve answers one request under /kube/ of the consumer with this ID (identity.ID.String). Refusals are
// Kubernetes Status objects, so a Kubernetes client understands them.
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, consumerID string) {
	way, err := parseWay(r)
	if err != nil {
		d.refused(r, consumerID, RefusedPath, err.Error())
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), 0)
		return
	}
	if _, ok := d.access.Admitted(consumerID); !ok {
		d.refuseNoContract(w, r, consumerID)
		return
	}
	gate := d.gates.of(consumerID, d.Limits)
	// Again, now that a Shut would reach us: else one between the two lines would miss this request.
	if _, ok := d.access.Admitted(consumerID); !ok {
		d.refuseNoContract(w, r, consumerID)
		return
	}
	if r.ContentLength > d.Limits.Body || way.stream && r.ContentLength != 0 {
		d.refuseBody(w, r, consumerID)
		return
	}
	leave, err := gate.enter(r.Context(), way, d.Limits.counts(r), d.Limits)
	switch {
	case err == nil:
	case errors.Is(err, errShut):
		d.refuseNoContract(w, r, consumerID)
		return
	case r.Context().Err() != nil: // the consumer went away; nobody reads this
		return
	default:
		d.refused(r, consumerID, RefusedLimits, err.Error())
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error(), 1)
		return
	}
	defer leave()

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(gate.open, func() { cancel(errShut) })()
	clock := http.NewResponseController(w) // errors: a writer without deadlines has none to lift
	if way.stream {
		_ = clock.SetReadDeadline(time.Time{})
		_ = clock.SetWriteDeadline(time.Time{})
	} else {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d.Limits.Timeout)
		defer stop()
		_ = clock.SetReadDeadline(time.Now().Add(d.Limits.Timeout))
		_ = clock.SetWriteDeadline(time.Now().Add(d.Limits.Timeout + time.Second))
	}
	weight := int64(0)
	if !way.stream {
		body, err := gathered(w, r, d.Limits.Body)
		if err != nil {
			d.refuseBody(w, r, consumerID)
			return
		}
		r.Body, r.ContentLength = http.NoBody, 0
		if len(body) > 0 {
			if weight, err = way.checkBody(r.Method, r.Header.Get("Content-Type"), body); err != nil {
				d.refused(r, consumerID, RefusedBody, err.Error())
				refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), 0)
				return
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
	}
	if way.keeps {
		if err := gate.kept.admit(ctx, r, weight, consumerID, d.access, d.Limits); err != nil {
			d.refused(r, consumerID, RefusedFull, err.Error())
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), 0)
			return
		}
	}
	r = r.WithContext(context.WithValue(ctx, passKey{}, pass{consumerID, way.path, way.keeps, r}))
	if !way.upgrade {
		d.plain.ServeHTTP(w, r)
		return
	}
	d.upgrade.ServeHTTP(w, r)
}

// applied is how often the body of an apply counts among those under way: the API server reads it as YAML, also when it is
// JSON, which takes four times as much as other JSON.
const applied = 4

// counts is how many bytes of Bodies a request takes up.
func (l Limits) counts(r *http.Request) int64 {
	body := r.ContentLength
	if body < 0 {
		body = l.Body // it does not say; so much it may be
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == string(types.ApplyYAMLPatchType) {
		body *= applied
	}
	return body
}

// gathered reads the body before the API server hears of the request. Else a body that comes slowly would hold the API
// server up; and one that the API server refuses before it came would hold up everybody for the whole timeout: the consumer's
// client stops sending and waits for the end of the answer, the proxy waits for the end of the body first.
func gathered(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.Body == nil || r.ContentLength == 0 {
		return nil, nil
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, most))
}

// Shut cuts every open request of the consumer, streams included. The next one is asked for its contract.
func (d *Door) Shut(consumerID string) { d.gates.shut(consumerID) }

var errShut = errors.New("the contract ended")

// failed answers when the API server did not. What exactly went wrong is for this side's log only.
func (d *Door) failed(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := r.Context().Value(passKey{}).(pass)
	if !ok { // no request passes without
		p = pass{in: r}
	}
	switch {
	case errors.Is(context.Cause(r.Context()), errShut):
		d.refuseNoContract(w, p.in, p.consumerID)
	case errors.Is(err, context.DeadlineExceeded):
		d.refused(p.in, p.consumerID, RefusedTimeout, "the API server takes too long")
		refuse(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			fmt.Sprintf("the API server did not answer within %s", d.Limits.Timeout), 1)
	case errors.Is(err, context.Canceled): // the consumer went away; nobody reads this
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "cancelled", 1)
	default:
		d.refused(p.in, p.consumerID, RefusedUnavailable, "the API server does not answer")
		d.log.Warn("door: the API server does not answer", "err", err)
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"the provider's API server does not answer", 1)
	}
}

func (d *Door) refuseNoContract(w http.ResponseWriter, r *http.Request, consumerID string) {
	const why = "no contract with this cluster is in force"
	d.refused(r, consumerID, RefusedContract, why)
	refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, why, 0)
}

func (d *Door) refuseBody(w http.ResponseWriter, r *http.Request, consumerID string) {
	why := fmt.Sprintf("request body: larger than %d bytes, not come whole and in time, or none is expected here", d.Limits.Body)
	d.refused(r, consumerID, RefusedBody, why)
	refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, why, 0)
}

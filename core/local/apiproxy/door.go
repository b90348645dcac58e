package apiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kith.dev/core/trust/audit"
)

// Policy is what makes a Door one of its own: whom it admits, what it looks at, and as whom callers arrive.
type Policy struct {
	Door    audit.Door     // under which refusals are recorded
	Server  string         // what callers call the API server
	Closed  Refusal        // of callers who are not admitted
	Unusual []audit.Reason // that honest callers do not meet; the owner is notified of who is refused for them again and again
	Headers []string       // passed on besides those of streams; nil: all but those that say who asks

	// Parse says what a request asks, by its line and header alone; Info.Path is what the API server will see.
	Parse func(r *http.Request) (Info, *Refusal)
	// Admit reports whether the caller with this ID may come in. It is asked at the start of a request only: when it becomes false,
	// call Shut to end those that are open.
	Admit func(ctx context.Context, id string) bool
	// Check makes what looks at the requests of one caller, from its first one until it is shut out. Many may come at once.
	Check func() Check
	// As gives the headers in which the API server reads who asks.
	As func(r *Request) http.Header
	// Hint says what else somebody should know whom the API server forbade a request, "" for nothing. Nil: nobody is told anything.
	Hint func(r *Request) string
}

// Check refuses a request whose body is here whole and was not decoded yet, or returns nil. It may put another body in its place.
type Check func(ctx context.Context, r *Request) *Refusal

// Request is one on its way through a Door.
type Request struct {
	HTTP *http.Request // as it came; its body is read by the Door
	ID   string        // of the caller
	Info Info
	Body []byte
	// Unvalidated has the API server not look for unknown and repeated fields, which it does by default: it writes down the whole path to
	// each, with all the names in it, so that 2 MiB make a hundred gigabytes.
	Unvalidated bool

	caller *caller
	ctx    context.Context // ends when the caller is shut out, with the cause ErrShut, and, unless it is a stream, after Limits.Timeout
	leave  func()          // the limits, when it is answered
	unread bool            // its body may be on the connection yet
}

// Refusal is why a request is not let through, or has no answer.
type Refusal struct {
	Code   int          // of HTTP
	Reason audit.Reason // empty: it is not recorded, since nobody hears it
	Why    string       // for people
}

// Reasons for which a Door refuses; a Policy may have others of its own.
const (
	RefusedPath        audit.Reason = "path"        // not a path or method that is for callers of this door
	RefusedAs          audit.Reason = "as"          // who asks would be somebody else
	RefusedUpgrade     audit.Reason = "upgrade"     // to a protocol that is not spoken there
	RefusedLimits      audit.Reason = "limits"      // too much at once, or too often
	RefusedBody        audit.Reason = "body"        // too large, too costly, not come in time, or of a kind that is not taken
	RefusedForbidden   audit.Reason = "forbidden"   // the API server said no: rights, admission, quota
	RefusedTimeout     audit.Reason = "timeout"     // the API server took too long
	RefusedUnavailable audit.Reason = "unavailable" // the API server does not answer
)

// gone is the answer to who went away; nobody reads it.
var gone = &Refusal{Code: http.StatusServiceUnavailable, Why: "cancelled"}

// Door lets requests of other clusters through to the API server of this one. Each goes through the same steps, in this order: parse the
// line and header; admit the caller; wait until the limits allow it; gather the whole body; check it; aim it at the API server. Who is
// refused in one step costs nothing of the next, and each refusal is recorded.
type Door struct {
	// Limits of each caller; they may be changed before the first request.
	Limits Limits

	policy Policy
	target *url.URL
	proxy  Proxy
	audits *audit.Log
	log    *slog.Logger

	mu      sync.Mutex
	callers map[string]*caller // by ID, of those admitted
}

// caller is what one has open, and what looks at its requests.
type caller struct {
	*Limiter
	check Check
}

// NewDoor makes the door to the API server that config leads to, whose identity must be allowed to impersonate whom the policy names.
// audits may be nil.
func NewDoor(config *rest.Config, policy Policy, limits Limits, audits *audit.Log, log *slog.Logger) (*Door, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	d := &Door{Limits: limits, policy: policy, target: target, audits: audits, log: log, callers: map[string]*caller{}}
	if d.proxy.Transport, d.proxy.Upgrades, err = Transports(config); err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	d.proxy.Headers, d.proxy.All = policy.Headers, policy.Headers == nil
	d.proxy.Log = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	d.proxy.Log.SetPrefix(string(policy.Door) + ": ")
	return d, nil
}

// Serve answers one request of the caller with this ID (identity.ID.String), whose key is proven. Refusals are Kubernetes Status
// objects, so a Kubernetes client understands them.
func (d *Door) Serve(w http.ResponseWriter, h *http.Request, id string) {
	r := &Request{HTTP: h, ID: id, leave: func() {}, unread: h.ContentLength != 0}
	defer func() { r.leave() }()
	for _, step := range []func(http.ResponseWriter, *Request) *Refusal{d.parse, d.admit, d.limit, d.gather, d.check} {
		if no := step(w, r); no != nil {
			if r.unread && h.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // else the rest of its body would be waited for before the answer
			}
			d.refuse(w, r, no)
			return
		}
	}
	d.aim(w, r)
}

func (d *Door) parse(_ http.ResponseWriter, r *Request) (no *Refusal) {
	r.Info, no = d.policy.Parse(r.HTTP)
	return no
}

// admit finds what a caller has open, if it may come in.
func (d *Door) admit(_ http.ResponseWriter, r *Request) *Refusal {
	if !d.policy.Admit(r.HTTP.Context(), r.ID) {
		return &d.policy.Closed
	}
	d.mu.Lock()
	r.caller = d.callers[r.ID]
	if r.caller == nil {
		r.caller = &caller{NewLimiter(d.Limits), d.policy.Check()}
		d.callers[r.ID] = r.caller
	}
	d.mu.Unlock()
	// Again, now that a Shut would reach it: else one before these lines would miss this request.
	if !d.policy.Admit(r.HTTP.Context(), r.ID) {
		d.Shut(r.ID)
		return &d.policy.Closed
	}
	return nil
}

// Shut cuts every open request of a caller, streams included. Its next one is asked whether it is admitted, and begins with limits of
// its own.
func (d *Door) Shut(id string) {
	d.mu.Lock()
	c := d.callers[id]
	delete(d.callers, id)
	d.mu.Unlock()
	if c != nil {
		c.Shut()
	}
}

// Callers are the IDs of those of whom something is kept.
func (d *Door) Callers() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.callers))
}

// ShutOthers shuts out all callers who are admitted no more.
func (d *Door) ShutOthers(ctx context.Context) {
	for _, id := range d.Callers() {
		if !d.policy.Admit(ctx, id) {
			d.Shut(id)
		}
	}
}

// limit waits until the limits allow a request.
func (d *Door) limit(_ http.ResponseWriter, r *Request) *Refusal {
	asked, length := r.HTTP.Context(), r.HTTP.ContentLength
	// What ends when the caller wants has no body, but for an application behind the API server.
	if length > d.Limits.Body || r.Info.Stream && length != 0 && r.Info.Subresource != "proxy" {
		return d.noBody()
	}
	leave, err := r.caller.Enter(asked, r.Info, d.Limits.Weight(r.HTTP))
	switch {
	case err == nil:
	case errors.Is(err, ErrShut):
		return &d.policy.Closed
	case asked.Err() != nil:
		return gone
	default:
		return &Refusal{http.StatusTooManyRequests, RefusedLimits, err.Error()}
	}
	ctx, cancel := context.WithCancelCause(asked)
	stop, stay := func() {}, context.AfterFunc(r.caller.Open, func() { cancel(ErrShut) })
	if !r.Info.Stream {
		ctx, stop = context.WithTimeout(ctx, d.Limits.Timeout)
	}
	r.ctx, r.leave = ctx, func() { stop(); stay(); cancel(nil); leave() }
	return nil
}

// gather reads the whole body before the API server sees the request. Otherwise a slow body would occupy the API server; and a body that it
// refuses early would block until the timeout: the client stops sending and waits for the end of the answer, while the proxy waits for the
// end of the body. A stream goes on without deadlines once its body is here.
func (d *Door) gather(w http.ResponseWriter, r *Request) *Refusal {
	clock := http.NewResponseController(w) // errors: a writer without deadlines has none to set
	_ = clock.SetReadDeadline(time.Now().Add(d.Limits.Timeout))
	_ = clock.SetWriteDeadline(time.Now().Add(d.Limits.Timeout + time.Second))
	if r.unread && r.HTTP.Body != nil {
		var err error
		if r.Body, err = io.ReadAll(http.MaxBytesReader(w, r.HTTP.Body, d.Limits.Body)); err != nil {
			return d.noBody()
		}
	}
	r.unread = false
	if r.Info.Stream {
		_ = clock.SetReadDeadline(time.Time{})
		_ = clock.SetWriteDeadline(time.Time{})
	}
	return nil
}

func (d *Door) check(_ http.ResponseWriter, r *Request) *Refusal { return r.caller.check(r.ctx, r) }

func (d *Door) noBody() *Refusal {
	return &Refusal{http.StatusRequestEntityTooLarge, RefusedBody,
		fmt.Sprintf("request body: larger than %d bytes, not come whole and in time, or none is expected here", d.Limits.Body)}
}

// aim has the API server answer, which knows the caller as nobody but whom the policy names.
func (d *Door) aim(w http.ResponseWriter, r *Request) {
	to := r.HTTP.WithContext(r.ctx)
	to.Body, to.ContentLength, to.TransferEncoding, to.Trailer = http.NoBody, int64(len(r.Body)), nil, nil
	if len(r.Body) > 0 {
		to.Body = io.NopCloser(bytes.NewReader(r.Body))
	}
	d.proxy.Pass(w, to, Hop{
		Aim: func(to *url.URL) {
			base := strings.TrimSuffix(d.target.Path, "/")
			to.Scheme, to.Host, to.Path, to.RawPath = d.target.Scheme, d.target.Host, base+r.Info.Path, ""
			if r.Info.RawPath != "" {
				to.RawPath = base + r.Info.RawPath
			}
			if r.Unvalidated {
				query := to.Query()
				query.Set("fieldValidation", metav1.FieldValidationIgnore)
				to.RawQuery = query.Encode()
			}
		},
		As:       d.policy.As(r),
		Answered: func(answer *http.Response) error { return d.answered(answer, r) },
		Failed:   func(err error) { d.refuse(w, r, d.failed(r.ctx, err)) },
	})
}

// refusedWith are the reasons for which an API server refuses, by the code of its answer.
var refusedWith = map[int]audit.Reason{
	http.StatusUnauthorized: RefusedForbidden, http.StatusForbidden: RefusedForbidden,
	http.StatusTooManyRequests: RefusedLimits, http.StatusRequestEntityTooLarge: RefusedBody,
}

// answered records what the API server refused.
func (d *Door) answered(answer *http.Response, r *Request) error {
	reason, refused := refusedWith[answer.StatusCode]
	if !refused {
		return nil
	}
	if answer.StatusCode == http.StatusForbidden && d.policy.Hint != nil {
		if hint := d.policy.Hint(r); hint != "" {
			Warn(answer.Header, hint)
		}
	}
	why, err := Why(answer)
	if err != nil {
		return err
	}
	d.record(r, reason, why)
	return nil
}

// failed says why the API server gave no answer. What exactly went wrong is for this side's log only.
func (d *Door) failed(ctx context.Context, err error) *Refusal {
	switch {
	case errors.Is(context.Cause(ctx), ErrShut):
		return &d.policy.Closed
	case errors.Is(err, context.DeadlineExceeded):
		return &Refusal{http.StatusGatewayTimeout, RefusedTimeout, fmt.Sprintf("%s did not answer within %s", d.policy.Server, d.Limits.Timeout)}
	case errors.Is(err, context.Canceled):
		return gone
	}
	d.log.Warn("the API server does not answer", "door", string(d.policy.Door), "err", err)
	return &Refusal{http.StatusServiceUnavailable, RefusedUnavailable, d.policy.Server + " does not answer"}
}

func (d *Door) refuse(w http.ResponseWriter, r *Request, no *Refusal) {
	if no.Reason != "" {
		d.record(r, no.Reason, no.Why)
	}
	Refuse(w, no.Code, no.Why)
}

// record notes that a request was refused.
func (d *Door) record(r *Request, reason audit.Reason, why string) {
	addr, _ := netip.ParseAddrPort(r.HTTP.RemoteAddr) // left out when it is none
	d.audits.Note(audit.Refusal{
		Door: d.policy.Door, Reason: reason, ID: r.ID, Addr: addr,
		What: r.HTTP.Method + " " + r.HTTP.URL.EscapedPath(), Why: why, Usual: !slices.Contains(d.policy.Unusual, reason),
	})
}

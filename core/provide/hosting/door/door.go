package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

// Names under which the provider's API server knows consumers.
const (
	UserPrefix = "kith:peer:"
	Group      = "kith:peers"
)

// Access says who may pass the door. *Host is one.
type Access interface {
	// Admitted reports whether a contract with the consumer is in force. It is asked at the start of a request only: when it becomes
	// false, call Shut to end those that are open.
	Admitted(consumerID string) bool
	// Kept counts what the consumer keeps in the API server here, and says how much that may be.
	Kept(ctx context.Context, consumerID string) (has, most Stored, err error)
	// TermsIn gives the terms that hold in a namespace; nil where no contract does.
	TermsIn(namespace string) *grants.Terms
}

// Door lets consumers through to the provider's API server, each as itself: user kith:peer:<ID>, group
// kith:peers. What they may do there is RBAC's business (ClusterRole kith:tenant); the door sees to it that
// nobody passes as somebody else, outside the few paths a tenant needs, without a contract, or too often.
type Door struct {
	// Limits of each consumer; they may be changed before the first request.
	Limits apiproxy.Limits
	// Recount is the least time between two counts of what a consumer keeps.
	Recount time.Duration

	access Access
	target *url.URL
	proxy  apiproxy.Proxy
	audits *audit.Log
	log    *slog.Logger

	mu       sync.Mutex
	limiters map[string]*limiter // by consumer that has a contract
}

// limiter is what a consumer has open, and what it keeps here.
type limiter struct {
	*apiproxy.Limiter
	kept estimate
}

// NewDoor makes the door to the API server that config leads to. The identity in config must be allowed
// to impersonate users and groups. Refusals are noted in audits, with the reasons below; it may be nil.
func NewDoor(config *rest.Config, access Access, audits *audit.Log, log *slog.Logger) (*Door, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("door: address of the API server: %w", err)
	}
	d := &Door{
		Limits: apiproxy.DefaultLimits(), Recount: 10 * time.Second,
		access: access, target: target, audits: audits, log: log, limiters: map[string]*limiter{},
	}
	if d.proxy.Transport, d.proxy.Upgrades, err = apiproxy.Transports(config); err != nil {
		return nil, fmt.Errorf("door: connecting to the API server: %w", err)
	}
	d.proxy.Headers = []string{"Accept-Encoding", "Content-Type", "If-None-Match"}
	d.proxy.Log = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	d.proxy.Log.SetPrefix("door: ")
	return d, nil
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

// no is why a request is not let through.
type no struct {
	code        int
	reason, why string
}

var noContract = &no{http.StatusForbidden, RefusedContract, "no contract with this cluster is in force"}

func (d *Door) noBody() *no {
	return &no{http.StatusRequestEntityTooLarge, RefusedBody,
		fmt.Sprintf("request body: larger than %d bytes, not come whole and in time, or none is expected here", d.Limits.Body)}
}

func (d *Door) refuse(w http.ResponseWriter, r *http.Request, consumerID string, no *no) {
	d.refused(r, consumerID, no.reason, no.why)
	apiproxy.Refuse(w, no.code, no.why)
}

func (d *Door) limiter(consumerID string) *limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.limiters[consumerID]
	if one == nil {
		one = &limiter{Limiter: apiproxy.NewLimiter(d.Limits)}
		d.limiters[consumerID] = one
	}
	return one
}

// Shut cuts every open request of the consumer, streams included. The next one is asked for its contract, and the next contract
// begins with a limiter of its own.
func (d *Door) Shut(consumerID string) {
	d.mu.Lock()
	one := d.limiters[consumerID]
	delete(d.limiters, consumerID)
	d.mu.Unlock()
	if one != nil {
		one.Shut()
	}
}

// Serve answers one request under /kube/ of the consumer with this ID (identity.ID.String). Refusals are
// Kubernetes Status objects, so a Kubernetes client understands them.
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, consumerID string) {
	if no := d.serve(w, r, consumerID); no != nil {
		d.refuse(w, r, consumerID, no)
	}
}

// groups are those whose resources can be reached.
var groups = kinds.Groups()

func (d *Door) serve(w http.ResponseWriter, r *http.Request, consumerID string) *no {
	// Which of these a consumer gets is RBAC's business.
	info, err := apiproxy.Parse(r, "/kube", groups...)
	if err != nil {
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // else its body would be waited for before the answer
		}
		return &no{http.StatusForbidden, RefusedPath, err.Error()}
	}
	if !d.access.Admitted(consumerID) {
		return noContract
	}
	limiter := d.limiter(consumerID)
	// Again, now that a Shut would reach us: else one between the two lines would miss this request.
	if !d.access.Admitted(consumerID) {
		return noContract
	}
	if info.Stream && r.ContentLength != 0 {
		return d.noBody()
	}
	ctx, body, leave, err := limiter.Gate(w, r, info)
	switch {
	case err == nil:
	case errors.Is(err, apiproxy.ErrShut):
		return noContract
	case errors.Is(err, apiproxy.ErrBody):
		return d.noBody()
	case r.Context().Err() != nil: // the consumer went away; nobody reads this
		return nil
	default:
		return &no{http.StatusTooManyRequests, RefusedLimits, err.Error()}
	}
	defer leave()

	weight := int64(0)
	if len(body) > 0 {
		if weight, err = checkBody(info, r.Method, r.Header.Get("Content-Type"), body); err != nil {
			return &no{http.StatusForbidden, RefusedBody, err.Error()}
		}
		if body, err = d.here(info, body); err != nil {
			return &no{http.StatusForbidden, RefusedBody, err.Error()}
		}
	}
	apiproxy.Bring(r, body)
	if info.Writes {
		if err := limiter.kept.admit(ctx, r, weight, consumerID, d); err != nil {
			return &no{http.StatusForbidden, RefusedFull, err.Error()}
		}
	}
	d.pass(ctx, w, r, info, consumerID)
	return nil
}

// here translates the consumer's addresses in a body to those used here. Answers are not translated back: of objects with addresses the
// consumer reads only metadata (core/consume/remote), and addresses of Pods come in its view.
func (d *Door) here(info apiproxy.Info, body []byte) ([]byte, error) {
	terms, is := d.access.TermsIn(info.Namespace), contents[info.Resource]
	if terms == nil || terms.GuestsHere == "" || is.here == nil || !info.Writes {
		return body, nil
	}
	return is.here(body, terms.Translation())
}

// pass has the API server answer, which knows the consumer as nobody but itself.
func (d *Door) pass(ctx context.Context, w http.ResponseWriter, r *http.Request, info apiproxy.Info, consumerID string) {
	d.proxy.Pass(w, r.WithContext(ctx), apiproxy.Hop{
		Aim: func(to *url.URL) {
			to.Scheme, to.Host = d.target.Scheme, d.target.Host
			to.Path, to.RawPath = strings.TrimSuffix(d.target.Path, "/")+info.Path, ""
			if info.Writes {
				// By default the API server looks for unknown and repeated fields, and writes down the whole path to each, with all
				// the names in it: 2 MiB make a hundred gigabytes. Nobody reads what it would say of them.
				query := to.Query()
				query.Set("fieldValidation", metav1.FieldValidationIgnore)
				to.RawQuery = query.Encode()
			}
		},
		As:       http.Header{"Impersonate-User": {UserPrefix + consumerID}, "Impersonate-Group": {Group}},
		Answered: func(answer *http.Response) error { return d.answered(answer, r, consumerID) },
		Failed:   func(err error) { d.failed(ctx, w, r, consumerID, err) },
	})
}

// answered notes what the API server refused.
func (d *Door) answered(answer *http.Response, r *http.Request, consumerID string) error {
	reason := RefusedForbidden
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
	case http.StatusTooManyRequests:
		reason = RefusedLimits
	case http.StatusRequestEntityTooLarge:
		reason = RefusedBody
	default:
		return nil
	}
	why, err := apiproxy.Why(answer)
	if err != nil {
		return err
	}
	d.refused(r, consumerID, reason, grants.Cut(why, 300))
	return nil
}

// failed answers when the API server did not. What exactly went wrong is for this side's log only.
func (d *Door) failed(ctx context.Context, w http.ResponseWriter, r *http.Request, consumerID string, err error) {
	switch {
	case errors.Is(context.Cause(ctx), apiproxy.ErrShut):
		d.refuse(w, r, consumerID, noContract)
	case errors.Is(err, context.DeadlineExceeded):
		d.refused(r, consumerID, RefusedTimeout, "the API server takes too long")
		apiproxy.Refuse(w, http.StatusGatewayTimeout, fmt.Sprintf("the API server did not answer within %s", d.Limits.Timeout))
	case errors.Is(err, context.Canceled): // the consumer went away; nobody reads this
		apiproxy.Refuse(w, http.StatusServiceUnavailable, "cancelled")
	default:
		d.refused(r, consumerID, RefusedUnavailable, "the API server does not answer")
		d.log.Warn("door: the API server does not answer", "err", err)
		apiproxy.Refuse(w, http.StatusServiceUnavailable, "the provider's API server does not answer")
	}
}

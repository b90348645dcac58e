package company

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/codec"
)

// Path is where laptops ask for the API server in the peer API; what follows is the path there.
const Path = "/company/"

// UserHeader is the header in which a laptop names the local user who asks. It is the laptop's unverified claim, gives no rights, and goes into
// the API server's audit log as the extra field UserExtra.
const (
	UserHeader = "X-Kith-User"
	UserExtra  = "kith.dev/local-user"
)

// asLocal is the header of UserExtra: keys are percent-encoded (k8s.io/client-go/transport, headerKeyEscape), and in the spelling of net/http.
var asLocal = http.CanonicalHeaderKey("Impersonate-Extra-" + url.PathEscape(UserExtra))

const maxLocalUser = 64

// maxValidated bounds, in bytes, a body for which the API server validates fields (fieldValidation: unknown or repeated ones). It notes the
// whole path of each such field: 2 MiB can become a hundred gigabytes, this much some ten megabytes.
const maxValidated = 16 << 10

// maxPaths bounds, in bytes, the sum of the paths of all fields of such a body: what the API server would note if it knew none of them. 16 KiB
// of short names could become ten megabytes; bodies that people write have some ten kilobytes.
const maxPaths = 256 << 10

// maxElements bounds the fields and list elements of a body, also after the copies that a patch makes. Each may be an error of validation, and
// the API server's time to report n errors grows with n²: two seconds for this many, ten minutes for what fits into 3 MiB.
const maxElements = 5000

// costly says why a body would cost the API server too much; "" when it may pass. The cost can be estimated for JSON, and for protobuf of
// Kubernetes' own kinds, which is what kubectl, helm and other clients send; YAML is refused, since its aliases multiply.
func costly(r *http.Request, body []byte) string {
	if len(body) == 0 {
		return ""
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if is := media == runtime.ContentTypeProtobuf; is && !codec.ProtobufElements(body, scheme.Scheme, maxElements) || !is && !wire.Elements(body, maxElements) {
		return fmt.Sprintf("it must be JSON, or protobuf of a kind of Kubernetes' own, of at most %d fields and elements of lists, nested at most %d deep", maxElements, wire.MaxDepth)
	}
	if media == runtime.ContentTypeProtobuf {
		return ""
	}
	if text := heavyAmount(body); text != "" {
		return fmt.Sprintf("%.40q is a number that the API server would compute with for minutes, should it take it for an amount", text)
	}
	if media != string(types.JSONPatchType) {
		return ""
	}
	var operations []map[string]any // not a struct, whose fields would take names in any case, which the API server does not
	if err := json.Unmarshal(body, &operations); err != nil {
		return "no list of operations: " + err.Error()
	}
	for _, o := range operations {
		if o["op"] == "copy" {
			return "a JSON patch may not copy: what that makes of an object is not known before"
		}
	}
	return ""
}

// heavyAmount is a text in JSON that Kubernetes would parse for minutes as an amount, wherever it stands and however often: "1e-99999999" has
// it divide by a number of a hundred million digits. An annotation of autoscalers holds amounts as JSON of its own. "" when there is none.
func heavyAmount(body []byte) string {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	autoscaler := false // the text after the name of such an annotation
	for {
		token, err := tokens.Token()
		if err != nil {
			return "" // the end: it was read before (wire.Elements)
		}
		text := ""
		switch t := token.(type) {
		case json.Number:
			text = t.String()
		case string:
			text = t
		}
		number := amount.FindStringSubmatch(strings.TrimSpace(text))
		if number != nil && (len(number[1]) > maxDigits || len(number[2]) > maxExponent) || autoscaler && exponent.MatchString(text) {
			return text
		}
		autoscaler = strings.HasPrefix(text, "autoscaling.alpha.kubernetes.io/")
	}
}

const (
	maxDigits   = 100
	maxExponent = len("e-999")
)

var (
	amount   = regexp.MustCompile(`^[-+]?([0-9.]*)([eE][-+]?[0-9]+)?[A-Za-z]{0,2}$`)
	exponent = regexp.MustCompile(`[eE][-+]?[0-9]{4,}`)
)

// limits are those of one laptop: people, their desktops and tools. A desktop watches some sixty resources, helm and kubectl write a few
// hundred objects one after the other. All together stay below what the peer API lets one caller have open.
func limits() apiproxy.Limits {
	return apiproxy.Limits{
		Requests: 128, Lists: 16, Turn: 10 * time.Second, Streams: 320,
		Rate: 100, Burst: 600, Patience: 5 * time.Second,
		Timeout: 70 * time.Second, // the API server's own is a minute, and its answer says more
		Body:    3 << 20,          // the API server's own
		Bodies:  24 << 20,
	}
}

// Reasons for which the door does not let a request through, or gives no answer.
const (
	RefusedTether      = "tether"      // the laptop is not tethered to this cluster
	RefusedPath        = "path"        // no path of a Kubernetes API
	RefusedAs          = "as"          // who asks would be somebody else
	RefusedUpgrade     = "upgrade"     // to a protocol that is not spoken there
	RefusedForbidden   = "forbidden"   // the API server said no
	RefusedLimits      = "limits"      // too much at once, or too often
	RefusedBody        = "body"        // too large, or not come in time
	RefusedTimeout     = "timeout"     // the API server took too long
	RefusedUnavailable = "unavailable" // the API server does not answer
)

// RefusedReasons are all of them.
func RefusedReasons() []string {
	return []string{RefusedTether, RefusedPath, RefusedAs, RefusedUpgrade, RefusedForbidden, RefusedLimits, RefusedBody, RefusedTimeout, RefusedUnavailable}
}

// unusual reasons are those that honest users do not meet; being forbidden something is normal.
var unusual = []string{RefusedPath}

// door lets the users of tethered laptops through to the API server, each laptop as its own user.
type door struct {
	limits   apiproxy.Limits
	admitted func(ctx context.Context, id string) bool
	places   func(ctx context.Context, id string) ([]place, error)
	target   *url.URL
	proxy    apiproxy.Proxy
	audits   *audit.Log
	log      *slog.Logger

	mu       sync.Mutex
	limiters map[string]*apiproxy.Limiter // by ID of a laptop that is tethered
}

func newDoor(cfg Config, admitted func(context.Context, string) bool, places func(context.Context, string) ([]place, error)) (*door, error) {
	target, _, err := rest.DefaultServerUrlFor(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	d := &door{limits: limits(), admitted: admitted, places: places, target: target, audits: cfg.Audit, log: cfg.Log, limiters: map[string]*apiproxy.Limiter{}}
	if d.proxy.Transport, d.proxy.Upgrades, err = apiproxy.Transports(cfg.REST); err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	d.proxy.All = true
	d.proxy.Log = slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)
	d.proxy.Log.SetPrefix("company: ")
	return d, nil
}

// admitted reports whether this cluster runs the laptop with this ID. It answers from memory.
func (c *Company) admitted(ctx context.Context, id string) bool {
	var peers v1alpha1.PeerList
	if c.cfg.Client.List(ctx, &peers, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	return slices.ContainsFunc(peers.Items, func(p v1alpha1.Peer) bool { return p.Spec.ID == id && runs(&p) })
}

// Serve answers what a user of a laptop asks of the API server; id is the laptop's (identity.ID.String). Refusals are Kubernetes Status
// objects.
func (c *Company) Serve(w http.ResponseWriter, r *http.Request, id string) { c.door.serve(w, r, id) }

// shut cuts every open request of laptops that are not tethered any more.
func (c *Company) shut(ctx context.Context) {
	c.door.mu.Lock()
	open := slices.Collect(maps.Keys(c.door.limiters))
	c.door.mu.Unlock()
	for _, id := range open {
		if !c.admitted(ctx, id) {
			c.door.shut(id)
		}
	}
}

// shut cuts every open request of a laptop, streams included. The next tether begins with a limiter of its own.
func (d *door) shut(id string) {
	d.mu.Lock()
	one := d.limiters[id]
	delete(d.limiters, id)
	d.mu.Unlock()
	if one != nil {
		one.Shut()
	}
}

func (d *door) limiter(id string) *apiproxy.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.limiters[id]
	if one == nil {
		one = apiproxy.NewLimiter(d.limits)
		d.limiters[id] = one
	}
	return one
}

// no is why a request is not let through.
type no struct {
	code        int
	reason, why string
}

var notTethered = &no{http.StatusForbidden, RefusedTether, "this laptop is not tethered to this cluster"}

func (d *door) serve(w http.ResponseWriter, r *http.Request, id string) {
	if no := d.pass(w, r, id); no != nil {
		d.refused(r, id, no.reason, no.why)
		apiproxy.Refuse(w, no.code, no.why)
	}
}

// refused notes that a request was.
func (d *door) refused(r *http.Request, id, reason, why string) {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // left out when it is none
	d.audits.Note(audit.Refusal{
		Door: audit.Company, Reason: reason, ID: id, Addr: addr,
		What: r.Method + " " + r.URL.EscapedPath(), Why: why, Usual: !slices.Contains(unusual, reason),
	})
}

// inner is the request as the API server is to see it, or why it must not.
func inner(r *http.Request) (*http.Request, *no) {
	path, ok := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(Path, "/"))
	raw := strings.TrimPrefix(r.URL.RawPath, strings.TrimSuffix(Path, "/"))
	// Dots would lead out of the path that the API server may have behind a proxy of its own.
	dots := slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
	if !ok || !strings.HasPrefix(path, "/") || dots || r.URL.RawPath != "" && !strings.HasPrefix(raw, "/") || r.Method == http.MethodConnect {
		return nil, &no{http.StatusForbidden, RefusedPath, "path: it must be one of a Kubernetes API, without dots"}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") { // dropping it would answer for another identity than the user asked for
			return nil, &no{http.StatusForbidden, RefusedAs, "through a tether nobody asks as somebody else: leave out --as"}
		}
	}
	to := r.Clone(r.Context())
	to.URL.Path, to.URL.RawPath = path, raw
	for _, name := range []string{UserHeader, "X-Real-Ip"} { // the API server's audit log takes the latter for whence it came
		to.Header.Del(name)
	}
	return to, nil
}

// localUser is which user of the laptop asks, as it says; "" when it does not, or not in one printable line.
func localUser(r *http.Request) string {
	name := r.Header.Get(UserHeader)
	if len(name) > maxLocalUser || !wire.Printable(name) || strings.ContainsFunc(name, func(c rune) bool { return c > '~' }) {
		return ""
	}
	return name
}

func (d *door) pass(w http.ResponseWriter, asked *http.Request, id string) *no {
	r, refusal := inner(asked)
	if refusal != nil {
		return refusal
	}
	who := user(id)
	if who == "" || !d.admitted(r.Context(), id) {
		return notTethered
	}
	limiter := d.limiter(id)
	// Again, now that a shut would reach us: else one between the two lines would miss this request.
	if !d.admitted(r.Context(), id) {
		d.shut(id)
		return notTethered
	}
	info, watch := apiproxy.Describe(r)
	if err := apiproxy.CheckUpgrade(r, info, watch); err != nil {
		w.Header().Set("Connection", "close") // else its body would be waited for before the answer
		return &no{http.StatusBadRequest, RefusedUpgrade, err.Error()}
	}
	// What a pod or service answers through the API server may have no end.
	info.Stream = info.Stream || info.Subresource == "proxy"
	ctx, body, leave, err := limiter.Gate(w, r, info)
	switch {
	case err == nil:
	case errors.Is(err, apiproxy.ErrShut):
		return notTethered
	case errors.Is(err, apiproxy.ErrBody):
		return d.noBody()
	case r.Context().Err() != nil: // the laptop went away; nobody reads this
		return nil
	default:
		return &no{http.StatusTooManyRequests, RefusedLimits, err.Error()}
	}
	defer leave()

	if info.Subresource != "proxy" { // which a pod or service reads, not the API server
		if why := costly(r, body); why != "" {
			return &no{http.StatusBadRequest, RefusedBody, "request body: " + why}
		}
	}
	apiproxy.Bring(r, body)
	ignore := info.Writes && (len(body) > maxValidated || !wire.Paths(body, maxPaths))
	as := http.Header{"Impersonate-User": {who}, "Impersonate-Group": {Group}}
	if local := localUser(asked); local != "" {
		as[asLocal] = []string{local}
	}
	d.proxy.Pass(w, r.WithContext(ctx), apiproxy.Hop{
		Aim: func(to *url.URL) {
			to.Scheme, to.Host = d.target.Scheme, d.target.Host
			if base := strings.TrimSuffix(d.target.Path, "/"); base != "" {
				to.Path = base + to.Path
				if to.RawPath != "" {
					to.RawPath = base + to.RawPath
				}
			}
			if ignore {
				query := to.Query()
				query.Set("fieldValidation", metav1.FieldValidationIgnore)
				to.RawQuery = query.Encode()
			}
		},
		As:       as,
		Answered: func(answer *http.Response) error { return d.answered(answer, asked, id, info.Namespace) },
		Failed:   func(err error) { d.failed(ctx, w, asked, id, err) },
	})
	return nil
}

func (d *door) noBody() *no {
	return &no{http.StatusRequestEntityTooLarge, RefusedBody, fmt.Sprintf("request body: larger than %d bytes, or not come whole and in time", d.limits.Body)}
}

// answered notes what the API server refused, and tells who may not do it in a namespace where he may do something.
func (d *door) answered(answer *http.Response, r *http.Request, id, namespace string) error {
	reason := RefusedForbidden
	switch answer.StatusCode {
	case http.StatusUnauthorized:
	case http.StatusForbidden:
		all, err := d.places(r.Context(), id)
		if err != nil { // the answer is right without it
			d.log.Warn("company: a user is not told where he may work", "id", id, "err", err)
		} else if where := elsewhere(all, namespace); where != "" {
			apiproxy.Warn(answer.Header, where)
		}
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
	d.refused(r, id, reason, why)
	return nil
}

// maxWarned is how many places a warning names.
const maxWarned = 8

// elsewhere says where the users of a laptop work, to one who was refused in a namespace, "" for the whole cluster; "" when it is one of
// those: what was refused there is not a matter of where.
func elsewhere(all []place, namespace string) string {
	var names []string
	for _, p := range all {
		if p.namespace == namespace {
			return ""
		}
		names = append(names, p.namespace+" ("+p.role+")")
	}
	switch {
	case len(names) == 0:
		return "no TetherPolicy of this cluster gives the users of this laptop a namespace"
	case len(names) > maxWarned:
		names = append(names[:maxWarned], fmt.Sprintf("and %d more", len(names)-maxWarned))
	}
	return "this laptop is tethered: its users work in " + strings.Join(names, ", ") + "; name one with --namespace"
}

// failed answers when the API server did not. What exactly went wrong is for this side's log only.
func (d *door) failed(ctx context.Context, w http.ResponseWriter, r *http.Request, id string, err error) {
	switch {
	case errors.Is(context.Cause(ctx), apiproxy.ErrShut):
		d.refused(r, id, notTethered.reason, notTethered.why)
		apiproxy.Refuse(w, notTethered.code, notTethered.why)
	case errors.Is(err, context.DeadlineExceeded):
		d.refused(r, id, RefusedTimeout, "the API server takes too long")
		apiproxy.Refuse(w, http.StatusGatewayTimeout, fmt.Sprintf("the company's API server did not answer within %s", d.limits.Timeout))
	case errors.Is(err, context.Canceled): // the laptop went away; nobody reads this
		apiproxy.Refuse(w, http.StatusServiceUnavailable, "cancelled")
	default:
		d.refused(r, id, RefusedUnavailable, "the API server does not answer")
		d.log.Warn("company: the API server does not answer", "err", err)
		apiproxy.Refuse(w, http.StatusServiceUnavailable, "the company's API server does not answer")
	}
}

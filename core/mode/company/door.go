package company

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

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

// RefusedTether is a reason of this door alone: the laptop is not tethered to this cluster.
const RefusedTether audit.Reason = "tether"

// RefusedReasons are all for which this door refuses.
func RefusedReasons() []audit.Reason {
	return []audit.Reason{
		RefusedTether, apiproxy.RefusedPath, apiproxy.RefusedAs, apiproxy.RefusedUpgrade, apiproxy.RefusedForbidden, apiproxy.RefusedLimits,
		apiproxy.RefusedBody, apiproxy.RefusedTimeout, apiproxy.RefusedUnavailable,
	}
}

// newDoor makes what lets the users of tethered laptops through to the API server, each laptop as its own user.
func (c *Company) newDoor() (*apiproxy.Door, error) {
	return apiproxy.NewDoor(c.cfg.REST, apiproxy.Policy{
		Door: audit.Company, Server: "the company's API server",
		Closed:  apiproxy.Refusal{Code: http.StatusForbidden, Reason: RefusedTether, Why: "this laptop is not tethered to this cluster"},
		Unusual: []audit.Reason{apiproxy.RefusedPath}, // being forbidden something is normal
		Parse:   parse,
		Admit:   c.admitted,
		Check:   func() apiproxy.Check { return check },
		As: func(r *apiproxy.Request) http.Header {
			as := http.Header{"Impersonate-User": {user(r.ID)}, "Impersonate-Group": {Group}}
			if local := localUser(r.HTTP); local != "" {
				as[asLocal] = []string{local}
			}
			return as
		},
		Hint: c.elsewhere,
	}, limits(), c.cfg.Audit, c.cfg.Log)
}

// admitted reports whether this cluster runs the laptop with this ID. It answers from memory.
func (c *Company) admitted(_ context.Context, id string) bool {
	peer := c.cfg.Client.Now().Peer(id)
	return user(id) != "" && peer != nil && runs(peer)
}

// Serve answers what a user of a laptop asks of the API server; id is the laptop's (identity.ID.String). Refusals are Kubernetes Status
// objects.
func (c *Company) Serve(w http.ResponseWriter, r *http.Request, id string) { c.door.Serve(w, r, id) }

// methods are those that an API server takes, or passes on to an application.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// parse says what a request asks of the API server: any of its paths, as it is written, since behind proxy it may mean more than it shows.
func parse(r *http.Request) (apiproxy.Info, *apiproxy.Refusal) {
	refused := func(code int, reason audit.Reason, why string) (apiproxy.Info, *apiproxy.Refusal) {
		return apiproxy.Info{}, &apiproxy.Refusal{Code: code, Reason: reason, Why: why}
	}
	below := apiproxy.Below(r, strings.TrimSuffix(Path, "/"))
	at := below.URL
	// Dots would lead out of the path that the API server may have behind a proxy of its own.
	dots := false
	for segment := range strings.SplitSeq(at.Path, "/") {
		dots = dots || segment == "." || segment == ".."
	}
	if !strings.HasPrefix(r.URL.Path, Path) || r.URL.RawPath != "" && !strings.HasPrefix(r.URL.RawPath, Path) || dots || !slices.Contains(methods, r.Method) {
		return refused(http.StatusForbidden, apiproxy.RefusedPath, "path: it must be one of a Kubernetes API, without dots")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") { // dropping it would answer for another identity than the user asked for
			return refused(http.StatusForbidden, apiproxy.RefusedAs, "through a tether nobody asks as somebody else: leave out --as")
		}
	}
	info, watch := apiproxy.Describe(below)
	if err := apiproxy.CheckUpgrade(r, info, watch); err != nil {
		return refused(http.StatusBadRequest, apiproxy.RefusedUpgrade, err.Error())
	}
	info.Path, info.RawPath, info.List = at.Path, at.RawPath, info.List || apiproxy.DeletesMany(r, info)
	// What a pod or service answers through the API server may have no end.
	info.Stream = info.Stream || info.Subresource == "proxy"
	return info, nil
}

// check refuses a body that would cost the API server too much.
func check(_ context.Context, r *apiproxy.Request) *apiproxy.Refusal {
	if r.Info.Subresource == "proxy" { // which a pod or service reads, not the API server
		return nil
	}
	if why := costly(r.HTTP, r.Body); why != "" {
		return &apiproxy.Refusal{Code: http.StatusBadRequest, Reason: apiproxy.RefusedBody, Why: "request body: " + why}
	}
	r.Unvalidated = r.Info.Writes && len(r.Body) > 0 && (len(r.Body) > maxValidated || !wire.Paths(r.Body, maxPaths))
	return nil
}

// localUser is which user of the laptop asks, as it says; "" when it does not, or not in one printable line.
func localUser(r *http.Request) string {
	name := r.Header.Get(UserHeader)
	if len(name) > maxLocalUser || !wire.Printable(name) || strings.ContainsFunc(name, func(c rune) bool { return c > '~' }) {
		return ""
	}
	return name
}

// maxWarned is how many places a warning names.
const maxWarned = 8

// elsewhere tells who was forbidden something where he may work. The refusal is right without it.
func (c *Company) elsewhere(r *apiproxy.Request) string {
	all, err := c.placesOf(r.HTTP.Context(), r.ID)
	if err != nil {
		c.cfg.Log.Warn("company: a user is not told where he may work", "id", r.ID, "err", err)
		return ""
	}
	return elsewhere(all, r.Info.Namespace)
}

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

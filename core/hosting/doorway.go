package hosting

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// way is where a request wants to go.
type way struct {
	path          string // at the API server, clean by construction
	resource, sub string
	stream        bool // has no natural end: a watch, a followed log, an upgraded connection
	upgrade       bool
	list          bool // of many objects at once, which the API server holds in memory while it answers
	keeps         bool // what it brings is kept: a create, or a change
}

// groups whose namespaced resources a consumer may ask for; which of them it gets is RBAC's business.
var groups = []string{"kith.dev/v1alpha1", "discovery.k8s.io/v1"}

// upgrades the API server speaks, on the subresources that use them.
var (
	upgradeProtocols = []string{"websocket", "spdy/3.1"}
	upgradeResources = []string{"exec", "attach", "portforward"}
	methods          = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
)

const maxPath = 1024

var errPath = errors.New("path: only namespaced resources of core/v1, discovery.k8s.io/v1 and kith.dev/v1alpha1 can be reached here")

// parseWay checks the request line. A path is taken only in its one plain spelling: no percent-encoding,
// no dots, no empty segments. So what is checked here is what the API server sees.
func parseWay(r *http.Request) (way, error) {
	if !slices.Contains(methods, r.Method) {
		return way{}, fmt.Errorf("method %.16q: must be one of %s", r.Method, strings.Join(methods, ", "))
	}
	escaped := r.URL.EscapedPath()
	rest, ok := strings.CutPrefix(escaped, "/kube/")
	if !ok || escaped != r.URL.Path || len(rest) > maxPath {
		return way{}, errPath
	}
	segments := strings.Split(rest, "/")
	if slices.ContainsFunc(segments, func(s string) bool { return !plain(s) }) {
		return way{}, errPath
	}
	w := way{path: "/" + rest}
	resource, ok := namespaced(segments)
	if !ok {
		if r.Method == http.MethodGet && discovery(segments) && r.Header.Get("Upgrade") == "" {
			return w, nil
		}
		return way{}, errPath
	}
	return w.streaming(r, resource)
}

// plain segments are what Kubernetes names and resources are made of.
func plain(s string) bool {
	if s == "" || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// namespaced gives what follows the namespace: resource, and perhaps name and subresource.
func namespaced(segments []string) ([]string, bool) {
	switch {
	case len(segments) > 2 && segments[0] == "api" && segments[1] == "v1":
		segments = segments[2:]
	case len(segments) > 3 && segments[0] == "apis" && slices.Contains(groups, segments[1]+"/"+segments[2]):
		segments = segments[3:]
	default:
		return nil, false
	}
	if len(segments) < 3 || len(segments) > 5 || segments[0] != "namespaces" {
		return nil, false
	}
	return segments[2:], true
}

// discovery is what a Kubernetes client reads before anything else.
func discovery(segments []string) bool {
	switch path := strings.Join(segments, "/"); path {
	case "version", "api", "api/v1", "apis":
		return true
	default:
		gv, ok := strings.CutPrefix(path, "apis/")
		return ok && slices.ContainsFunc(groups, func(g string) bool {
			return gv == g || strings.HasPrefix(g, gv+"/")
		})
	}
}

func (w way) streaming(r *http.Request, resource []string) (way, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return way{}, errors.New("query: malformed")
	}
	w.resource = resource[0]
	if len(resource) == 3 {
		w.sub = resource[2]
	}
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		if !slices.Contains(upgradeProtocols, strings.ToLower(protocol)) || !slices.Contains(upgradeResources, w.sub) {
			return way{}, fmt.Errorf("upgrade to %.32q: only WebSocket and SPDY/3.1 on %s", protocol, strings.Join(upgradeResources, ", "))
		}
		w.stream, w.upgrade = true, true
		return w, nil
	}
	w.keeps = r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
	// What is to be watched the API server asks of a GET only; any other is what its method says.
	w.stream = r.Method == http.MethodGet && (isSet(query, "watch") || w.sub == "log" && isSet(query, "follow"))
	w.list = len(resource) == 1 && (r.Method == http.MethodGet && !w.stream || r.Method == http.MethodDelete)
	return w, nil
}

// isSet reads a boolean parameter as the API server does: there, and neither "0" nor "false".
// Source: Convert_Slice_string_To_bool in k8s.io/apimachinery/pkg/runtime/conversion.go.
func isSet(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// passed are the request headers that travel to the API server.
var passed = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Type", "If-None-Match", "Sec-Websocket-Extensions",
	"Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Upgrade", "User-Agent",
	"X-Stream-Protocol-Version",
}

// tokenProtocol: the API server takes a bearer token from a WebSocket protocol that starts with this.
// Source: k8s.io/apiserver/pkg/authentication/request/websocket.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

func safeHeaders(in http.Header) http.Header {
	out := http.Header{}
	for _, name := range passed {
		if values, ok := in[name]; ok {
			out[name] = slices.Clone(values)
		}
	}
	if offered, ok := out["Sec-Websocket-Protocol"]; ok {
		var kept []string
		for _, p := range strings.Split(strings.Join(offered, ","), ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(strings.ToLower(p), tokenProtocol) {
				kept = append(kept, p)
			}
		}
		out.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
	}
	return out
}

// Refuse answers as the door does, for those who stand before it.
func Refuse(w http.ResponseWriter, code int, message string) {
	reason, retry := metav1.StatusReasonForbidden, int32(0)
	switch code {
	case http.StatusTooManyRequests:
		reason, retry = metav1.StatusReasonTooManyRequests, 1
	case http.StatusServiceUnavailable:
		reason, retry = metav1.StatusReasonServiceUnavailable, 1
	case http.StatusBadRequest:
		reason = metav1.StatusReasonBadRequest
	}
	refuse(w, code, reason, message, retry)
}

// refuse answers with a Kubernetes Status.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, retryAfter int32) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "kith: " + message,
	}
	if retryAfter > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		w.Header().Set("Retry-After", fmt.Sprint(retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&status) // the caller is gone when this fails
}

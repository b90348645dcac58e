package apiproxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Info is what a request asks of a Kubernetes API.
type Info struct {
	Path, RawPath         string // at the API server; RawPath as in url.URL. Empty of Describe
	Group, Name           string // no Name: a collection
	Namespace             string
	Resource, Subresource string // empty: discovery, or nothing of a resource
	Stream                bool   // has no natural end: a watch, a followed log, an upgraded connection
	List                  bool   // of many objects at once, which the API server holds in memory while it answers
	Writes                bool   // what it brings is kept: a create, or a change
}

const webSocket = "websocket"

// upgrades the API server speaks, on the subresources that use them.
var (
	upgradeProtocols = []string{webSocket, "spdy/3.1"}
	upgradeResources = []string{"exec", "attach", "portforward"}
	methods          = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
)

const maxPath = 1024

// Parse checks the request line: a path below prefix to discovery, or to the namespaced resources of core/v1 and of these groups,
// with their versions. It is taken only in its one plain spelling: no percent-encoding, no dots, no empty segments. So what is
// checked here is what the API server sees.
func Parse(r *http.Request, prefix string, groups ...string) (Info, error) {
	elsewhere := fmt.Errorf("path: only namespaced resources of core/v1, %s can be reached here", strings.Join(groups, " and "))
	if !slices.Contains(methods, r.Method) {
		return Info{}, fmt.Errorf("method %.16q: must be one of %s", r.Method, strings.Join(methods, ", "))
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix+"/")
	if !ok || prefix+"/"+path != r.URL.Path || len(path) > maxPath || !plain(path) {
		return Info{}, elsewhere
	}
	upgrades := len(r.Header["Upgrade"]) > 0
	if r.Method == http.MethodGet && discovery(path, groups) && !upgrades {
		return Info{Path: "/" + path}, nil
	}
	info, _ := Describe(Below(r, prefix))
	info.Path, info.List = "/"+path, info.List || DeletesMany(r, info)
	_, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case !namespaced(path, groups) || info.Resource == "namespaces":
		return Info{}, elsewhere
	case err != nil:
		return Info{}, errors.New("query: malformed")
	case upgrades && (CheckUpgrade(r, info, false) != nil || !slices.Contains(upgradeResources, info.Subresource)):
		return Info{}, fmt.Errorf("upgrade to %.32q: only WebSocket and SPDY/3.1 on %s", r.Header.Get("Upgrade"), strings.Join(upgradeResources, ", "))
	case upgrades:
		info.Writes = false
	}
	return info, nil
}

// DeletesMany reports whether a request deletes a collection, which costs the API server what a list does.
func DeletesMany(r *http.Request, info Info) bool {
	return r.Method == http.MethodDelete && info.Resource != "" && info.Name == ""
}

// Below is a request with what follows prefix as its path.
func Below(r *http.Request, prefix string) *http.Request {
	below, at := *r, *r.URL
	at.Path, at.RawPath = strings.TrimPrefix(at.Path, prefix), strings.TrimPrefix(at.RawPath, prefix)
	below.URL = &at
	return &below
}

// plain paths have only segments that Kubernetes names and resources are made of.
func plain(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment[0] == '.' || strings.Trim(segment, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			return false
		}
	}
	return true
}

// namespaced reports whether a path leads to a resource in a namespace, and perhaps to a name and subresource of it.
func namespaced(path string, groups []string) bool {
	version, rest, ok := strings.Cut(path, "/namespaces/")
	group, named := strings.CutPrefix(version, "apis/")
	depth := strings.Count(rest, "/")
	return ok && (version == "api/v1" || named && slices.Contains(groups, group)) && depth >= 1 && depth <= 3
}

// discovery is what a Kubernetes client reads before anything else.
func discovery(path string, groups []string) bool {
	gv, ok := strings.CutPrefix(path, "apis/")
	return slices.Contains([]string{"version", "api", "api/v1", "apis"}, path) ||
		ok && slices.ContainsFunc(groups, func(g string) bool { return gv == g || strings.HasPrefix(g, gv+"/") })
}

// isSet reads a boolean parameter as the API server does: there, and neither "0" nor "false".
// Source: Convert_Slice_string_To_bool in k8s.io/apimachinery/pkg/runtime/conversion.go.
func isSet(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// CheckUpgrade refuses an upgrade (Connection: Upgrade) to a protocol that API servers do not speak, on a subresource that has none, or
// with a body, since nobody would see where it ends. A request without an upgrade passes. info is the result of Describe or Parse.
//
// Sources: RFC 6455, section 4.1, for the method of WebSocket; k8s.io/apiserver/pkg/endpoints/installer.go for those of connections.
func CheckUpgrade(r *http.Request, info Info, watch bool) error {
	asked := r.Header["Upgrade"]
	if len(asked) == 0 {
		return nil
	}
	connects := info.Subresource == "proxy" || slices.Contains(upgradeResources, info.Subresource)
	switch protocol := strings.ToLower(strings.Join(asked, ", ")); {
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return fmt.Errorf("upgrade to %.32q: comes without a body", protocol)
	case protocol == webSocket && r.Method == http.MethodGet && (watch || info.Subresource != ""):
	case slices.Contains(upgradeProtocols, protocol) && connects && (r.Method == http.MethodGet || r.Method == http.MethodPost):
	default:
		return fmt.Errorf("upgrade to %.32q: only WebSocket and SPDY/3.1, where something is connected to, followed or watched", protocol)
	}
	return nil
}

// maxSegments is more than a path has that says what is asked.
const maxSegments = 10

// Describe says what a request asks, as an API server understands it. It refuses nothing, so unlike Parse it must not be used to decide
// who may pass: for a path that it does not know all of Info but Stream is empty.
// Source: RequestInfoFactory.NewRequestInfo in k8s.io/apiserver/pkg/endpoints/request.
func Describe(r *http.Request) (info Info, watch bool) {
	var rest []string
	switch segments := strings.SplitN(strings.Trim(r.URL.Path, "/"), "/", maxSegments); {
	case len(segments) > 2 && segments[0] == "api":
		rest = segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		info.Group, rest = segments[1], segments[3:]
	default:
		info.Stream = r.Header.Get("Upgrade") != ""
		return info, false
	}
	if rest[0] == "watch" && len(rest) > 1 { // the paths of watches before there was a parameter; API servers still serve them
		watch, rest = true, rest[1:]
	}
	if rest[0] == "namespaces" && len(rest) > 1 {
		info.Namespace = rest[1]
		if len(rest) > 3 || len(rest) == 3 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	info.Resource = rest[0]
	if len(rest) > 1 {
		info.Name = rest[1]
	}
	if len(rest) > 2 {
		info.Subresource = rest[2]
	}
	get := r.Method == http.MethodGet
	info.List = get && info.Name == ""
	if q := r.URL.RawQuery; strings.Contains(q, "watch") || strings.Contains(q, "follow") || strings.Contains(q, "%") {
		query := r.URL.Query()
		watch = watch || info.Subresource == "" && isSet(query, "watch")
		info.Stream = get && info.Subresource == "log" && isSet(query, "follow")
	}
	watch = watch && get
	info.List = info.List && !watch
	info.Stream = info.Stream || watch || r.Header.Get("Upgrade") != ""
	info.Writes = r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
	return info, watch
}

package remote

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"kith.dev/core/wire/codec"
)

// API is the peer's API server, as it is reached through the door /kube/ of the peer API.
type API struct {
	// URL is its base.
	URL *url.URL
	// Streams carries logs, exec, attach and port-forward there by HTTP/1.1, which upgrades need. They have connections of their own,
	// and do not hold up the others.
	Streams http.RoundTripper

	http *http.Client
}

// NewAPI makes the client of the API server at a URL. Both transports must pin the peer's key; there are no deadlines but those of
// contexts, as watches and logs have no end.
func NewAPI(at string, transport, streams http.RoundTripper) (*API, error) {
	base, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("the API server of a peer: %w", err)
	}
	return &API{URL: base, Streams: streams, http: &http.Client{Transport: codec.Transport(transport)}}, nil
}

// Group is the client for one group of objects. It decodes the kinds that codecs know and no other, and those with care: an answer
// names its own kind.
func (a *API) Group(group schema.GroupVersion, codecs runtime.NegotiatedSerializer) (rest.Interface, error) {
	cfg := &rest.Config{Host: a.URL.String(), APIPath: "/apis", QPS: -1} // the peer has its own limits
	if group.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.GroupVersion, cfg.NegotiatedSerializer = &group, codecs
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.RESTClientForConfigAndClient(cfg, a.http)
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/trust/wire/codec"
)

const (
	// twinsPerSecond and twinsAtOnce are half of what a peer takes of one caller under /kith/ (peering.Limits).
	twinsPerSecond, twinsAtOnce = 10, 50
	// maxRefusal is how much of a peer's reason for a refusal is read.
	maxRefusal = 4 << 10
	// maxUsage bounds what a peer can have us read of its guests' use; a pod is some 2 KiB.
	maxUsage = 8 << 20
)

// errNoView is the answer of a Kith from before there were views.
var errNoView = errors.New("the peer runs an older Kith, which has no view of the namespaces it keeps")

// ClientConfig is what a Client needs; all must be set.
type ClientConfig struct {
	// Peer is how the peer is called here, Contract the one under which it is asked.
	Peer, Contract string
	To             *peering.Client
	// Since is when the connection to the peer came up. Older is called when the peer's version of Kith has no view, with the value of Since
	// from before the request.
	Since func() time.Time
	Older func(since time.Time)
	Log   *slog.Logger
}

// Client makes the calls to one peer that a contract entitles to: its API server, its view, and the other calls of core/provide/hosting.
type Client struct {
	API  *API
	View *View

	cfg ClientConfig
	// pace keeps what is asked about namespaces below what peers take of one caller.
	pace *rate.Limiter
}

// NewClient makes a Client; it asks nothing yet.
func NewClient(cfg ClientConfig) (*Client, error) {
	c := &Client{cfg: cfg, pace: rate.NewLimiter(twinsPerSecond, twinsAtOnce)}
	streams := &http.Transport{
		DialTLSContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return cfg.To.DialTLS(ctx) },
		IdleConnTimeout: time.Minute,
		Protocols:       new(http.Protocols),
	}
	streams.Protocols.SetHTTP1(true)
	c.View = NewView(ViewConfig{Open: c.openView, Log: cfg.Log.With("peer", cfg.Peer)})
	var err error
	c.API, err = NewAPI(cfg.To.BaseURL()+"/kube", cfg.To.Transport(), streams)
	return c, err
}

// path is that of a question under the contract.
func (c *Client) path(path string, more url.Values) string {
	query := url.Values{"contract": {c.cfg.Contract}}
	for key, values := range more {
		query[key] = values
	}
	return path + "?" + query.Encode()
}

// EnsureTwin makes sure that the home namespace has its twin, and gives the name of that; of is for whom it is, nil when it is this cluster's own. The
// peer's own no is a *peering.Problem.
func (c *Client) EnsureTwin(ctx context.Context, home string, mapping v1alpha1.NamespaceMapping, of *v1alpha1.ChainLink) (string, error) {
	if err := c.pace.Wait(ctx); err != nil {
		return "", err
	}
	var answer struct {
		Namespace string `json:"namespace"`
	}
	query := url.Values{"mapping": {string(mapping)}}
	if of != nil {
		query["for"], query["forNamespace"] = []string{of.Cluster}, []string{of.Namespace}
	}
	path := c.path("/kith/v2/namespaces/"+url.PathEscape(home), query)
	if err := c.cfg.To.Call(ctx, http.MethodPut, path, nil, &answer); err != nil {
		return "", err
	}
	if len(validation.IsDNS1123Label(answer.Namespace)) > 0 {
		return "", fmt.Errorf("%.80q, as %s calls it, cannot be the name of a namespace", answer.Namespace, c.cfg.Peer)
	}
	return answer.Namespace, nil
}

// ReleaseTwin asks the peer to delete a twin with all in it; the view shows the progress.
func (c *Client) ReleaseTwin(ctx context.Context, home string) error {
	if err := c.pace.Wait(ctx); err != nil {
		return err
	}
	return c.cfg.To.Call(ctx, http.MethodDelete, c.path("/kith/v2/namespaces/"+url.PathEscape(home), nil), nil, nil)
}

// Upgrade leaves HTTP for a protocol, under the contract, on a connection of its own. The peer's own no is a *peering.Problem.
func (c *Client) Upgrade(ctx context.Context, path, protocol string) (io.ReadWriteCloser, error) {
	if err := c.pace.Wait(ctx); err != nil {
		return nil, err
	}
	return c.cfg.To.Upgrade(ctx, c.path(path, nil), protocol)
}

// PutPolicies tells the peer which NetworkPolicies hold for the pods there.
func (c *Client) PutPolicies(ctx context.Context, policies *netpolicy.Policies) (*netpolicy.Answer, error) {
	answer := &netpolicy.Answer{}
	return answer, c.cfg.To.Call(ctx, http.MethodPut, c.path(netpolicy.Path, nil), policies, answer)
}

// Machine asks the peer what machine it is. Before this question there was none: then it is the zero Machine.
func (c *Client) Machine(ctx context.Context) (machine Machine, err error) {
	err = c.cfg.To.Call(ctx, http.MethodGet, c.path("/kith/v2/machine", nil), nil, &machine)
	var no *peering.Problem
	if errors.As(err, &no) && no.Code == peering.CodeNotFound {
		return Machine{}, nil
	}
	return machine, err
}

// Usage asks the peer what our pods there use, in one of the forms UsageMetrics and UsageSummary.
func (c *Client) Usage(ctx context.Context, form string) ([]byte, error) {
	resp, err := c.get(ctx, c.path("/kith/v2/usage", url.Values{"form": {form}}))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxUsage))
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return body, err
}

// openView opens the stream of what is in the twins.
func (c *Client) openView(ctx context.Context) (io.ReadCloser, error) {
	since := c.cfg.Since()
	resp, err := c.get(ctx, "/kith/v2/view")
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound {
		resp.Body.Close()
		c.cfg.Older(since)
		return nil, errNoView
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || media != "application/x-ndjson" {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return nil, fmt.Errorf("%s: %q", resp.Status, text)
	}
	return resp.Body, nil
}

func (c *Client) get(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.To.BaseURL()+path, nil)
	if err != nil {
		return nil, err
	}
	return c.cfg.To.Transport().RoundTrip(r)
}

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

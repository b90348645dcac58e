package virtualnode

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/wire/codec"
)

// abroad are the clients for the peer's API server.
type abroad struct {
	offloaded *offloadedPods
	// conns are the connections of both; after a cut they may hang for minutes, and are better closed.
	conns *connrotation.ConnectionTracker

	// base is the URL of the API server, and streams carries logs, exec and the like there. They have
	// connections of their own: a healed link need not end them, and they do not hold up the others.
	base    *url.URL
	streams http.RoundTripper
}

func newAbroad(cfg *rest.Config, streams http.RoundTripper) (*abroad, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // the peer has its own limits
	cfg.Timeout = 0                    // watches and logs have no end; calls bring their own

	a := &abroad{conns: connrotation.NewConnectionTracker(), streams: streams}
	var err error
	if a.base, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, err
	}
	if a.base.Path == "" {
		a.base.Path = "/"
	}
	if a.streams == nil {
		if a.streams, err = transport(cfg, false, connrotation.NewConnectionTracker()); err != nil {
			return nil, err
		}
	}
	client := &http.Client{}
	if client.Transport, err = transport(cfg, true, a.conns); err != nil {
		if client, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, err
		}
	}

	client.Transport = codec.Transport(client.Transport)

	codecs, err := newCodec()
	if err != nil {
		return nil, err
	}
	a.offloaded, err = newOffloadedPods(cfg, codecs, client)
	return a, err
}

// transport makes a transport of our own from cfg. Streams want HTTP/1.1: in HTTP/2 there is no
// "Connection: Upgrade".
func transport(cfg *rest.Config, http2 bool, conns *connrotation.ConnectionTracker) (http.RoundTripper, error) {
	t, err := base(cfg)
	if err != nil {
		return nil, err
	}
	if t.DialTLSContext != nil && !http2 {
		return nil, errors.New("DialTLSContext chooses the protocol, so Upgrades must be given")
	}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	t.DialContext = connrotation.NewDialerWithTracker(dial, conns).DialContext
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	protocols := []string{"http/1.1"}
	if http2 {
		t.Protocols.SetHTTP2(true)
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second}
		protocols = []string{"h2", "http/1.1"}
	} else {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	if t.TLSClientConfig != nil {
		t.TLSClientConfig = t.TLSClientConfig.Clone()
		t.TLSClientConfig.NextProtos = protocols
	}
	return rest.HTTPWrappersForConfig(cfg, t)
}

// newCodec decodes what is asked of a peer, and nothing else: an answer names its own kind.
func newCodec() (runtime.NegotiatedSerializer, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return codec.New(scheme), nil
}

// base is a copy of cfg's transport, or one made from its fields.
func base(cfg *rest.Config) (*http.Transport, error) {
	if cfg.Transport != nil {
		given, err := innermost(cfg.Transport)
		if err != nil {
			return nil, err
		}
		return given.Clone(), nil
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: tlsConfig, DialContext: cfg.Dial, Proxy: http.ProxyFromEnvironment}
	if cfg.Proxy != nil {
		t.Proxy = cfg.Proxy
	}
	return t, nil
}

func innermost(rt http.RoundTripper) (*http.Transport, error) {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t, nil
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil, fmt.Errorf("cannot make an HTTP/1.1 transport from a %T; set Upgrades", rt)
		}
	}
}

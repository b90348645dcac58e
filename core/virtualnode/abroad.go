package virtualnode

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kith.dev/core/api/v1alpha1"
)

// abroad are the clients for the peer's API server.
type abroad struct {
	core      kubernetes.Interface // protobuf, over one connection
	offloaded *offloadedPods
	// base is the URL of the API server; plain and upgrades carry requests there.
	base     *url.URL
	plain    http.RoundTripper
	upgrades http.RoundTripper
}

func newAbroad(cfg *rest.Config, upgrades http.RoundTripper) (*abroad, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // the peer has its own limits (API priority and fairness)
	cfg.Timeout = 0                    // watches and logs have no end; calls bring their own
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	core := rest.CopyConfig(cfg)
	core.ContentType = runtime.ContentTypeProtobuf
	core.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfigAndClient(core, client)
	if err != nil {
		return nil, err
	}
	offloaded, err := newOffloadedPods(cfg, client)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	if upgrades == nil {
		if upgrades, err = http1(cfg); err != nil {
			return nil, err
		}
	}
	return &abroad{core: clientset, offloaded: offloaded, base: base, plain: client.Transport, upgrades: upgrades}, nil
}

// http1 makes a transport from cfg that never speaks HTTP/2, in which there is no "Connection: Upgrade".
func http1(cfg *rest.Config) (http.RoundTripper, error) {
	var transport *http.Transport
	if cfg.Transport != nil {
		given, err := innermost(cfg.Transport)
		if err != nil {
			return nil, err
		}
		transport = given.Clone()
	} else {
		tlsConfig, err := rest.TLSConfigFor(cfg)
		if err != nil {
			return nil, err
		}
		transport = &http.Transport{TLSClientConfig: tlsConfig, DialContext: cfg.Dial, Proxy: http.ProxyFromEnvironment}
		if cfg.Proxy != nil {
			transport.Proxy = cfg.Proxy
		}
	}
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if transport.TLSClientConfig != nil {
		transport.TLSClientConfig = transport.TLSClientConfig.Clone()
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return rest.HTTPWrappersForConfig(cfg, transport)
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

// crdConfig is cfg for the kinds of kith.dev.
func crdConfig(cfg *rest.Config) (*rest.Config, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &v1alpha1.GroupVersion
	cfg.APIPath = "/apis"
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.AcceptContentTypes = runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

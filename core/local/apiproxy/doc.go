// Package apiproxy passes requests on to a Kubernetes API: what a request asks for (Info), what it may cost (Limiter), how it
// travels (Proxy), and refusals that a Kubernetes client understands (Refuse). A Door is all of these in one order, for callers of other
// clusters: hosting's door for consumers and the company's for tethered laptops are policies of it. The kubelet endpoint of virtual
// nodes and the front door, whose callers are this machine's own, use the parts.
//
// It must never decide who may pass: that is its caller's, and so are the names under which somebody arrives. It must never pass
// on a header that says who asks: Authorization, Impersonate-*, X-Remote-*, cookies, a token among the WebSocket protocols.
package apiproxy

// Package apiproxy passes requests on to a Kubernetes API: what a request asks for (Info), what it may cost (Limiter), how it
// travels (Proxy), and refusals that a Kubernetes client understands (Refuse). The peer door of hosting, the kubelet endpoint
// of virtualnode and the front door are built on it.
//
// It must never decide who may pass: that is its caller's, and so are the names under which somebody arrives. It must never pass
// on a header that says who asks: Authorization, Impersonate-*, X-Remote-*, cookies, a token among the WebSocket protocols.
package apiproxy

// Package remote is the consumer's client of one peer, a provider. A Client reaches the peer's API server (API), calls its hosting API about
// twins, NetworkPolicies, machines and resource use, and holds a View: a live copy of this cluster's twin namespaces there and their objects.
// core/consume/consumer makes one for each peer; core/consume/virtualnode runs its View, and core/consume/reflection reads it. wire.go has the message types;
// core/provide/hosting is the server.
//
// It must never trust a peer more than needed: answers are bounded in size, and in the cost of decoding (core/trust/wire), and only the kinds that
// were asked for are decoded. It decides nothing by them.
//
// A view is one stream, however many namespaces there are: GET /kith/v2/view, answered with lines of JSON.
//
//	{"kind":"Namespace","object":{"metadata":{"name":"shop-q4zkx2a","labels":{"kith.dev/home-namespace":"shop"}}}}
//	{"kind":"OffloadedPod","object":{…}}
//	{"kind":"Synced"}
//	{"kind":"Pod","gone":true,"object":{…}}
//
// All kinds but one are objects: {"kind":"Closed"} with the label kith.dev/closed says that none of the peer's nodes takes pods now, and why;
// it is gone, or never sent, while one does.
//
// First come the twins and all objects in them, then Synced, then changes. Only the newest state of an object is sent: two changes while the
// connection was slow become one line. A twin in deletion has its deletionTimestamp; when a Namespace is gone, so is everything in it. Pods
// have metadata, status and node name; Services, EndpointSlices, ConfigMaps and Secrets metadata only; OffloadedPods and Events (of pods, and
// as OtherEvents of what these need) are complete. A stream is never resumed: after a break a new one starts, and what it has not sent until
// Synced is gone. So both sides agree again after a restart of either, or a week without a link.
//
// The provider decides by an object's namespace whose it is (core/provide/hosting, view.go). The number of objects kept is bounded too. A
// namespace that a peer names has no effect at home unless it is offloaded.
package remote

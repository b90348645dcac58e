// Package remote is the client of one peer's API, under the contract by which it provides: the consumer's hand there. A Client has
// the peer's own API server (API), what hosting answers there about twins, policies, machines and use, and a View: what the peer keeps
// for this cluster, the twin namespaces and what is in them. core/consumer makes one for each peer; core/virtualnode runs its View,
// and core/reflection reads it. The forms of what goes over the wire stand in wire.go; core/hosting speaks them at the other end.
//
// It must never believe a peer beyond what it is asked: answers are bounded and weighed before they are decoded (core/wire), only of
// the kinds that were asked for, and it decides nothing by them.
//
// A view is one stream, however many namespaces there are: GET /kith/v2/view, answered with lines of JSON.
//
//	{"kind":"Namespace","object":{"metadata":{"name":"shop-q4zkx2a","labels":{"kith.dev/home-namespace":"shop"}}}}
//	{"kind":"OffloadedPod","object":{…}}
//	{"kind":"Synced"}
//	{"kind":"Pod","gone":true,"object":{…}}
//
// Of those kinds all name objects, but one: {"kind":"Closed"} with the label kith.dev/closed says that none of the peer's nodes takes
// pods now, and why; while one does it is gone, or not told.
//
// At first come the twins and all that is in them, then Synced, then whatever changes, the newest state of each object: what
// changed twice while the line was slow is told once. A twin that is being deleted carries its deletionTimestamp; with a
// Namespace that is gone everything in it is. Of Pods there are metadata, status and the node; of Services, EndpointSlices,
// ConfigMaps and Secrets the metadata; OffloadedPods and Events are whole. There is nothing to resume: a stream that breaks is
// opened anew, and what it does not tell of until Synced is gone. So a restart of either side, or a link that was cut for a week,
// ends with both knowing the same.
//
// The provider decides by the namespace of each object whose it is (core/hosting, view.go). How much is kept of what it says is
// bounded too. Nobody at home opens a namespace because a peer names it.
package remote

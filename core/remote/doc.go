// Package remote is the client of what one peer keeps for this cluster: the consumer's view of its twin namespaces. The daemon
// makes one View for each peer; core/virtualnode runs it, and it and core/reflection read it.
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
// The provider decides by the namespace of each object whose it is (core/hosting, view.go). Nothing that it says is believed
// beyond that: each line is bounded and weighed before it is decoded (core/wire), and so is how much is kept. Nobody at home
// opens a namespace because a peer names it.
package remote

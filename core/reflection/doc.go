// Package reflection is the consumer's side of what pods abroad need besides themselves: Services and their
// EndpointSlices, the ConfigMaps and Secrets they refer to, and what their service account proves at home. Each is
// brought from a home namespace into its twin at a peer, kept like the one at home, and taken away again.
//
// The daemon makes one Home for the cluster and one Reflector per virtual node. It tells the Reflector of twins as
// they come and go (Open, Close); the virtual node asks it before a pod goes abroad (Prepare) and for the changes in
// the pod's template that belong to reflected objects (Adapt).
//
// A home EndpointSlice holds home pods and, by alias, pods abroad. Its twin holds the same endpoints as the peer
// reaches them: its own pods by their real address, those of home by the alias it gave them, and none of third peers.
//
// What is not as at home: a pod's status.podIP by the downward API is its address at the peer, the one it can bind to;
// home sees it by an alias. kubernetes.default.svc is the home API server at its own port, as KUBERNETES_SERVICE_PORT
// says, not at 443. Where the twin namespace could not keep the home name, `svc.namespace` needs a DNS at the peer that knows
// tenants, as the builtin engine's does.
//
// It must never write an object abroad that it did not make, hold all Secrets of a namespace in memory, or send one
// that no pod at that peer refers to, unless its owner labelled it kith.dev/reflect=true.
package reflection

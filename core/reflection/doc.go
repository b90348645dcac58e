// Package reflection is the consumer's side of what pods abroad need besides themselves: Services and their
// EndpointSlices, the ConfigMaps and Secrets they refer to, and what their service account proves at home. Each is
// brought from a home namespace into its twin at a peer, kept like the one at home, and taken away again.
//
// The daemon makes one Home for the cluster and one Reflector per virtual node. It tells the Reflector of twins as
// they come and go (Open, Close); the virtual node asks it before a pod goes abroad (Prepare) and for the changes in
// the pod's template that belong to reflected objects (Adapt).
//
// Addresses mean the same everywhere: the twin of an EndpointSlice holds the same endpoints, of pods at home and of guests at whatever
// peer, but for those outside of home's own ranges, which no guest reaches. A Service tells in its twin the address that it has at home.
// So does kubernetes.default, which has a twin in each twin namespace (kinds.APIServerAbroad).
//
// What is not as at home: where the twin namespace could not keep the home name, `svc.namespace` needs a DNS at the peer that knows
// tenants, as the builtin engine's does.
//
// It must never write an object abroad that it did not make, hold all Secrets of a namespace in memory, or send one
// that no pod at that peer refers to, unless its owner labelled it kith.dev/reflect=true.
package reflection

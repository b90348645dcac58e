// Package reflection copies the objects that this cluster's pods at peers need from their home namespace into its twin at the peer, keeps the
// copies up to date, and deletes them when they are no longer needed: Services and their EndpointSlices, the ConfigMaps and Secrets that the
// pods refer to, and service account tokens of the home cluster.
//
// The daemon makes one Home for the cluster and one Reflector per virtual node. It calls Open and Close when twins come and go. The virtual
// node calls Prepare before a pod goes to the peer, and Adapt for the changes in the pod's template that refer to the copies.
//
// Addresses are the same everywhere: the copy of an EndpointSlice has the same endpoints, pods at home and at any peer, except those outside
// of the home cluster's ranges, which no pod at a peer can reach. The copy of a Service has its ClusterIP at home in an annotation. So has
// kubernetes.default, which is copied into every twin namespace (kinds.APIServerAbroad).
//
// One difference remains: if the twin namespace has another name than at home, the DNS name `svc.namespace` resolves only where the peer's DNS
// answers by tenant, as the built-in engine's does.
//
// It must never write an object abroad that it did not make, hold all Secrets of a namespace in memory, or send one
// that no pod at that peer refers to, unless its owner labelled it kith.dev/reflect=true.
package reflection

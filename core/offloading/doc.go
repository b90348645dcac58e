// Package offloading decides which pods of this cluster may leave it: a NamespaceOffloading (or its short
// form, the label kith.dev/offload=true on a namespace) lets the pods of its namespace tolerate the taint
// of virtual nodes, by an admission policy that the API server itself evaluates, so that no webhook of
// Kith can be down. The ordinary scheduler does the rest. Pods of all other namespaces stay at home, whatever they
// tolerate: by admission as well, and because virtual nodes and reflection ask (Permits) before anything leaves.
//
// The daemon runs its Reconciler. It must never bind a pod to a node, and never touch a pod that
// could not have gone abroad.
package offloading

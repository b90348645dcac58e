// Package offloading decides which pods of this cluster may run at peers. A NamespaceOffloading (or its short form, the label
// kith.dev/offload=true on a namespace) adds a toleration for the taints of virtual nodes to the namespace's pods, by a
// MutatingAdmissionPolicy: the API server evaluates it itself, so there is no webhook that could be down. The ordinary scheduler does the
// rest. Pods of all other namespaces stay at home, whatever they tolerate: a ValidatingAdmissionPolicy refuses them on virtual nodes, and
// virtual nodes and reflection check again (Permits) before anything leaves. A budget closes peers at a price to a namespace's new pods in the same ways.
//
// The daemon runs its Reconciler. It must never bind a pod to a node, and never touch a pod that
// could not have gone abroad.
package offloading

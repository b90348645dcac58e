// Package policy enforces NetworkPolicy objects (networking.k8s.io/v1) on the node of the built-in engine. A pure
// function, compile, makes rules of sets, maps and chains from policies, pods and namespaces; a controller follows
// those and writes what changed into nftables tables of its own, one transaction at a time.
//
// It is called by the server of the engine and by nobody else: clusters with another engine have a network plugin that
// enforces policies itself. It is here and not in kithd because pods are started here: their rules are in force before
// their first program runs (Ask), whether kithd runs or not.
//
// # Which packets are asked
//
// All that pods send or get through this node, by the addresses behind kube-proxy's translation. Pods that run at peers
// are pods with addresses like all others: what goes between them and home passes this node, in both directions, and so does what those
// at one peer send to those at another. What they send to each other there, and to the internet, does not: the peer's own engine
// holds them to it.
//
// Guests, pods of other clusters, have addresses that no other pod has. Their homes may have the addresses of the owner's pods:
// what goes between guests and the tunnel is asked by the guest's address alone, and a range of a guest's policy does not
// mean the owner's pods.
//
//	forwarded, by the source        what the pod may send (egress)
//	forwarded, by the destination   what the pod may get (ingress)
//	to this node, by the source     what the pod may send: the node is one like others, but for the cluster's DNS, see below
//	from this node                  never asked: the kubelet's probes, and other pods on the host's network
//
// Only answers pass for their connection's sake, so that a new policy holds for connections that are open, too. A pod
// may always talk to itself, also by a service. What is not allowed is told so (ICMP admin-prohibited), unless it comes from
// an address that is no pod's.
//
// DNS runs on the node, not in a pod. To policies it is the pod that it is elsewhere: in kube-system, with the label
// k8s-app=kube-dns and port 53.
//
// # Cost
//
// Without a NetworkPolicy there is one idle watch and no table. With some, a packet of a pod that no policy
// selects costs two look-ups. A policy is as many elements as it has peers, ranges and ports, and not their product.
package policy

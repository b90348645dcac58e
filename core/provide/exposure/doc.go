// Package exposure gives services of type LoadBalancer this laptop's addresses on its LAN, if the owner opened them to it
// (`expose: lan`), and takes them back when he closes them. kube-proxy does the rest: what is in a
// service's status it leads to the service's pods, at home or abroad. Node ports it opens by itself.
//
// The daemon makes one Exposure and tells it when the laptop moved. It must never touch a service that somebody else serves
// (another loadBalancerClass, a status that others wrote), give away a port on which the laptop itself listens, or expose
// what is in a namespace of another cluster.
package exposure

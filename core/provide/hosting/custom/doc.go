// Package custom keeps custom resources of consumers in their twin namespaces: the provider's end of core/consume/custom. One connection is one Session
// for one consumer; what it may keep are the kinds that the owner's SharingPolicy names (grants.Terms.Kinds), as many of each as that says, in twins
// under a contract in force.
//
// Objects are written by this cluster's own identity, from what a consumer says they contain. So consumers have no rights here, and no metadata of
// theirs gets in: a name, and labels of Kith's. What an object contains is for the schema of its definition to judge.
//
// The daemon has peers' requests answered by Objects.ServeObjects. It must never write an object that is not a custom resource, or one that Kith did not make.
package custom

// Package netplan is the arithmetic on addresses: which address a cluster gives to what (Cluster), which ranges a peer may name
// (CheckRange), under which alias one is seen here (ChooseAlias), and the way between an address here and the same at a peer
// (Pair). The rooms above ask for an address by what it is for; how it is made, and how two clusters agree on theirs, is known here
// alone.
//
// Everything is a function from values to values. Nothing here asks the kernel (hostnet does), reads an object of the cluster, or
// remembers: who calls passes what is taken.
package netplan

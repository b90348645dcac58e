// Package netplan is the arithmetic on addresses: which address a cluster gives to what (Cluster), which ranges a peer may name
// (CheckRange), which one is free for guests (Choose), and what two clusters agreed on (Pair). Other packages get an address by its purpose;
// only this one knows how it is derived.
//
// Everything is a function from values to values. Nothing here asks the kernel (hostnet does), reads an object of the cluster, or
// remembers: who calls passes what is taken.
package netplan

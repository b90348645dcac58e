// Package net is the floor of addresses, packets and the kernel's tables.
//
// Comes in: peers with their keys and ranges, as values. Goes out: a tunnel for each of them, routes, nftables tables, what the kernel tells
// of links and addresses. Never here: why somebody is a peer. This floor knows ranges and keys, no contracts and no objects of Kubernetes.
package net

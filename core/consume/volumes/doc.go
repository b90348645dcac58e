// Package volumes makes the volumes of claims of the class kith: where the scheduler put the first pod that uses a claim, at home or at a peer
// that lends storage.
//
// At a peer, the peer keeps a claim of that name in the twin of the namespace (core/provide/hosting/volumes), and a PersistentVolume here stands for
// it, which binds the claim's pods to the peer's node. At home the volume is one of the cluster's default class, by a claim in the namespace
// kith-volumes, and a second PersistentVolume of the same source stands for that. CSIStorageCapacity objects tell the scheduler how much each
// peer has left.
//
// The Controller is what an external provisioner is to Kubernetes (the annotations volume.kubernetes.io/storage-provisioner and selected-node). Upstream's
// library for them is not linked: it wakes up ten times a second, and brings gRPC.
//
// A claim that asks for more later gets it where its volume is (grow.go).
//
// Of a volume at a peer, a VolumeSnapshot is made there, too, and a volume that begins with it (snapshots.go, begin.go).
//
// The Mover takes a volume from one of these places to another, while its claim and its name stay.
//
// A volume's data is deleted when its claim here is deleted, under the reclaim policy Delete, and by nothing else; what a move leaves behind is a copy.
// This package must never delete files where the volume of a claim is, whatever is written on that claim.
package volumes

// Package volumes keeps the volumes of guests: a PersistentVolumeClaim in a twin namespace for each claim of a consumer, within what its
// contract grants of storage, and the PersistentVolume that this cluster's default storage class makes for it.
//
// Consumers do not write claims; they ask for them (Claims.PutClaim, Claims.DeleteClaim), and have the files of their own
// copied, out or in (Claims.CopyClaim). Their storage class, v1alpha1.GuestStorageClass, retains every
// volume, so nothing that deletes a twin namespace deletes data: neither the end of a contract, nor a namespace that is given up, nor somebody's
// kubectl. What is left then is kept for as long as the contract said, is the consumer's again when it asks for the same claim under another
// contract, and is deleted afterwards. At once it is deleted only when the consumer deletes the claim.
//
// Snapshots of these volumes (snapshots.go) are VolumeSnapshots in the twin, of a class that retains their contents, and all of that holds for them, too.
//
// It must never delete a volume that it did not have made, nor bind one to a claim of another consumer, or of another UID.
package volumes

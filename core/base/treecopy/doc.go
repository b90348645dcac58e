// Package treecopy makes one folder of files like another, over a stream of bytes: Send at one end, Receive at the other, Relay between two streams.
//
// What is there already is not sent again: files go in blocks, which the sender names by their SHA-256 and the receiver asks for. So a copy that was
// cut goes on where it was, a second pass takes what changed, and a pass while nothing changes (Options.Still) proves that each block is the same on
// both sides. Names, modes, owners, times, hard links, holes and extended attributes (user.*, POSIX ACLs, file capabilities) are copied; sockets and
// fifos are made; devices are refused.
//
// Both ends run as root over folders that somebody else fills, and neither believes the other: no name leads out of the folder, no symbolic link is
// followed, and what comes is bounded in bytes, files and depth. The package must know nothing of volumes, claims or peers.
package treecopy

// Package nft keeps nftables tables of Kith's own in the kernel: rooms say as values what is to be in theirs, made of the words here, and a
// Keeper changes what differs, leaves the rest as it is, and finds out when somebody took it away. fence and guestnet use it. It
// never touches a table that it was not given, and knows nothing of what a table is for.
package nft

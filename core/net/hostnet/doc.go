// Package hostnet is what the kernel says of this host's links, addresses and routes: news of changes (Changes, one subscription for
// all who listen; Tables, of nftables), which ranges are in use (InUse), and by which way an address is reached.
//
// gateway, fence, discovery and doctor ask, and the engine (module kith.dev/engine); the daemon makes one Changes and gives it to
// them. Nothing here changes anything at the host, and nothing is remembered: whoever hears of a change looks again at the whole.
package hostnet

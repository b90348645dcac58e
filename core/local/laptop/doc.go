// Package laptop watches, on the system bus, what becomes of this machine as its owner uses it: logind says when it is about to be suspended and
// whether somebody uses its desktop, NetworkManager whether its network is paid for by the amount. daemon runs it, tells peers of a
// suspend and hands the state to those who offer something under a condition.
//
// It keeps the machine awake while its owner wants that, for guests that run here, and no longer than the batteries allow.
//
// What neither says is not known, and said to be so. The package must never ask again and again, decide what follows, or, without its owner's word,
// keep the machine awake longer than it takes to tell peers.
package laptop

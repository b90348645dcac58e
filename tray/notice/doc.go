// Package notice tells the desktop's user what happened: requests with Accept and Decline, codes to confirm, peers that come and
// go, trouble of the daemon. The tray makes one Notifier, hands it every snapshot, and sends the answers it gets to the daemon:
//
//	screen, err := notice.Desktop(log)                // no session bus: err
//	n := notice.New(screen, kithd, settings, log)
//	go n.Run(ctx)                   // until ctx ends, or the session bus goes
//	n.Observe(snapshot, nil)        // after each change; never blocks
//	n.Observe(api.Snapshot{}, err)  // when no daemon answers
//	for a := range n.Answers() {    // what was clicked; closed when Run returns
//		kithd.Answer(ctx, a.Request, a.Yes) // or ConfirmPeer, for a.Peer
//	}
//
// What to tell is a pure function (State.Next) of what was seen before, what is seen now and what the user wants to know. Facts come
// from the snapshot where it has them, and from the daemon's events, which the Notifier follows itself, where it has not. Nothing is told
// twice, nothing that was so when the tray started, and many of one kind come as one notification.
//
// The package must never take a click for an answer that does not come from the desktop's own notification server, for a notification
// of its own (bus_linux.go); never show a peer's words without package words; and never act on an answer: it decides nothing.
package notice

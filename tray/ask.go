package tray

import (
	"context"
	"errors"
	"slices"

	"kith.dev/core/api"
	"kith.dev/tray/desktop"
	"kith.dev/tray/notice"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// window is the one in which the person in front of the screen decides something. There is one at a time: one that replaced
// another could catch a click that was meant for that.
type window struct {
	// stands reports whether a snapshot still has what the window asks, word for word.
	stands func(api.Snapshot) bool
	close  context.CancelFunc
}

// askAccept opens the window in which a request is accepted. A click in the menu leads here, whoever made it.
func (t *Tray) askAccept(ctx context.Context, id string) {
	r, ok := requestIn(t.state.Snapshot, id)
	if !ok {
		t.failed(id, errNoRequest)
		return
	}
	short := r.PeerID
	if p, known := peerIn(t.state.Snapshot, r.PeerID); known {
		short = p.ShortID
	}
	stands := func(s api.Snapshot) bool {
		now, ok := requestIn(s, id)
		return ok && now.Code == r.Code && now.PeerID == r.PeerID && now.Grants() == r.Grants()
	}
	t.ask(ctx, question.Accept(r, short), stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			n := notice.Asks(r)
			n.Body += "\n" + noWindow("kith accept "+r.ID+"` or `kith decline "+r.ID)
			t.Notifier.Again(n)
		case a == question.Yes:
			t.accept(ctx, r)
		case a == question.No:
			t.decline(ctx, id)
		}
	})
}

// askConfirm opens the window in which the owner compares the code with a peer that accepted, or sees its terms.
func (t *Tray) askConfirm(ctx context.Context, id string) {
	p, _ := peerIn(t.state.Snapshot, id)
	if p.Confirm == nil {
		t.failed(id, errNothingToConfirm)
		return
	}
	command := "kith confirm " + question.Named(p.Name, p.ShortID)
	q, whole := question.Confirm(p)
	if !whole {
		t.say("terms/"+id, p.Name+" has more terms than a window shows", "In a terminal: `"+command+"`")
		return
	}
	stands := func(s api.Snapshot) bool {
		now, _ := peerIn(s, id)
		return now.Confirm != nil && now.Confirm.Code == p.Confirm.Code && slices.Equal(now.Confirm.Terms, p.Confirm.Terms)
	}
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			n := notice.Accepts(p)
			if n.About.Terms {
				n.About = notice.Subject{} // its button would lead here again
			}
			n.Body += "\n" + noWindow(command)
			t.Notifier.Again(n)
		case a == question.Yes, a == question.No:
			t.confirm(ctx, id, api.PeerConfirm{Code: p.Confirm.Code, Terms: len(p.Confirm.Terms) > 0, Reject: a == question.No})
		}
	})
}

// askUnpeer opens the window in which the owner ends what there is with a peer.
func (t *Tray) askUnpeer(ctx context.Context, id string) {
	p, _ := peerIn(t.state.Snapshot, id)
	q := question.Unpeer(p)
	stands := func(s api.Snapshot) bool {
		now, ok := peerIn(s, id)
		return ok && now.Outgoing == p.Outgoing && now.Incoming == p.Incoming
	}
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			t.say("unpeer", words.Text(q.Lead), noWindow("kith unpeer "+question.Named(p.Name, p.ShortID)))
		case a == question.Yes:
			t.do(ctx, id, "ending", 0, func(ctx context.Context) error {
				return errorOf(t.Daemon.Unpeer(ctx, id, api.EndOptions{}, func(p api.Progress) {
					t.change(ctx, func() { t.state.Doing[id] = p.Message })
				}))
			})
		}
	})
}

func noWindow(command string) string {
	return "No window can be shown: zenity, yad, kdialog and xmessage are missing. In a terminal: `" + command + "`"
}

// ask shows a question; the loop gets the answer, unless what was asked is no longer so by then.
func (t *Tray) ask(ctx context.Context, q question.Question, stands func(api.Snapshot) bool, then func(question.Answer, error)) {
	if t.window != nil {
		t.state.Note = "a window is open: answer that one first"
		t.say("window", "A window of Kith is open already", "Answer that one first, or close it: it may be behind others.") // the menu is shut by now
		return
	}
	bounded, cancel := context.WithCancel(ctx)
	w := &window{stands, cancel}
	t.window = w
	t.running.Go(func() {
		defer cancel()
		answer, err := t.Desktop.Ask(bounded, q)
		t.change(ctx, func() {
			if t.window == w {
				t.window = nil
			}
			switch {
			case err != nil && !errors.Is(err, desktop.ErrNoWindow): // it was closed, for what it asked is gone
			case stands(t.state.Snapshot):
				then(answer, err)
			case answer == question.Yes:
				t.state.Note = "nothing was accepted: it was taken back, or answered elsewhere, or has changed"
			}
		})
	})
}

// closeWindow closes the window whose question is no longer one.
func (t *Tray) closeWindow() {
	if t.window != nil && !t.window.stands(t.state.Snapshot) {
		t.window.close()
		t.window = nil
	}
}

// confirm answers what a peer accepted.
func (t *Tray) confirm(ctx context.Context, peer string, word api.PeerConfirm) {
	doing := "confirming"
	if word.Reject {
		doing, word.Terms = "taking the request back", false
	}
	t.do(ctx, peer, doing, callTime, func(ctx context.Context) error {
		_, err := t.Daemon.ConfirmPeer(ctx, peer, word)
		if word.Reject && errors.Is(err, &api.Error{Code: api.CodeDeclined}) {
			return nil // as it was meant
		}
		return err
	})
}

// answered takes a click on a button of a notification.
func (t *Tray) answered(ctx context.Context, a notice.Answer) {
	switch {
	case a.Change != nil:
		if a.Yes {
			t.undo(ctx, *a.Change)
		}
	case a.Awake:
		if a.Yes {
			t.keepAwake(ctx, true)
		}
	case a.Request != "" && !a.Yes:
		t.decline(ctx, a.Request)
	case a.Request != "":
		switch r, ok := requestIn(t.state.Snapshot, a.Request); {
		case !ok:
			t.failed(a.Request, errNoRequest)
		case r.Grants() != a.Grants: // the notice of what it is now comes with the snapshot
			t.state.Note = "nothing was accepted: what " + r.Peer + " would get has changed"
		default:
			t.accept(ctx, r)
		}
	case a.Yes && a.Terms:
		t.askConfirm(ctx, a.Peer)
	default:
		t.confirm(ctx, a.Peer, api.PeerConfirm{Code: a.Code, Reject: !a.Yes})
	}
}

func requestIn(s api.Snapshot, id string) (api.Request, bool) {
	return first(s.Requests, func(r api.Request) bool { return r.ID == id && r.Direction == api.Incoming })
}

func peerIn(s api.Snapshot, id string) (api.Peer, bool) {
	return first(s.Peers, func(p api.Peer) bool { return p.ID == id })
}

func first[T any](list []T, is func(T) bool) (found T, ok bool) {
	if n := slices.IndexFunc(list, is); n >= 0 {
		return list[n], true
	}
	return found, false
}

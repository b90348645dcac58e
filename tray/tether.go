package tray

import (
	"context"
	"errors"

	"kith.dev/core/api"
	"kith.dev/tray/menu"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// seeTether asks what a tether to a peer would mean, and shows it in the window in which the owner wants it, or what is in the way.
func (t *Tray) seeTether(ctx context.Context, peer string) {
	t.do(ctx, menu.DoingTether, "asking what a tether to "+t.peerName(peer)+" means", callTime, func(call context.Context) error {
		check, err := t.Daemon.CheckTether(call, peer)
		unknown := errors.Is(err, &api.Error{Code: api.CodeUnsupported})
		t.change(ctx, func() {
			switch {
			case unknown:
				t.state.NoTether = true
			case err == nil:
				t.askTether(ctx, peer, check)
			}
		})
		return err
	})
}

// askTether opens that window. A click in the menu leads here, whoever made it.
func (t *Tray) askTether(ctx context.Context, id string, check api.TetherCheck) {
	p, _ := peerIn(t.state.Snapshot, id)
	command := "kith tether " + question.Named(p.Name, p.ShortID)
	stands := func(s api.Snapshot) bool {
		now, ok := peerIn(s, id)
		return ok && now.Name == p.Name && s.Status.Mode == api.Autonomous
	}
	blocked := len(check.Blockers) > 0
	q := question.Tether(check, p.ShortID)
	if blocked {
		q = question.Blocked(check)
	}
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil && blocked:
			t.say("tether", words.Text(q.Lead), check.Blockers[0].What+"\n"+check.Blockers[0].Do+"\nIn a terminal: `"+command+" --check`")
		case err != nil:
			t.say("tether", words.Text(q.Lead), noWindow(command))
		case a == question.Yes && blocked:
			t.seeTether(ctx, id)
		case a == question.Yes:
			t.do(ctx, menu.DoingTether, "tethering", 0, func(ctx context.Context) error {
				return errorOf(t.Daemon.Tether(ctx, api.TetherOptions{Peer: id}, nil))
			})
		}
	})
}

// askUntether opens the window in which the owner takes this laptop back.
func (t *Tray) askUntether(ctx context.Context) {
	was := t.state.Snapshot.Status
	q := question.Untether(t.state.Snapshot)
	stands := func(s api.Snapshot) bool { return s.Status.Mode == was.Mode }
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			t.say("untether", words.Text(q.Lead), noWindow("kith untether"))
		case a == question.Yes:
			// Not under the subject of a tether that is being made: that call ends when this one undoes it.
			t.do(ctx, menu.DoingUntether, "untethering", 0, func(ctx context.Context) error {
				return errorOf(t.Daemon.Untether(ctx, api.UntetherOptions{}, nil))
			})
		}
	})
}

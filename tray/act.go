package tray

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/browser"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
)

const (
	// callTime bounds what the daemon answers at once; its own bound is shorter and says more.
	callTime = 40 * time.Second
	// doctorTime bounds a look at everything.
	doctorTime = 2 * time.Minute
	// fixTime bounds what is mended, reportTime the making of a bug report; kithd's own bounds are shorter.
	fixTime, reportTime = 5 * time.Minute, 4 * time.Minute
)

var (
	errNoRequest        = errors.New("the request cannot be answered any more")
	errNothingToConfirm = errors.New("there is nothing to confirm any more")
)

// clicked does what a click in the menu asks for. On Linux any program on the session bus can make one, so what binds this owner, an
// accept or a confirmation, is only ever asked for here, in a window.
func (t *Tray) clicked(ctx context.Context, a menu.Action) {
	t.Log.Debug("click", "verb", a.Verb, "about", a.About)
	t.state.Note = ""
	switch a.Verb {
	case menu.Ask:
		t.do(ctx, a.About, "asking", callTime, func(ctx context.Context) error {
			return errorOf(t.Daemon.Ask(ctx, a.About, api.PeerAsk{}, nil))
		})
	case menu.Withdraw:
		t.do(ctx, a.About, "taking the request back", callTime, func(ctx context.Context) error {
			return errorOf(t.Daemon.Withdraw(ctx, a.About))
		})
	case menu.End:
		t.askUnpeer(ctx, a.About)
	case menu.Answer:
		t.askAccept(ctx, a.About)
	case menu.Confirm:
		t.askConfirm(ctx, a.About)
	case menu.Share:
		t.askShare(ctx)
	case menu.Tether:
		t.seeTether(ctx, a.About)
	case menu.Untether:
		t.askUntether(ctx)
	case menu.KeepAwake:
		t.keepAwake(ctx, a.About == menu.KeepOn)
	case menu.SetKind:
		t.setKind(notice.Kind(a.About))
	case menu.ShowAbout:
		t.sayAbout()
	default:
		t.tool(ctx, a)
	}
}

// tool does what is done on this desktop.
func (t *Tray) tool(ctx context.Context, a menu.Action) {
	switch a.Verb {
	case menu.AskKubectl:
		t.seeKubectl(ctx)
	case menu.CopyKubeconfig:
		t.do(ctx, "kubeconfig", "", callTime, func(ctx context.Context) error {
			text, err := t.Daemon.Kubeconfig(ctx)
			if err == nil {
				err = t.copy(ctx, "kubeconfig", text, "The kubeconfig is on the clipboard", "It holds an administrator's key: keep it to yourself.")
			}
			return err
		})
	case menu.OpenTerminal:
		t.do(ctx, "terminal", "", callTime, func(ctx context.Context) error {
			text, err := t.Daemon.Kubeconfig(ctx)
			if err == nil {
				err = t.Desktop.Terminal(text)
			}
			return err
		})
	case menu.CopyText:
		t.do(ctx, "copy", "", callTime, func(ctx context.Context) error {
			return t.copy(ctx, "command", []byte(a.About), "The command is on the clipboard", a.About)
		})
	case menu.SeeTop:
		name := t.peerName(a.About)
		t.do(ctx, "top/"+a.About, "", callTime, func(ctx context.Context) error { return t.seeTop(ctx, name) })
	case menu.OpenPage:
		t.do(ctx, "page", "", callTime, func(ctx context.Context) error {
			opened, err := t.Daemon.Web(ctx, api.WebOptions{})
			if err == nil {
				err = browser.Open(opened.URL)
			}
			return err
		})
	case menu.Diagnose:
		shown := menu.Text(menu.Of(t.state))
		t.do(ctx, menu.DoingDiagnosis, "", doctorTime, func(ctx context.Context) error { return t.diagnose(ctx, shown) })
	case menu.Mend:
		t.askMend(ctx)
	case menu.SaveReport:
		t.do(ctx, menu.DoingReport, "", reportTime, func(call context.Context) error { return t.seeReport(ctx, call) })
	}
}

// accept accepts a request as it was shown: no more is granted than that.
func (t *Tray) accept(ctx context.Context, shown api.Request) {
	t.answer(ctx, shown.ID, "accepting", func(ctx context.Context) error {
		return errorOf(t.Daemon.Accept(ctx, shown.ID, shown.Granted))
	})
}

func (t *Tray) decline(ctx context.Context, request string) {
	t.answer(ctx, request, "declining", func(ctx context.Context) error {
		return errorOf(t.Daemon.Decline(ctx, request))
	})
}

func (t *Tray) answer(ctx context.Context, request, doing string, call func(context.Context) error) {
	t.do(ctx, request, doing, callTime, func(ctx context.Context) error {
		err := call(ctx)
		if errors.Is(err, &api.Error{Code: api.CodeNotFound}) { // taken back, or answered elsewhere
			err = fmt.Errorf("%w: %w", errNoRequest, err)
		}
		return err
	})
}

func errorOf[T any](_ T, err error) error { return err }

// do runs something beside the loop, once at a time for one subject: doing is what the menu says meanwhile.
// What goes wrong is shown in the menu and by a notification.
func (t *Tray) do(ctx context.Context, about, doing string, bound time.Duration, f func(ctx context.Context) error) {
	if _, busy := t.state.Doing[about]; busy {
		return
	}
	t.state.Doing[about] = doing
	t.running.Go(func() {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if bound > 0 {
			bounded, cancel = context.WithTimeout(ctx, bound)
		}
		defer cancel()
		err := f(bounded)
		t.change(ctx, func() {
			delete(t.state.Doing, about)
			if err != nil {
				t.failed(about, err)
			}
		})
	})
}

func (t *Tray) failed(about string, err error) {
	t.Log.Warn("a click had no success", "about", about, "err", err)
	t.state.Note = err.Error()
	title, body := "Kith: it did not work", err.Error()
	var e *api.Error
	if errors.As(err, &e) {
		title, body = e.Message, e.Reason+"\n"+e.Do
	}
	t.say("failed/"+about, title, body)
}

// keepAwake keeps this laptop awake until guests end, or lets it sleep. It is done by a click alone: any program of the session can keep its
// laptop awake anyway.
func (t *Tray) keepAwake(ctx context.Context, on bool) {
	t.do(ctx, menu.DoingAwake, "", callTime, func(ctx context.Context) error {
		return errorOf(t.Daemon.KeepAwake(ctx, api.AwakeOptions{UntilGuestsEnd: on, Off: !on}))
	})
}

func (t *Tray) setKind(k notice.Kind) {
	t.Settings = t.Settings.With(k, !t.Settings.Shows(k))
	t.Notifier.Set(t.Settings)
	if err := t.Settings.Save(t.SettingsPath); err != nil {
		t.failed("settings", err)
	}
}

func (t *Tray) peerName(id string) string {
	if p, known := peerIn(t.state.Snapshot, id); known {
		return p.Name
	}
	return "the peer"
}

// copy puts text on the clipboard and says so, or where it is instead.
func (t *Tray) copy(ctx context.Context, name string, text []byte, title, body string) error {
	file, err := t.Desktop.Copy(ctx, name, text)
	if err != nil {
		return err
	}
	if file != "" {
		title, body = "There is no clipboard: it is in a file", file
	}
	t.say("copied", title, body)
	return nil
}

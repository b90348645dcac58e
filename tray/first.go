package tray

import (
	"context"
	"fmt"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/kubeconfig"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// sayReady says once for each installation that the laptop is ready, and where to go on: somebody who has just installed Kith waits for it.
func (t *Tray) sayReady() {
	s := t.state.Snapshot.Status
	if s.Engine.State != api.EngineReady || s.ID == "" || s.ID == t.Settings.Ready {
		return
	}
	t.Settings.Ready = s.ID
	t.Notifier.Set(t.Settings)
	if err := t.Settings.Save(t.SettingsPath); err != nil { // it is said again at the next start
		t.Log.Warn("that the laptop is ready is not remembered", "err", err)
	}
	t.say("ready", "This laptop is ready",
		"It is a Kubernetes of its own, called "+words.Name(s.Name)+", and others near you can ask it for resources. "+
			"In Kith's menu: Share this laptop… and Show kubectl access…")
}

// askShare opens the windows in which the owner says how much is shared, and who answers those who ask. Both leave everything as it is
// until the last is answered.
func (t *Tray) askShare(ctx context.Context) {
	stands := func(s api.Snapshot) bool { return s.Status.Mode == api.Autonomous || s.Status.Mode == "" }
	q := question.Share(t.state.Snapshot.Status.Engine.Kind == api.EngineBuiltin)
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		share := question.Shared(a)
		switch {
		case err != nil:
			t.say("share", words.Text(q.Lead), noWindow("kith share 50%"))
		case share != "":
			t.ask(ctx, question.Each(share), stands, func(a question.Answer, err error) {
				switch {
				case err != nil:
					t.say("share", "Nothing was changed", noWindow("kith share "+share))
				case a == question.Yes, a == question.No:
					t.share(ctx, share, a == question.No)
				}
			})
		}
	})
}

func (t *Tray) share(ctx context.Context, share string, all bool) {
	t.do(ctx, "sharing", "", callTime, func(ctx context.Context) error {
		paused := false
		_, err := t.Daemon.SetPolicy(ctx, api.DefaultPolicy, api.PolicyChange{Amounts: api.ShareOf(share), AutoAccept: &all, Paused: &paused})
		if err == nil {
			t.say("share", "Sharing "+strings.TrimSuffix(share, "%")+" %",
				map[bool]string{false: "You are asked each time.", true: "Everybody on your network who asks gets it. `kith share` shows and changes that."}[all])
		}
		return err
	})
}

// seeKubectl asks for a kubeconfig, looks where it would go, and opens the window in which the owner has it written.
func (t *Tray) seeKubectl(ctx context.Context) {
	t.do(ctx, "kubectl", "", callTime, func(call context.Context) error {
		access, err := t.Daemon.Kubeconfig(call)
		if err != nil {
			return err
		}
		ask := kubeconfig.Ask{Files: kubeconfig.Files(t.Getenv), Access: access}
		plan, err := kubeconfig.Make(ask)
		if err == nil {
			t.change(ctx, func() { t.askKubectl(ctx, ask, plan) })
		}
		return err
	})
}

func (t *Tray) askKubectl(ctx context.Context, ask kubeconfig.Ask, plan kubeconfig.Plan) {
	q := question.Kubectl(plan)
	stands := func(api.Snapshot) bool { return true } // it is between the person and a file
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			t.say("kubectl", words.Text(q.Lead), noWindow("kith kubeconfig --merge"))
		case a == question.Yes, a == question.Or(0):
			t.do(ctx, "kubectl", "", callTime, func(context.Context) error { return t.write(ask, plan, a == question.Or(0)) })
		}
	})
}

// write writes the context as the window said, into the file as it is by now: a window may stay open for long. It says how the context is used.
func (t *Tray) write(ask kubeconfig.Ask, shown kubeconfig.Plan, use bool) error {
	ask.Use = use
	plan, err := kubeconfig.Make(ask)
	if err != nil {
		return err
	}
	if !plan.Same(shown) || plan.Uses != (shown.Uses || use) {
		return fmt.Errorf("%s is not as the window said any more, and was not changed: try again", shown.Path)
	}
	backup, err := plan.Write()
	if err != nil {
		return err
	}
	body := "kubectl --context " + plan.Context + " get nodes"
	if plan.Uses || plan.Current == plan.Context {
		body = "kubectl get nodes"
	}
	if backup != "" {
		body += "\nThe file as it was: " + backup
	}
	t.say("kubectl", "kubectl reaches this laptop", body)
	return nil
}

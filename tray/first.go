package tray

import (
	"context"
	"fmt"

	"kith.dev/core/api"
	"kith.dev/core/local/kubeconfig"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
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
			"In Kith's menu: “Sharing …”, and “Show kubectl access…” below “Cluster ready”.")
}

// askShare opens the windows in which the owner says how much is shared, and who answers those who ask. They leave everything as it is
// until the last is answered. That it has changed is told as any change of a policy is.
func (t *Tray) askShare(ctx context.Context) {
	now := t.state.Snapshot.Status.Sharing
	stands := func(s api.Snapshot) bool {
		return (s.Status.Mode == api.Autonomous || s.Status.Mode == "") && words.Sharing(s.Status.Sharing) == words.Sharing(now)
	}
	q := question.Share(now, t.state.Snapshot.Status.Engine.Kind == api.EngineBuiltin)
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		share, paused := question.Shared(a), a == question.No && !now.Paused
		change := api.PolicyChange{Paused: &paused} // a share ends a pause, as with `kith share`
		switch {
		case err != nil:
			t.say("share", words.Text(q.Lead), noWindow("kith share 50%"))
		case a == question.No:
			t.share(ctx, api.DefaultPolicy, change)
		case share == "0%":
			change.Amounts, change.OnlyAmounts = api.ShareOf(share), true // nothing, also of what was named beside
			t.share(ctx, api.DefaultPolicy, change)
		case share != "":
			change.Amounts = api.ShareOf(share)
			t.ask(ctx, question.Each(share), stands, func(a question.Answer, err error) {
				all := a == question.No
				change.AutoAccept = &all
				switch {
				case err != nil:
					t.say("share", "Nothing was changed", noWindow("kith share "+share))
				case a == question.Yes, a == question.No:
					t.share(ctx, api.DefaultPolicy, change)
				}
			})
		}
	})
}

func (t *Tray) share(ctx context.Context, policy string, change api.PolicyChange) {
	t.do(ctx, menu.DoingShare, "", callTime, func(ctx context.Context) error { return errorOf(t.Daemon.SetPolicy(ctx, policy, change)) })
}

// undo takes a change of a policy back, unless another one came after it.
func (t *Tray) undo(ctx context.Context, c notice.Change) { t.share(ctx, c.Is.Name, c.Is.Undo(c.Was)) }

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

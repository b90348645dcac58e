package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/trust/identity"
)

func (p commands) tetherCommand() *cobra.Command {
	var workloads, code, id string
	var sure, check, dry bool
	var timeout time.Duration
	c := p.Things(&cobra.Command{
		Use:   "tether NAME|ID|HOST:PORT",
		Short: "Have a company's cluster run this laptop",
		Long: `Have a company's cluster run this laptop, until "kith untether" takes it back.

The laptop becomes a node of that cluster, with all it has. Its own scheduler and controllers stop; what runs here runs on. Kubeconfigs
of "kith kubeconfig" lead to the company's cluster, where you may do what its owner allows.

What would happen, or what is in the way and what to do about it, is shown first; --check shows that and does nothing. A terminal
asks before anything is done; elsewhere --yes is needed. The company's owner, or a policy there, has to agree. As long as one owner
has not accepted the other's key both compare a six-digit code, as with "kith peer".

When you stop waiting the switch goes on: "kith status" says how far it is, doing it again waits for it, and "kith untether" takes it
back, at every step.`,
		Example: "  kith tether corp --check\n  kith tether corp\n  kith tether corp --local-workloads drain --yes\n  kith tether corp --code 069210",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			options := api.TetherOptions{Peer: args[0], LocalWorkloads: api.LocalWorkloads(workloads), ID: id}
			if options.ID == "" {
				options.ID = wholeID(args[0])
			}
			var err error
			if options.Code, err = api.ParseCode("code", code); err != nil {
				return err
			}
			if err := options.Check(); err != nil {
				return err
			}
			if check || dry {
				return p.checkTether(c, args[0], dry)
			}
			if options.Code == "" { // else it was agreed to: the code is of a switch that is under way
				if err := p.agreeToTether(c, options, sure); err != nil {
					return err
				}
			}
			s, err := confirming(p, c, timeout, args[0], true, func(ctx context.Context, kithd *client.Client, report func(api.Progress)) (api.Status, error) {
				return kithd.Tether(ctx, options, report)
			})
			if errors.Is(err, &api.Error{Code: api.CodeTimeout}) && timeout > 0 {
				return &api.Error{Code: api.CodeTimeout, Message: fmt.Sprintf("this laptop is not tethered to %s after %s", args[0], timeout), Reason: "the switch goes on",
					Do: fmt.Sprintf("`kith status` says how far it is, `kith tether %s` waits again, `kith untether` takes it back", args[0])}
			}
			return program.Answer(p.Program, s, err, func(s api.Status) {
				if s.Tether == nil {
					fmt.Fprintf(p.Out, "this laptop is %s\n", s.Mode)
					return
				}
				fmt.Fprintf(p.Out, "tethered to %s: its cluster decides what runs here\n", screen.Clean(s.Tether.Peer))
				p.showTether(p.Out, p.Style(p.OutTerminal), s)
			})
		},
	})
	c.Flags().StringVar(&workloads, "local-workloads", string(api.KeepWorkloads), "what becomes of the pods that run here now: keep lets them run on, drain ends them first")
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&check, "check", false, "say what would happen, or what is in the way, and do nothing; a HOST:PORT is made known")
	program.DryRunFlag(c, &dry)
	c.Flags().StringVar(&code, "code", "", "confirm the request that is pending: the six digits on the screen of the company's owner")
	c.Flags().StringVar(&id, "id", "", "the company's whole ID as its owner gave it: then no code is needed")
	program.TimeoutFlag(c, &timeout, "how long to wait for the end of the switch")
	c.RegisterFlagCompletionFunc("local-workloads", cobra.FixedCompletions([]string{"keep", "drain"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// checkTether says what a tether would mean, and fails when something is in the way.
func (p commands) checkTether(c *cobra.Command, peer string, dry bool) error {
	look := (*client.Client).CheckTether
	if dry {
		look = (*client.Client).WouldTether
	}
	check, err := program.CallAbout(p.Program, c, look, peer)
	if err != nil {
		return err
	}
	if done, err := p.Machine(check); err != nil {
		return err
	} else if !done {
		p.showEffects(p.Out, check)
	}
	return p.blocked(check)
}

// agreeToTether shows what a tether would mean and asks whether that is meant. A switch to the same company that is under way was agreed
// to before: there is nothing to ask.
func (p commands) agreeToTether(c *cobra.Command, options api.TetherOptions, sure bool) error {
	s, err := program.Call(p.Program, c, (*client.Client).Status)
	if err != nil {
		return err
	}
	check, err := program.CallAbout(p.Program, c, (*client.Client).CheckTether, options.Peer)
	if err != nil || s.Mode == api.Tethering && s.Tether != nil && s.Tether.Peer == check.Peer {
		return err
	}
	if err := p.blocked(check); err != nil {
		return err
	}
	p.showEffects(p.Err, check)
	switch {
	case sure:
		return nil
	case !p.Asks():
		return program.NoTerminal()
	}
	return p.Sure(c.Context(), "Tether this laptop to "+screen.Clean(check.Peer)+"?")
}

func (p commands) showEffects(w io.Writer, check api.TetherCheck) {
	if len(check.Blockers) > 0 || len(check.Effects) == 0 {
		return
	}
	fmt.Fprintf(w, "With a tether to %s:\n", screen.Clean(check.Peer))
	for _, effect := range check.Effects {
		fmt.Fprintln(w, "- "+strings.ReplaceAll(screen.CleanLines(effect), "\n", "\n  "))
	}
}

// blocked is all that is in the way of a tether, as one error; nil if nothing is.
func (p commands) blocked(check api.TetherCheck) error {
	if len(check.Blockers) == 0 {
		return nil
	}
	style := p.Style(p.ErrTerminal)
	for _, b := range check.Blockers {
		fmt.Fprintln(p.Err, style.Yellow("in the way:"), screen.CleanLines(b.What))
		for _, detail := range screen.NonEmpty(b.Why, b.Do) {
			fmt.Fprintln(p.Err, "  "+strings.ReplaceAll(screen.CleanLines(detail), "\n", "\n  "))
		}
	}
	are := " is in the way"
	if len(check.Blockers) > 1 {
		are = " are in the way"
	}
	return &api.Error{Code: api.CodeConflict, Message: "this laptop cannot be tethered to " + screen.Clean(check.Peer), Reason: screen.Count(len(check.Blockers), "thing") + are}
}

func (p commands) untetherCommand() *cobra.Command {
	var options api.UntetherOptions
	var sure bool
	c := p.Things(&cobra.Command{
		Use:   "untether",
		Short: "Take this laptop back from the company's cluster",
		Long: `Take this laptop back from the company's cluster, or stop a tether that is being made.

The company is asked to take away what it runs here, which starts again elsewhere in its cluster. Then this laptop's own scheduler and
controllers go on, and kubeconfigs lead here again. What the company has not taken away within --timeout is ended here, and so it is at
once with --force; it learns that when it answers again. Your own pods run on; those that "kith tether --local-workloads drain" ended are
made again. It asks before that, unless with --yes; a tether that is being made is stopped without a question.`,
		Example: "  kith untether\n  kith untether --yes --timeout 30s\n  kith untether --yes --force",
		Args:    program.Between(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := options.Check(); err != nil {
				return err
			}
			if err := p.agreeToUntether(c, sure); err != nil {
				return err
			}
			s, err := program.Long(p.Program, c, 0, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (api.Status, error) {
				return kithd.Untether(ctx, options, progress.Report)
			})
			return program.Answer(p.Program, s, err, func(s api.Status) {
				if s.Mode == api.Autonomous {
					fmt.Fprintln(p.Out, "untethered: this laptop's own cluster decides what runs here")
					return
				}
				p.showTether(p.Out, p.Style(p.OutTerminal), s)
			})
		},
	})
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&options.Force, "force", false, "do not wait for the company to take away what it runs here: end it")
	c.Flags().DurationVar(&options.Timeout, "timeout", 0, "how long the company has for that, for example 90s; 0: two minutes, or three seconds while it does not answer")
	return c
}

// agreeToUntether asks whether it is meant that the company loses this laptop. Where it is not at rest with a company there is nothing to lose.
func (p commands) agreeToUntether(c *cobra.Command, sure bool) error {
	if sure {
		return nil
	}
	s, err := program.Call(p.Program, c, (*client.Client).Status)
	if err != nil || s.Mode != api.Tethered || s.Tether == nil {
		return err
	}
	if !p.Asks() {
		return program.NoTerminal()
	}
	company := screen.Clean(s.Tether.Peer)
	question := "Take this laptop back from " + company + "?"
	if n := s.Counts.Guests; n > 0 {
		question = fmt.Sprintf("%s runs %s here, which %s. %s", company, screen.Count(n, "pod"), endsHere(s.Tether), question)
	}
	return p.Sure(c.Context(), question)
}

// endsHere is what becomes of a company's pods.
func endsHere(t *api.Tether) string {
	if !t.DownSince.IsZero() {
		return "are cut: it does not answer"
	}
	return "it starts elsewhere"
}

// showTether says how the mode stands while it is not Autonomous.
func (p commands) showTether(w io.Writer, style screen.Style, s api.Status) {
	t := s.Tether
	if t == nil {
		return
	}
	line := func(name string, words ...string) {
		fmt.Fprintf(w, "%-10s %s\n", name, screen.CleanLines(strings.Join(screen.NonEmpty(words...), ", ")))
	}
	since := ""
	if !t.Since.IsZero() {
		since = "for " + screen.Age(p.Now().Sub(t.Since))
	}
	switch s.Mode {
	case api.Tethered:
		line("Tether", "run by "+screen.Clean(t.Peer), since, t.Why)
	case api.Untethering:
		line("Tether", "being taken back from "+screen.Clean(t.Peer), t.Doing(), since)
	default:
		line("Tether", "being tethered to "+screen.Clean(t.Peer), t.Doing(), since)
	}
	if t.Code != "" {
		fmt.Fprintf(w, "%-10s the owner of %s must see the code %s too\n", "", screen.Clean(t.Peer), style.Bold(identity.Spaced(screen.Clean(t.Code))))
	}
	if !t.DownSince.IsZero() {
		back := "`kith untether` takes this laptop back"
		if !t.Until.IsZero() {
			back = "this laptop takes itself back " + p.Until(t.Until)
		}
		fmt.Fprintf(w, "%-10s %s for %s; what runs here runs on; %s\n", "", style.Red(screen.Clean(t.Peer)+" does not answer"), screen.Age(p.Now().Sub(t.DownSince)), back)
	}
	if t.User != "" {
		line("There", "user "+t.User, strings.Join(screen.NonEmpty(t.Namespaces...), ", "))
	}
}

// tethered says which of the two clusters runs the other; "" if neither.
func tethered(x api.Peer) string {
	if x.Tether == nil {
		return ""
	}
	words := "runs this laptop"
	if x.Tether.Role == api.Company {
		words = "run from here"
	}
	if step := x.Tether.Step; step != "" && step != "tethered" {
		words += ": " + step
	}
	return words
}

func tetherWhy(x api.Peer) string {
	if x.Tether == nil || x.Tether.Why == x.Why {
		return ""
	}
	return x.Tether.Why
}

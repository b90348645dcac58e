package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
)

func (p *program) doctorCommand() *cobra.Command {
	var fix, yes bool
	c := p.things(&cobra.Command{
		Use:   "doctor [PEER]",
		Short: "Look for what keeps Kith from working",
		Long: `Look for what keeps Kith from working: the local Kubernetes, ports, ranges of addresses, the LAN and its firewall, the
kernel, the disk, and the way to each peer from end to end: address, TCP, key, protocol, clock, contract, tunnel, node. Each
line says ok, warning or fail, and below it why, and what to do. With PEER, of the peers only that one is looked at.

Without --fix nothing is changed. With --fix, kithd mends what is safe to be mended: settings and modules of the kernel that
are missing, ports that ufw or firewalld do not let in, the group of its own socket. The commands are shown, and a terminal
asks first; elsewhere --yes is needed. What the owner of this machine set up otherwise is left alone. Then it looks again.

Without a running kithd the machine alone is looked at. The exit code is 1 when something failed, or is not mended.`,
		Example: "  kith doctor\n  kith doctor bob\n  kith doctor --fix\n  kith doctor -o json | jq -r '.[] | select(.state!=\"ok\") | .what'",
		Args:    between(0, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			if fix && !yes && !p.asks() {
				return &api.Error{Code: api.CodeConfirm, Message: "nothing was changed", Reason: "there is no terminal to ask at", Do: "`kith doctor --fix --yes` mends without asking; `kith doctor` shows what there is"}
			}
			all, err := p.examine(c.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if fix {
				return p.fix(c.Context(), strings.Join(args, ""), all, yes)
			}
			failed := p.sum(all)
			if done, err := p.machine(api.List[api.Finding](all)); done && err != nil {
				return err
			}
			if failed > 0 {
				return &api.Error{Code: api.CodeInternal, Message: fmt.Sprintf("%d of %d checks failed", failed, len(all))}
			}
			return nil
		},
	})
	c.Flags().BoolVar(&fix, "fix", false, "mend what is safe to be mended, and look again; a terminal asks first")
	c.Flags().BoolVar(&yes, "yes", false, "with --fix, mend without asking")
	return c
}

// sum tells people how many there are of each, and gives the number of failures.
func (p *program) sum(all []api.Finding) (failed int) {
	counts := map[api.CheckState]int{}
	for _, f := range all {
		counts[f.State]++
	}
	if p.format == "" {
		fmt.Fprintf(p.Out, "\n%d ok, %s, %d failed\n", counts[api.CheckOK], screen.Count(counts[api.CheckWarning], "warning"), counts[api.CheckFail])
		if n := len(api.Fixable(all)); n > 0 {
			fmt.Fprintf(p.Out, "%s can be mended: kith doctor --fix\n", screen.Count(n, "finding"))
		}
	}
	return counts[api.CheckFail]
}

// examine has kithd look or, when none answers, its program at the machine alone. Findings are shown as they come.
func (p *program) examine(ctx context.Context, peer string) ([]api.Finding, error) {
	kithd := p.kithd()
	defer kithd.Close()
	progress := p.progress("kithd looks")
	defer progress.stop()
	shown := 0
	show := func(f api.Finding) {
		shown++
		if p.format == "" {
			progress.above(func() { p.showFinding(f) })
		}
	}
	all, err := kithd.Doctor(ctx, peer, func(step api.Progress) {
		if step.Finding != nil {
			show(*step.Finding)
		}
	})
	var e *api.Error
	switch {
	case err == nil:
		for _, f := range all[min(shown, len(all)):] { // lines that did not come
			show(f)
		}
		return all, nil
	case p.Getenv(api.EnvAgentLease) != "" && shown == 0 && unreachable(err):
		return p.examineAlone(ctx, show) // no kithd listens here ever: the program says what this is, and where one works
	case shown > 0 || peer != "" || !errors.As(err, &e) || !unreachable(err):
		return nil, err
	}
	absent := api.Finding{Area: api.AreaDaemon, Name: "kithd", State: api.CheckFail, What: e.Message, Why: e.Reason, Do: e.Do}
	if e.Code == api.CodeForbidden {
		absent.Name = "socket" // kithd may well run, and its socket is not this user's
	}
	show(absent)
	found, err := p.examineAlone(ctx, show)
	return slices.Concat([]api.Finding{absent}, found), err
}

func (p *program) showFinding(f api.Finding) {
	style := p.style(p.OutTerminal)
	about := f.Area
	if f.Peer != "" {
		about = screen.Clean(f.Peer)
	}
	const state, topic = 7, 9
	what := strings.ReplaceAll(screen.CleanLines(f.What), "\n", " ")
	fmt.Fprintf(p.Out, "%s  %s  %s\n", style.Padded(string(f.State), state), screen.Style(false).Padded(about, topic), what)
	for _, detail := range []string{f.Why, f.Do} {
		if detail != "" {
			indent := strings.Repeat(" ", state+topic+4)
			fmt.Fprintln(p.Out, indent+strings.ReplaceAll(screen.CleanLines(detail), "\n", "\n"+indent))
		}
	}
}

// fix has kithd mend what is safe to be mended of what was found, after asking. peer is the one that was asked about, if any.
func (p *program) fix(ctx context.Context, peer string, found []api.Finding, yes bool) error {
	names := api.Fixable(found)
	fixed := []api.Fixed{}
	left := failed(found)
	if len(names) > 0 {
		if !yes {
			if err := p.askToFix(ctx, found); err != nil {
				return err
			}
		}
		var err error
		if fixed, err = p.mend(ctx, found); err != nil {
			return err
		}
		if len(left) > 0 && len(fixed) > 0 { // what was mended may have been the reason of other troubles
			again, err := p.lookAgain(ctx, peer)
			if err != nil {
				return err
			}
			left = failed(again)
		}
	}
	if done, err := p.machine(api.List[api.Fixed](fixed)); done && err != nil {
		return err
	} else if !done {
		p.showFixed(fixed)
	}
	unmended := 0
	for _, f := range fixed {
		if !f.Mended() {
			unmended++
		}
	}
	switch {
	case unmended > 0:
		return &api.Error{Code: api.CodeInternal, Message: fmt.Sprintf("%d of %s were not mended", unmended, screen.Count(len(fixed), "finding"))}
	case len(left) > 0:
		return &api.Error{
			Code: api.CodeInternal, Message: screen.Count(len(left), "failed check") + " left to you: " + strings.Join(left, ", "), Do: "`kith doctor` says what to do about each",
		}
	}
	return nil
}

// failed are the names of the findings that are failures, with the peer's where one is of a peer.
func failed(found []api.Finding) (names []string) {
	for _, f := range found {
		if f.State != api.CheckFail {
			continue
		}
		name := f.Name
		if f.Peer != "" {
			name += " of " + screen.Clean(f.Peer)
		}
		names = append(names, name)
	}
	return names
}

// lookAgain has kithd look, and shows nothing of it.
func (p *program) lookAgain(ctx context.Context, peer string) ([]api.Finding, error) {
	kithd := p.kithd()
	defer kithd.Close()
	defer p.progress("kithd looks again").stop()
	return kithd.Doctor(ctx, peer, nil)
}

// askToFix shows what would be done, and asks.
func (p *program) askToFix(ctx context.Context, found []api.Finding) error {
	fmt.Fprintln(p.Err, "\nkithd would run, as root:")
	for _, f := range found {
		for _, command := range f.Fix {
			fmt.Fprintf(p.Err, "  %s\n", screen.Clean(command))
		}
	}
	err := p.sure(ctx, "Mend "+strings.Join(api.Fixable(found), ", ")+"?")
	var e *api.Error
	if errors.As(err, &e) {
		e.Do = "type the commands above yourself, as root; `kith doctor --fix --yes` does it without asking"
	}
	return err
}

func (p *program) mend(ctx context.Context, found []api.Finding) ([]api.Fixed, error) {
	kithd := p.kithd()
	defer kithd.Close()
	progress := p.progress("kithd mends")
	defer progress.stop()
	fixed, err := kithd.FixFindings(ctx, api.FixOf(found), progress.report)
	if err != nil && unreachable(err) {
		return nil, &api.Error{Code: api.CodeUnavailable, Message: "nothing was mended", Reason: "kithd does not answer, and it is kithd that mends", Do: "what to do about each finding is said above; `systemctl start kithd` starts it"}
	}
	return fixed, err
}

func (p *program) showFixed(fixed []api.Fixed) {
	style := p.style(p.OutTerminal)
	if len(fixed) == 0 {
		fmt.Fprintln(p.Out, "\nthere is nothing that is safe to be mended")
		return
	}
	fmt.Fprintln(p.Out)
	for _, f := range fixed {
		state := "mended"
		if !f.Mended() {
			state = "not mended"
		}
		fmt.Fprintf(p.Out, "%s  %s\n", style.Bold(state+": "+screen.Clean(f.Finding.Name)), screen.Clean(f.Now.What))
		for _, command := range f.Did {
			fmt.Fprintf(p.Out, "    did  %s\n", screen.Clean(command))
		}
		if f.Error != "" {
			fmt.Fprintf(p.Out, "    %s\n", screen.Clean(f.Error))
		}
	}
}

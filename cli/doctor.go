package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) doctorCommand() *cobra.Command {
	var fix, yes bool
	c := p.Things(&cobra.Command{
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
		Args:    program.Between(0, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			if fix && !yes && !p.Asks() {
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
			if done, err := p.Machine(api.List[api.Finding](all)); done && err != nil {
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
func (p commands) sum(all []api.Finding) (failed int) {
	counts := map[api.CheckState]int{}
	for _, f := range all {
		counts[f.State]++
	}
	if p.Format == "" {
		fmt.Fprintf(p.Out, "\n%d ok, %s, %d failed\n", counts[api.CheckOK], screen.Count(counts[api.CheckWarning], "warning"), counts[api.CheckFail])
		if n := len(api.Fixable(all)); n > 0 {
			fmt.Fprintf(p.Out, "%s can be mended: kith doctor --fix\n", screen.Count(n, "finding"))
		}
	}
	return counts[api.CheckFail]
}

// examine has kithd look or, when none answers, its program at the machine alone. Findings are shown as they come.
func (p commands) examine(ctx context.Context, peer string) ([]api.Finding, error) {
	kithd := p.Client()
	defer kithd.Close()
	progress := p.Progress("kithd looks")
	defer progress.Stop()
	shown := 0
	show := func(f api.Finding) {
		shown++
		if p.Format == "" {
			progress.Above(func() { p.showFinding(f) })
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

func (p commands) showFinding(f api.Finding) {
	style := p.Style(p.OutTerminal)
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
func (p commands) fix(ctx context.Context, peer string, found []api.Finding, yes bool) error {
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
	if done, err := p.Machine(api.List[api.Fixed](fixed)); done && err != nil {
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
func (p commands) lookAgain(ctx context.Context, peer string) ([]api.Finding, error) {
	kithd := p.Client()
	defer kithd.Close()
	defer p.Progress("kithd looks again").Stop()
	return kithd.Doctor(ctx, peer, nil)
}

// askToFix shows what would be done, and asks.
func (p commands) askToFix(ctx context.Context, found []api.Finding) error {
	fmt.Fprintln(p.Err, "\nkithd would run, as root:")
	for _, f := range found {
		for _, command := range f.Fix {
			fmt.Fprintf(p.Err, "  %s\n", screen.Clean(command))
		}
	}
	err := p.Sure(ctx, "Mend "+strings.Join(api.Fixable(found), ", ")+"?")
	var e *api.Error
	if errors.As(err, &e) {
		e.Do = "type the commands above yourself, as root; `kith doctor --fix --yes` does it without asking"
	}
	return err
}

func (p commands) mend(ctx context.Context, found []api.Finding) ([]api.Fixed, error) {
	kithd := p.Client()
	defer kithd.Close()
	progress := p.Progress("kithd mends")
	defer progress.Stop()
	fixed, err := kithd.FixFindings(ctx, api.FixOf(found), progress.Report)
	if err != nil && unreachable(err) {
		return nil, &api.Error{Code: api.CodeUnavailable, Message: "nothing was mended", Reason: "kithd does not answer, and it is kithd that mends", Do: "what to do about each finding is said above; `systemctl start kithd` starts it"}
	}
	return fixed, err
}

func (p commands) showFixed(fixed []api.Fixed) {
	style := p.Style(p.OutTerminal)
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

const (
	// aloneTime bounds what the program of kithd does without a running one.
	aloneTime = 3 * time.Minute
	// maxFindings bounds what is read of its findings, in bytes.
	maxFindings = 1 << 20
)

// examineAlone has the program of kithd look at this machine. That it cannot is a finding too.
func (p commands) examineAlone(ctx context.Context, show func(api.Finding)) (found []api.Finding, err error) {
	failed := p.runKithd(ctx, maxFindings, func(out io.Reader) error {
		for lines := json.NewDecoder(out); ; {
			var f api.Finding
			if err := lines.Decode(&f); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			found = append(found, f)
			show(f)
		}
	}, "doctor")
	if err := ctx.Err(); err != nil {
		return found, err
	}
	var e *api.Error
	if errors.As(failed, &e) {
		f := api.Finding{Area: api.AreaDaemon, Name: "program", State: api.CheckFail, What: e.Message, Why: e.Reason, Do: e.Do}
		found = append(found, f)
		show(f)
	}
	return found, nil
}

// runKithd runs the program of kithd, as this user, and has read read what it writes, up to so many bytes. Errors are *api.Error.
func (p commands) runKithd(ctx context.Context, most int64, read func(io.Reader) error, args ...string) error {
	path := p.Kithd
	if path == "" {
		var missing *api.Error
		if path, missing = client.Program(); missing != nil {
			return missing
		}
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		limited := &io.LimitedReader{R: out, N: most}
		err = read(limited)
		if err == nil && limited.N == 0 {
			err = fmt.Errorf("it wrote more than %d bytes", most)
		}
		if err != nil {
			cancel()
		}
		if failed := cmd.Wait(); err == nil && failed != nil {
			err = fmt.Errorf("%w: %.300s", failed, strings.Join(strings.Fields(said.String()), " "))
		}
	}
	if err != nil {
		return &api.Error{
			Code: api.CodeInternal, Message: fmt.Sprintf("`%s %s` does not look at this machine", path, args[0]), Reason: err.Error(),
			Do: "`kith version --client` and `kithd --version` must say the same: install both anew",
		}
	}
	return nil
}

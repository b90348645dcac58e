package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
)

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

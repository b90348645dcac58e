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
	"kith.dev/daemon/config"
	"kith.dev/daemon/doctor"
)

func (p *program) doctorCommand() *cobra.Command {
	return p.things(&cobra.Command{
		Use:   "doctor [PEER]",
		Short: "Look for what keeps Kith from working",
		Long: `Look for what keeps Kith from working: the local Kubernetes, ports, ranges of addresses, the kernel, the disk, and the
way to each peer from end to end: address, TCP, key, protocol, clock, contract, tunnel, node. Each line says ok,
warning or fail, and below it why, and what to do. With PEER, of the peers only that one is looked at.

Nothing is changed. Without a running kithd the machine alone is looked at. The exit code is 1 when something failed.`,
		Example: "  kith doctor\n  kith doctor bob\n  kith doctor -o json | jq -r '.[] | select(.state!=\"ok\") | .what'",
		Args:    between(0, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			peer := strings.Join(args, "")
			all, err := p.examine(c.Context(), peer)
			if err != nil {
				return err
			}
			counts := map[api.CheckState]int{}
			for _, f := range all {
				counts[f.State]++
			}
			failed := counts[api.CheckFail]
			if done, err := p.machine(api.List[api.Finding](all)); done {
				if err != nil {
					return err
				}
			} else {
				fmt.Fprintf(p.Out, "\n%d ok, %s, %d failed\n", counts[api.CheckOK], screen.Count(counts[api.CheckWarning], "warning"), failed)
			}
			if failed > 0 {
				return &api.Error{Code: api.CodeInternal, Message: fmt.Sprintf("%d of %d checks failed", failed, len(all))}
			}
			return nil
		},
	})
}

// examine has kithd look or, when none answers, looks at the machine itself. Findings are shown as they come.
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
	case shown > 0 || peer != "" || !errors.As(err, &e) || e.Code != api.CodeUnavailable && e.Code != api.CodeForbidden:
		return nil, err
	}
	absent := api.Finding{Area: api.AreaDaemon, Name: "kithd", State: api.CheckFail, What: e.Message, Why: e.Reason, Do: e.Do}
	show(absent)
	cfg, err := new(config.Flags).Load()
	if err != nil {
		f := api.Finding{
			Area: api.AreaDaemon, Name: "config", State: api.CheckFail, What: "the configuration of kithd cannot be used", Why: err.Error(),
			Do: "correct " + config.DefaultPath,
		}
		show(f)
		return []api.Finding{absent, f}, nil
	}
	return slices.Concat([]api.Finding{absent}, doctor.Run(ctx, show, doctor.Machine{Config: cfg}.Groups()...)), nil
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

package cli

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) offloadCommand() *cobra.Command {
	var strategy, volumes, network, budget, asleep string
	var sameName, spread bool
	var peers []string
	var timeout time.Duration
	c := p.Lists(&cobra.Command{
		Use:   "offload [NAMESPACE]",
		Short: "Let the pods of a namespace run at peers, or list such namespaces",
		Long: `Let the pods of a namespace run at peers. The ordinary scheduler decides which of them do. Without a namespace,
list those that are offloaded.

Volumes stay at home, and with them pods that have claims, unless --volumes anywhere says otherwise: then the volume of a new
claim is made where its first pod goes, at a peer within what the contract grants of storage, and its pods stay there.

With --strategy local all its pods stay at home, and the namespace is at peers all the same, with its services and what is labelled
kith.dev/reflect=true: so pods of other namespaces that run there find them, as they do at home.

With --network none its pods need no network but the internet, and may go to peers to which there is none ("kith peer NAME --network none")
besides all others. Pods of other namespaces go there only if they select such nodes (kith.dev/network: none).

--budget bounds what its pods cost at peers in an hour, day, week or month of UTC, in the currency of the peers' prices: when it
is spent, no more of them go to peers at a price until the period ends. Those that run there stay, and go on costing. Free peers
stay open. To peers that are priced in another currency no more pods go at all (docs/prices.md).

--when-asleep says what becomes of its pods at a peer whose laptop goes to sleep: "wait" has pods that are made from then on wait for any node that is
not ready however long that takes, unless they say otherwise; "move" evicts those at once that a controller makes again elsewhere (docs/laptop.md).

Doing it again changes the options: those that are not named are as if they never were. Pods that run already stay where they are.`,
		Example: "  kith offload\n  kith offload shop\n  kith offload shop --volumes anywhere\n  kith offload batch --strategy remote --peers bob,carol\n  kith offload db --strategy local\n  kith offload shop --same-name\n  kith offload shop --spread\n  kith offload jobs --network none\n  kith offload shop --budget \"5 EUR/day\"\n  kith offload shop --when-asleep move",
		Args:    program.Between(0, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.listOffloads(c)
			}
			options := api.OffloadOptions{Strategy: api.Strategy(strategy), Peers: peers, Volumes: api.VolumePlace(volumes), Spread: spread, Network: network, Budget: budget, Asleep: api.WhenAsleep(asleep)}
			if sameName {
				options.Mapping = api.MappingSameName
			}
			if err := options.Check(); err != nil {
				return err
			}
			o, err := program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (api.Offload, error) {
				return kithd.Offload(ctx, args[0], options, progress.Report)
			})
			return program.Answer(p.Program, o, err, p.showOffload)
		},
	})
	c.Flags().StringVar(&strategy, "strategy", string(api.StrategyBoth), "where its pods may run: both, remote or local")
	c.Flags().StringVar(&volumes, "volumes", string(api.VolumesHome), "where the volumes of its claims may be: home or anywhere")
	c.Flags().StringVar(&network, "network", "", "none: its pods may also go to peers to which there is no network; without it, they stay away from these")
	c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{api.NetworkNone}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&budget, "budget", "", "`AMOUNT` that its pods may cost at peers, such as \"5 EUR/day\", also /hour, /week and /month; without it, there is no bound")
	c.Flags().BoolVar(&spread, "spread", false, "spread new pods that are alike over home and its peers, as far as there is room; without it, the largest may get most")
	c.Flags().StringVar(&asleep, "when-asleep", "", "what becomes of its pods at a peer whose laptop goes to sleep: wait or move; without it, they move after five minutes")
	c.Flags().BoolVar(&sameName, "same-name", false, "keep the namespace's name at peers, or refuse those that do not allow it; without it, this machine's ID is added")
	c.Flags().StringSliceVar(&peers, "peers", nil, "only these peers, with commas; without it, all that are connected")
	program.TimeoutFlag(c, &timeout, "how long to wait for the peers")
	c.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions([]string{"both", "remote", "local"}, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("volumes", cobra.FixedCompletions([]string{"home", "anywhere"}, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("when-asleep", cobra.FixedCompletions([]string{"wait", "move"}, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("peers", p.completePeers(-1))
	return c
}

func (p commands) showOffload(o api.Offload) {
	fmt.Fprintf(p.Out, "%s is offloaded, strategy %s", screen.Clean(o.Namespace), o.Strategy)
	if o.Volumes == api.VolumesAnywhere {
		fmt.Fprint(p.Out, ", volumes anywhere")
	}
	if o.Spread {
		fmt.Fprint(p.Out, ", spread")
	}
	if o.Network == api.NetworkNone {
		fmt.Fprint(p.Out, ", no network needed")
	}
	if o.Asleep != api.AsleepUsual {
		fmt.Fprintf(p.Out, ", when asleep %s", o.Asleep)
	}
	if o.Budget != nil {
		fmt.Fprintf(p.Out, ", budget %s", screen.Clean(o.Budget.String()))
	}
	if o.Why != "" {
		fmt.Fprintf(p.Out, ": %s", screen.Clean(o.Why))
	}
	fmt.Fprintln(p.Out)
	for _, note := range budgetNotes(o) {
		fmt.Fprintf(p.Out, "  %s\n", screen.CleanLines(note.Text))
	}
	for _, t := range o.Twins {
		fmt.Fprintf(p.Out, "  %s\n", screen.CleanLines(twin(t))) // whole: a refusal ends in what to do
	}
}

// twin writes "bob: shop", or why it is not there yet.
func twin(t api.Twin) string {
	switch {
	case t.Ready && t.Why != "":
		return t.Peer + ": " + t.Namespace + ", " + t.Why
	case t.Ready:
		return t.Peer + ": " + t.Namespace
	case t.Why != "":
		return t.Peer + ": not ready, " + t.Why
	}
	return t.Peer + ": not ready"
}

func (p commands) listOffloads(c *cobra.Command) error {
	return program.List(p.Program, c, nil, program.Listing[api.Offload]{Get: (*client.Client).Offloads, Columns: []screen.Column[api.Offload]{
		{Title: "NAMESPACE", Cell: func(o api.Offload) string { return o.Namespace }},
		{Title: "STRATEGY", Cell: func(o api.Offload) string { return string(o.Strategy) }},
		{Title: "PEERS", Cell: func(o api.Offload) string {
			if len(o.Peers) == 0 {
				return "all"
			}
			return strings.Join(o.Peers, ",")
		}},
		{Title: "HOME", Cell: func(o api.Offload) string { return fmt.Sprint(o.Pods.Home) }},
		{Title: "ABROAD", Cell: func(o api.Offload) string { return fmt.Sprint(o.Pods.Abroad) }},
		{Title: "NAMES ABROAD", Cell: func(o api.Offload) string {
			var twins []string
			for _, t := range o.Twins {
				t.Why = "" // under the table
				twins = append(twins, twin(t))
			}
			return strings.Join(twins, "; ")
		}},
		{Title: "VOLUMES", Cell: func(o api.Offload) string { return string(o.Volumes) }, Wide: true},
		{Title: "SPREAD", Cell: func(o api.Offload) string {
			if o.Spread {
				return "yes"
			}
			return ""
		}, Need: true},
		{Title: "NETWORK", Cell: func(o api.Offload) string { return o.Network }, Need: true},
		{Title: "WHEN ASLEEP", Cell: func(o api.Offload) string { return string(o.Asleep) }, Need: true},
		{Title: "BUDGET", Cell: func(o api.Offload) string {
			if o.Budget == nil {
				return ""
			}
			return percent(o.Budget.Spent, o.Budget.Amount) + " spent"
		}, Need: true},
		{Title: "SPENT", Cell: func(o api.Offload) string {
			if o.Budget == nil {
				return ""
			}
			return inShort(o.Budget.Spent) + " of " + o.Budget.String()
		}, Wide: true},
		{Title: "MAPPING", Cell: func(o api.Offload) string { return string(o.Mapping) }, Wide: true},
	}, None: "no namespace is offloaded; `kith offload NAMESPACE` does it", Notes: func(o api.Offload) []program.Note {
		notes := append(program.Notes(o.Namespace, o.Why), budgetNotes(o)...)
		for _, t := range o.Twins {
			notes = append(notes, program.Note{About: o.Namespace + " at " + t.Peer, Text: t.Why})
		}
		return notes
	}})
}

// percent says how much of an amount is spent, in whole hundredths.
func percent(spent, amount string) string {
	of, ok := new(big.Rat).SetString(amount)
	n, known := new(big.Rat).SetString(spent)
	switch {
	case !ok || !known:
		return "0%"
	case of.Sign() == 0:
		return "100%"
	}
	n.Mul(n, big.NewRat(100, 1)).Quo(n, of)
	return new(big.Int).Quo(n.Num(), n.Denom()).String() + "%"
}

// budgetNotes say which peers a budget closes.
func budgetNotes(o api.Offload) (notes []program.Note) {
	if o.Budget == nil {
		return nil
	}
	by := map[api.ClosedReason][]string{}
	for _, c := range o.Budget.Closed {
		by[c.Reason] = append(by[c.Reason], c.Peer)
	}
	until := o.Budget.Until.UTC().Format("2006-01-02 15:04") + " UTC"
	if o.Budget.State == api.BudgetSpent {
		text := "the budget is spent until " + until
		if peers := by[api.ClosedSpent]; len(peers) > 0 {
			text += ": no more pods go to " + strings.Join(peers, ", ")
		}
		notes = append(notes, program.Note{About: o.Namespace, Text: text})
	}
	if peers := by[api.ClosedOtherCurrency]; len(peers) > 0 {
		notes = append(notes, program.Note{About: o.Namespace, Text: "no more pods go to " + strings.Join(peers, ", ") + ", priced in another currency than the budget"})
	}
	return notes
}

func (p commands) completeOffloads() program.Completion {
	return program.Complete(p.Program, 1, (*client.Client).Offloads, func(o api.Offload) string {
		return program.Word(o.Namespace, o.Namespace, screen.Count(o.Pods.Abroad, "pod")+" abroad")
	})
}

func (p commands) unoffloadCommand() *cobra.Command {
	var options api.UnoffloadOptions
	dry := false
	c := &cobra.Command{
		Use:   "unoffload NAMESPACE",
		Short: "Bring the pods of a namespace home",
		Long: `Bring the pods of a namespace home. They are evicted from peers, as by kubectl drain: PodDisruptionBudgets hold, and a pod
that one refuses to let go stays where it is and is asked for again every two seconds.

When --timeout is over, the command fails and says which budget holds which pod. The pods go on coming home as budgets allow;
with --force they come at once.

While volumes of the namespace are at peers, it names them and does nothing, unless --delete-volumes says that they and their
claims may go.`,
		Example: "  kith unoffload shop\n  kith unoffload shop --dry-run\n  kith unoffload shop --force",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeOffloads(),
		RunE: func(c *cobra.Command, args []string) error {
			if dry {
				return p.wouldUnoffload(c, args[0], options)
			}
			bound := options.Wait
			if bound > 0 {
				bound += answerWithin // kithd says more when it ends the wait
			}
			_, err := program.Long(p.Program, c, bound, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (any, error) {
				return nil, kithd.Unoffload(ctx, args[0], options, progress.Report)
			})
			if err == nil {
				fmt.Fprintf(p.Out, "%s is home\n", args[0])
			}
			return err
		},
	}
	c.Flags().DurationVar(&options.Wait, "timeout", 5*time.Minute, "how long to wait for the pods, for example 90s; 0 waits as long as it takes")
	c.Flags().BoolVar((*bool)(&options.DeleteVolumes), "delete-volumes", false, "delete its volumes at peers, with their claims and all data")
	c.Flags().BoolVar(&options.Force, "force", false, "bring them home against PodDisruptionBudgets")
	program.DryRunFlag(c, &dry)
	return c
}

// wouldUnoffload says what it would do to bring a namespace home.
func (p commands) wouldUnoffload(c *cobra.Command, namespace string, options api.UnoffloadOptions) error {
	options.DryRun = true
	all, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) ([]api.Offload, error) {
		if err := kithd.Unoffload(ctx, namespace, options, nil); err != nil {
			return nil, err
		}
		return kithd.Offloads(ctx)
	})
	if err != nil {
		return err
	}
	var effects []string
	for _, o := range all {
		if o.Namespace != namespace {
			continue
		}
		if n := o.Pods.Abroad; n > 0 {
			how := "as their budgets allow"
			if options.Force {
				how = "also against their budgets"
			}
			effects = append(effects, fmt.Sprintf("%s of %s at peers will move, %s", screen.Count(n, "pod"), namespace, how))
		}
		for _, t := range o.Twins {
			if t.Namespace != "" {
				effects = append(effects, fmt.Sprintf("namespace %s at %s is cleared away", t.Namespace, t.Peer))
			}
		}
		effects = append(effects, "no pod of "+namespace+" goes to a peer any more")
	}
	p.Would(effects...)
	return nil
}

// answerWithin is how long kithd may take to say what it waited for.
const answerWithin = 10 * time.Second

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/api/verdict"
	"kith.dev/core/trust/contract"
)

func (p commands) contractCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "contract",
		Short:   "List, show and verify what was signed with peers",
		Example: "  kith contract list\n  kith contract show bob\n  kith contract verify bob",
		Args:    cobra.NoArgs, // says "unknown command" to words
	}
	list := p.contractListCommand()
	c.RunE = list.RunE
	c.AddCommand(list, p.contractShowCommand(), p.contractVerifyCommand())
	return p.Lists(c)
}

func (p commands) contractListCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:     "list [NAME|ID|PEER...]",
		Aliases: []string{"ls"},
		Short:   "List the contracts that are kept here",
		Long:    "List the contracts that are kept here: from-bob-… gives this cluster resources of bob's, to-bob-… gives bob some of this one.",
		Example: "  kith contract list\n  kith contract list bob -o yaml",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completeContracts(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[api.Contract]{
				Get: (*client.Client).Contracts, Match: func(x api.Contract, name string) bool {
					return x.Name == name || x.ID == name || x.Peer == name || sameID(x.PeerID, name)
				}, Noun: "contract", Others: "kith contract list",
				Columns: []screen.Column[api.Contract]{
					{Title: "NAME", Cell: func(x api.Contract) string { return x.Name }},
					{Title: "STATE", Cell: func(x api.Contract) string { return string(x.State) }},
					{Title: "USED", Cell: func(x api.Contract) string { return screen.Used(x.Used, x.Resources) }},
					{Title: "DEVICES", Need: true, Cell: func(x api.Contract) string { return screen.Devices(x.Used, x.Resources) }},
					{Title: "PRICES", Need: true, Cell: func(x api.Contract) string { return api.PricesInWords(x.Prices) }},
					{Title: "ENDS", Cell: func(x api.Contract) string { return strings.TrimPrefix(p.Until(x.NotAfter), "in ") }},
					{Title: "VOLUMES KEPT", Cell: func(x api.Contract) string { return keptFor(x) }, Wide: true},
					{Title: "PEER", Cell: func(x api.Contract) string { return x.Peer }, Wide: true},
					{Title: "ROLE", Cell: func(x api.Contract) string { return string(x.Role) }, Wide: true},
					{Title: "REVISION", Cell: func(x api.Contract) string { return fmt.Sprint(x.Revision) }, Wide: true},
					{Title: "ID", Cell: func(x api.Contract) string { return x.ID }, Wide: true},
					{Title: "PEER ID", Cell: func(x api.Contract) string { return x.PeerID }, Wide: true},
				}, None: "no contracts",
				Notes: func(x api.Contract) []program.Note { return program.Notes(x.Name, x.Why) },
			})
		},
	})
}

func (p commands) completeContracts(most int) program.Completion {
	return program.Complete(p.Program, most, (*client.Client).Contracts, func(x api.Contract) string {
		return program.Word(x.Name, x.ID, string(x.Role)+", "+string(x.State))
	})
}

func (p commands) contractShowCommand() *cobra.Command {
	var document bool
	c := p.Things(&cobra.Command{
		Use:     "show NAME|ID|PEER",
		Short:   "Show a contract",
		Long:    "Show a contract. With -o json or yaml all of it, which `kith contract verify` takes anywhere; with --document the very bytes that were signed.",
		Example: "  kith contract show bob\n  kith contract show from-bob-x7k2 -o json > contract.json\n  kith contract show bob --document | jq .",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeContracts(1),
		RunE: func(c *cobra.Command, args []string) error {
			x, err := program.CallAbout(p.Program, c, (*client.Client).Contract, args[0])
			if err == nil && document {
				_, err := p.Out.Write(x.Document)
				return err
			}
			return program.Answer(p.Program, x, err, p.showContract)
		},
	})
	c.Flags().BoolVar(&document, "document", false, "print the signed bytes and nothing else")
	return c
}

func (p commands) showContract(x api.Contract) {
	style := p.Style(p.OutTerminal)
	fmt.Fprintf(p.Out, "%s, revision %d\n", style.Bold(screen.Clean(x.Name)), x.Revision)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(p.Out, "%-10s %s\n", name, text)
		}
	}
	verb := "gets resources from"
	if x.Role == api.Provider {
		verb = "gives resources to"
	}
	line("ID", screen.Clean(x.ID))
	line("Role", fmt.Sprintf("%s: this cluster %s %s (%s)", x.Role, verb, screen.Clean(x.Peer), screen.Clean(x.PeerID)))
	line("State", style.Word(string(x.State)))
	line("Why", screen.Clean(x.Why))
	line("Used", screen.CleanLines(screen.UsedOf(x.Used, x.Resources)))
	if kept := keptFor(x); kept != "" {
		line("Volumes", "kept for "+kept+" after the end")
	}
	if x.Reoffer {
		line("Reoffer", "the consumer may offer it on to others")
	}
	if x.Network == api.NetworkNone {
		line("Network", "none between the clusters: pods reach nothing of their home, and nothing there reaches them")
	}
	if d, err := time.ParseDuration(x.Notice); err == nil {
		line("Notice", "it may be lowered, "+api.Span(d)+" after the provider tells so")
	}
	if x.Wake > 0 {
		text := fmt.Sprintf("the consumer may wake the provider's laptop, %s; within the last day it did %d times", api.WakeWords(x.Wake), x.Woken)
		line("Waking", screen.Clean(cmp.Or(x.WakeSaid, text)))
	}
	if l := x.Lowering; l != nil {
		line("Lowered", screen.CleanLines(fmt.Sprintf("to %s, from %s (%s)", l.Resources, l.From.Format(time.RFC3339), p.Until(l.From))))
	}
	for _, name := range api.Resources(x.Prices).Names() {
		line("Price", screen.Clean(api.Called(name)+": "+contract.PerHour(name, x.Prices[name])))
	}
	for _, t := range []struct {
		name string
		time time.Time
		why  string
	}{{"Made", x.Created, ""}, {"Begins", x.NotBefore, earlier(x.Created, x.NotBefore)}, {"Ends", x.NotAfter, ""}} {
		if !t.time.IsZero() {
			line(t.name, fmt.Sprintf("%s (%s%s)", t.time.Format(time.RFC3339), p.Until(t.time), t.why))
		}
	}
	for _, s := range x.Signatures {
		line("Signed", fmt.Sprintf("by the %s, %s", screen.Clean(string(s.Role)), screen.Clean(s.ID)))
	}
}

// keptFor is how long what is in volumes is kept after the end of a contract, in words; "" where no storage is lent.
func keptFor(x api.Contract) string {
	if d, err := time.ParseDuration(x.KeepVolumes); err == nil {
		return api.Span(d)
	}
	return ""
}

// earlier explains why a contract begins before it was made.
func earlier(made, begins time.Time) string {
	if made.IsZero() || !begins.Before(made) {
		return ""
	}
	return fmt.Sprintf("; %s before it was made, since the clocks of two laptops differ", screen.Age(made.Sub(begins)))
}

func (p commands) contractVerifyCommand() *cobra.Command {
	return p.Things(&cobra.Command{
		Use:   "verify NAME|ID|PEER|FILE|-",
		Short: "Check that a contract is what both sides signed",
		Long: `Check that a contract is what both sides signed. It is done here, not by the daemon, and needs nothing but the
contract: kithd is only asked for one that is given by name. A file is what "kith contract show -o json" or "kubectl get
contract -o yaml" prints; - is the standard input. The exit code is 1 when a check fails.`,
		Example: "  kith contract verify bob\n  kith contract verify ./contract.json\n  kubectl get contract from-bob-x7k2 -o yaml | kith contract verify -",
		Args:    program.Between(1, 1),
		ValidArgsFunction: func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			names, _ := p.completeContracts(1)(c, args, begin)
			return names, cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error {
			x, err := p.contractOf(c, args[0])
			if err != nil {
				return err
			}
			r := verdict.Of(x)
			done, err := p.Machine(r)
			if err != nil {
				return err
			}
			if !done {
				p.showVerdict(x, r)
			}
			if !r.Valid {
				return &api.Error{Code: api.CodeConflict, Message: "the contract does not hold", Reason: "see the checks that failed"}
			}
			return nil
		},
	})
}

// contractOf takes the standard input, a file if there is one of that name, else a contract kithd knows.
func (p commands) contractOf(c *cobra.Command, name string) (api.Contract, error) {
	var from io.Reader = p.In
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "/") {
			return program.CallAbout(p.Program, c, (*client.Client).Contract, name)
		}
		if err != nil {
			code := api.CodeInternal
			if errors.Is(err, fs.ErrNotExist) {
				code = api.CodeNotFound
			}
			return api.Contract{}, &api.Error{Code: code, Message: "cannot read the contract", Reason: err.Error()}
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, verdict.MaxFile+1))
	if err != nil {
		return api.Contract{}, &api.Error{Code: api.CodeInternal, Message: "cannot read the contract", Reason: err.Error()}
	}
	if name == "-" {
		name = "the standard input"
	}
	return verdict.Read(screen.Clean(name), b)
}

func (p commands) showVerdict(x api.Contract, r api.VerifyResult) {
	style := p.Style(p.OutTerminal)
	for _, check := range r.Checks {
		mark := style.Green("ok    ")
		if !check.OK {
			mark = style.Red("FAILED")
		}
		fmt.Fprintln(p.Out, mark, check.What)
		if check.Why != "" {
			fmt.Fprintln(p.Out, "       "+strings.ReplaceAll(screen.CleanLines(check.Why), "\n", "\n       "))
		}
	}
	d, err := contract.Parse(x.Document)
	if err != nil || !r.Valid {
		return
	}
	fmt.Fprintf(p.Out, "contract %s, revision %d: %s (%s) gives %s (%s)\n  %s\n", d.ID, d.Revision,
		screen.Clean(d.Provider.Name), d.Provider.ID, screen.Clean(d.Consumer.Name), d.Consumer.ID, screen.Clean(api.Resources(d.Resources).String()))
	in := "is in force"
	if !d.InForce(p.Now()) {
		in = "is NOT in force now"
	}
	fmt.Fprintf(p.Out, "  made %s; from %s (%s%s) to %s; it %s\n", d.Created.Format(time.RFC3339), d.NotBefore.Format(time.RFC3339), p.Until(d.NotBefore), earlier(d.Created, d.NotBefore),
		d.NotAfter.Format(time.RFC3339), in)
}

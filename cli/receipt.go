package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/trust/receipt"
)

func (p commands) receiptCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "receipt",
		Short: "List, export and verify receipts of what was used under contracts",
		Long: `List, export and verify receipts of what was used under contracts. The provider closes one each hour, and when the contract ends; the consumer
compares it with what it counted, and signs that it agrees, or what it counted instead (docs/prices.md).`,
		Example: "  kith receipt list bob\n  kith receipt export bob > receipts.jsonl\n  kith receipt verify receipts.jsonl",
		Args:    cobra.NoArgs,
	}
	list := p.receiptListCommand()
	c.RunE = list.RunE
	c.AddCommand(list, p.receiptExportCommand(), p.receiptVerifyCommand())
	return p.Lists(c)
}

// receiptRow is a receipt, and whose.
type receiptRow struct {
	Contract  string        `json:"contract"`
	Peer      string        `json:"peer"`
	PeerID    string        `json:"peerId"`
	Direction api.Direction `json:"direction"`
	Fault     string        `json:"fault,omitempty"` // of the contract's receipts, with the newest of them
	namespace string        // whose share it is, of a row that is one
	part      usagePart
	api.Receipt
}

// receiptRows are all receipts that end after a moment, what is open at last if it is wanted.
func receiptRows(accounts []api.Account, open bool) (rows []receiptRow) {
	for _, a := range accounts {
		list := slices.Clone(a.Receipts)
		if open && a.Open != nil {
			list = append(list, *a.Open)
		}
		for i, r := range list {
			row := receiptRow{Contract: a.Contract, Peer: a.Peer, PeerID: a.PeerID, Direction: a.Direction, Receipt: r}
			if i == len(list)-1 {
				row.Fault = a.Fault
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (p commands) receiptListCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:     "list [PEER|CONTRACT...]",
		Aliases: []string{"ls"},
		Short:   "List the receipts that are kept here",
		Long: `List the receipts that are kept here, with what the consumer said to each: agreed, or disputed. "no answer" is of one that the consumer has not
fetched yet.`,
		Example: "  kith receipt list\n  kith receipt list bob -o json",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[receiptRow]{
				Get: func(kithd *client.Client, ctx context.Context) ([]receiptRow, error) {
					accounts, err := kithd.Receipts(ctx, api.ReceiptOptions{})
					return receiptRows(accounts, false), err
				},
				Match: func(x receiptRow, name string) bool {
					return x.Peer == name || x.Contract == name || sameID(x.PeerID, name)
				}, Noun: "receipt", Others: "kith receipt list",
				Columns: []screen.Column[receiptRow]{
					{Title: "PEER", Cell: func(x receiptRow) string { return x.Peer }},
					{Title: "PODS", Cell: func(x receiptRow) string { return whosePods(x.Direction) }},
					{Title: "NUMBER", Cell: func(x receiptRow) string { return fmt.Sprint(x.Sequence) }},
					{Title: "FROM", Cell: func(x receiptRow) string { return x.From.UTC().Format(time.RFC3339) }},
					{Title: "TO", Cell: func(x receiptRow) string { return x.To.UTC().Format(time.RFC3339) }},
					{Title: "CORE HOURS", Cell: func(x receiptRow) string { return hours(api.CPU, x.Used) }},
					{Title: "GIB HOURS", Cell: func(x receiptRow) string { return hours(api.Memory, x.Used) }},
					{Title: "DUE", Cell: func(x receiptRow) string { return strings.TrimSpace(x.Total + " " + x.Currency) }},
					{Title: "ANSWER", Cell: func(x receiptRow) string {
						if x.Verdict == "" {
							return "no answer"
						}
						return string(x.Verdict)
					}},
					{Title: "CONTRACT", Cell: func(x receiptRow) string { return x.Contract }, Wide: true},
					{Title: "REVISION", Cell: func(x receiptRow) string { return fmt.Sprint(x.Revision) }, Wide: true},
				}, None: "no receipts yet: the first comes at the next full hour, or when a contract ends",
				Notes: func(x receiptRow) []program.Note { return program.Notes(x.Peer, x.Fault) },
			})
		},
	})
}

func whosePods(d api.Direction) string {
	if d == api.Incoming {
		return "its, here"
	}
	return "yours, there"
}

// hours writes a sum in the units of prices, to three places.
func hours(resource string, sums map[string]string) string {
	if sums[resource] == "" {
		return "0"
	}
	n, err := receipt.Hours(resource, sums[resource])
	if err != nil {
		return "?"
	}
	return shortened(n.FloatString(3))
}

// shortened takes the zeros at the end of a decimal number off.
func shortened(number string) string { return strings.TrimRight(strings.TrimRight(number, "0"), ".") }

func (p commands) receiptExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "export PEER|CONTRACT",
		Short:   "Print the receipts of a contract as they were signed",
		Long:    "Print the receipts of a contract as they were signed, with the contract and the answers, one line of JSON each: what `kith receipt verify` takes anywhere.",
		Example: "  kith receipt export bob > receipts.jsonl",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := program.CallAbout(p.Program, c, (*client.Client).ReceiptFile, args[0])
			if err != nil {
				return err
			}
			for _, line := range file.Lines {
				if _, err := p.Out.Write(append(slices.Clone(line), '\n')); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// receiptVerdict is what was found in a file.
type receiptVerdict struct {
	Valid      bool   `json:"valid"`
	Why        string `json:"why,omitempty"`      // when not: the first line that is wrong
	Sequence   int64  `json:"sequence,omitempty"` // of the receipt that is wrong, or missing
	Contract   string `json:"contract,omitempty"`
	Provider   string `json:"provider,omitempty"` // cluster ID
	Consumer   string `json:"consumer,omitempty"`
	First      int64  `json:"first,omitempty"` // receipt that is there and holds
	Last       int64  `json:"last,omitempty"`
	Ended      bool   `json:"ended,omitempty"` // it is the contract's last
	Agreed     int    `json:"agreed"`
	Disputed   int    `json:"disputed"`
	Unanswered int    `json:"unanswered"`
	Due        string `json:"due,omitempty"` // of all of them: "1.2 EUR"
}

func (p commands) receiptVerifyCommand() *cobra.Command {
	return p.Things(&cobra.Command{
		Use:   "verify FILE|-",
		Short: "Check that receipts are what was signed, and that none is missing",
		Long: `Check that receipts are what was signed, and that none is missing: both signatures of the contract, the provider's of each receipt, the prices of
the contract and what follows from them, the chain in which each names the one before, and the consumer's answers. It is done here and needs nothing but
the file, which "kith receipt export" prints; - is the standard input. The exit code is 1 when a check fails, and the first receipt is named that is forged
or missing. That receipts were cut off at the end of a file, or at its beginning, where old ones go in time, cannot be seen: look at the numbers.`,
		Example: "  kith receipt verify receipts.jsonl\n  kith receipt export bob | kith receipt verify -",
		Args:    program.Between(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			var from io.Reader = p.In
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					code := api.CodeInternal
					if errors.Is(err, fs.ErrNotExist) {
						code = api.CodeNotFound
					}
					return &api.Error{Code: code, Message: "cannot read the receipts", Reason: err.Error()}
				}
				defer f.Close()
				from = f
			}
			chain, err := receipt.ReadFile(from)
			fault, wrong := errors.AsType[*receipt.Fault](err)
			if err != nil && !wrong {
				return &api.Error{Code: api.CodeInvalid, Message: "cannot read the receipts", Reason: err.Error()}
			}
			v := verdictOf(chain)
			if v.Valid = !wrong; wrong {
				v.Why, v.Sequence = fault.Error(), fault.Sequence
			}
			done, err := p.Machine(v)
			if err != nil {
				return err
			}
			if !done {
				p.showReceipts(v)
			}
			if wrong {
				return &api.Error{Code: api.CodeConflict, Message: "the receipts do not hold", Reason: fault.Error()}
			}
			return nil
		},
	})
}

func verdictOf(chain *receipt.Chain) (v receiptVerdict) {
	if v.Contract = chain.ID; v.Contract != "" {
		v.Provider, v.Consumer = chain.Provider.ID.String(), chain.Consumer.ID.String()
	}
	due := money{}
	for i, item := range chain.Items {
		if i == 0 {
			v.First = item.Receipt.Sequence
		}
		v.Last, v.Ended = item.Receipt.Sequence, item.Receipt.Last
		switch {
		case item.Answer == nil:
			v.Unanswered++
		case item.Answer.Verdict == receipt.Agreed:
			v.Agreed++
		default:
			v.Disputed++
		}
		due.add(item.Receipt.Total, item.Receipt.Currency)
	}
	v.Due = due.String()
	return v
}

func (p commands) showReceipts(v receiptVerdict) {
	style := p.Style(p.OutTerminal)
	if v.Last > 0 {
		fmt.Fprintf(p.Out, "%s receipts %d to %d of contract %s\n", style.Green("ok    "), v.First, v.Last, v.Contract)
		fmt.Fprintf(p.Out, "       provider %s\n       consumer %s\n", v.Provider, v.Consumer)
		fmt.Fprintf(p.Out, "       %d agreed, %d disputed, %d without an answer; due: %s\n", v.Agreed, v.Disputed, v.Unanswered, v.Due)
	}
	if !v.Valid {
		fmt.Fprintln(p.Out, style.Red("FAILED"), screen.CleanLines(v.Why))
	}
}

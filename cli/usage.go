package cli

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math/big"
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

// The forms of output that only kith usage has.
const (
	csvForm   = "csv"
	focusForm = "focus"
)

// usedFor is how far kith usage looks back when it is not told.
const usedFor = 30 * 24 * time.Hour

func (p commands) usageCommand() *cobra.Command {
	var by, since string
	c := &cobra.Command{
		Use:   "usage [PEER...]",
		Short: "Show what was used under contracts, and what that comes to",
		Long: `Show what was used under contracts, and what that comes to: by your pods at each peer, and by the pods of each peer here. It is the sum of the
receipts of the last 30 days, or since a day, UTC, and of what was counted since the last receipt. Used is what pods request, for as long as they do.

--by namespace splits what your pods used at peers over your namespaces, as this cluster counted by itself: an estimate, which sums up to what
was signed. What the contract reserves and nobody requested has a line of its own; it costs nothing.

-o csv is the same for a spreadsheet. -o focus has a line for each receipt and resource with the columns of FOCUS 1.2 (focus.finops.org), for tools that read
bills of clouds; columns of Kith's own begin with x_Kith. Money is not moved by Kith (docs/prices.md).`,
		Example: "  kith usage\n  kith usage bob --by day\n  kith usage --by namespace\n  kith usage --since 2026-11-01 -o csv\n  kith usage -o focus > bill.csv",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			from := p.Now().Add(-usedFor)
			if since != "" {
				var err error
				if from, err = time.Parse(time.DateOnly, since); err != nil {
					return api.Invalid("since", since, "a day such as 2026-11-01")
				}
			}
			accounts, err := program.CallAbout(p.Program, c, (*client.Client).Receipts, api.ReceiptOptions{Since: from.Truncate(time.Second), Namespaces: by == byNamespace})
			if err != nil {
				return err
			}
			rows, err := usageRowsOf.Pick(receiptRows(accounts, true), args)
			if err != nil {
				return err
			}
			if by == byNamespace {
				rows = byNamespaces(rows)
			}
			switch p.Format {
			case focusForm:
				status, err := program.Call(p.Program, c, (*client.Client).Status)
				if err != nil {
					return err
				}
				return writeCSV(p.Out, focusColumns(status), focusLines(rows))
			case csvForm:
				return writeCSV(p.Out, usageCSV, summed(rows, by))
			}
			return program.Print(p.Program, summed(rows, by), usageListing)
		},
	}
	program.OneOf(c, &by, "by", "", "a line for each %s", "peer", "day", byNamespace)
	c.Flags().StringVar(&since, "since", "", "`DAY` from which on, for example 2026-11-01 (default: the last 30 days)")
	program.OneOf(c, &p.Format, "output", "o", "form of the output: %s", program.JSON, program.YAML, csvForm, focusForm)
	return c
}

var usageRowsOf = program.Listing[receiptRow]{
	Match: func(x receiptRow, name string) bool {
		return x.Peer == name || x.Contract == name || sameID(x.PeerID, name)
	}, Noun: "contract with a peer", Others: "kith usage",
}

// usage is what was used together.
type usage struct {
	Peer      string            `json:"peer"`
	PeerID    string            `json:"peerId"`
	Direction api.Direction     `json:"direction"`
	Day       string            `json:"day,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Part      usagePart         `json:"part,omitempty"` // with --by namespace
	Used      map[string]string `json:"used"`           // hours of a core, of a GiB, of a device, exactly or to nine places
	Due       string            `json:"due"`
	Currency  string            `json:"currency,omitempty"`
	Disputed  string            `json:"disputed,omitempty"` // how much of Due is in receipts that the consumer disputes
	Open      string            `json:"open,omitempty"`     // how much of Due is in no receipt yet
	Fault     string            `json:"fault,omitempty"`

	sums map[string]*big.Rat
	due  [3]*big.Rat // all, disputed, open
}

// summed puts receipts together that are with one peer, in one direction and currency and, if so wanted, of one day.
func summed(rows []receiptRow, by string) []usage {
	type key struct {
		peer, currency, day string
		direction           api.Direction
		namespace           string
		part                usagePart
	}
	all := map[key]*usage{}
	for _, row := range rows {
		k := key{row.PeerID, row.Currency, "", row.Direction, row.namespace, row.part}
		if by == "day" {
			k.day = row.From.UTC().Format(time.DateOnly)
		}
		u := all[k]
		if u == nil {
			u = &usage{
				Peer: row.Peer, PeerID: row.PeerID, Direction: row.Direction, Day: k.day, Namespace: row.namespace, Part: row.part, Currency: row.Currency,
				Used: map[string]string{}, sums: map[string]*big.Rat{},
			}
			for i := range u.due {
				u.due[i] = new(big.Rat)
			}
			all[k] = u
		}
		u.Fault = cmp.Or(row.Fault, u.Fault)
		for name, sum := range row.Used {
			if n, err := receipt.Hours(name, sum); err == nil {
				if u.sums[name] == nil {
					u.sums[name] = new(big.Rat)
				}
				u.sums[name].Add(u.sums[name], n)
			}
		}
		due, ok := new(big.Rat).SetString(row.Total)
		if !ok {
			continue
		}
		u.due[0].Add(u.due[0], due)
		if row.Verdict == api.ReceiptDisputed {
			u.due[1].Add(u.due[1], due)
		}
		if row.Sequence == 0 {
			u.due[2].Add(u.due[2], due)
		}
	}
	var list []usage
	for _, u := range all {
		for name, n := range u.sums {
			u.Used[name] = shortened(n.FloatString(9))
		}
		u.Due = shortened(u.due[0].FloatString(9))
		for i, to := range map[int]*string{1: &u.Disputed, 2: &u.Open} {
			if u.due[i].Sign() > 0 {
				*to = shortened(u.due[i].FloatString(9))
			}
		}
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b usage) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Peer, b.Peer), -cmp.Compare(a.Direction, b.Direction), cmp.Compare(slices.Index(usageParts, a.Part), slices.Index(usageParts, b.Part)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Currency, b.Currency), cmp.Compare(a.PeerID, b.PeerID))
	})
	return list
}

// storage are the hours of a GiB of volumes, whatever storage class they are of.
func (u usage) storage() string {
	sum := new(big.Rat)
	for name, n := range u.sums {
		if _, is := api.StorageClass(name); is {
			sum.Add(sum, n)
		}
	}
	return shortened(sum.FloatString(9))
}

// byNamespace is --by of what own namespaces used.
const byNamespace = "namespace"

// usagePart says of what of a contract a line is, when it is split.
type usagePart string

// The parts.
const (
	partNamespace usagePart = "namespace" // what pods of a namespace used
	partUnknown   usagePart = "unknown"   // what was used, and not counted by namespace
	partUnused    usagePart = "unused"    // what the contract reserved, and nobody requested
)

// usageParts are all of them, in the order of lists.
var usageParts = []usagePart{"", partNamespace, partUnknown, partUnused}

func (x usage) ofNamespace() string {
	switch x.Part {
	case partUnknown:
		return "(not known)"
	case partUnused:
		return "(reserved, unused)"
	}
	return x.Namespace
}

// byNamespaces splits the receipts of what pods of this cluster used; those of peers' pods here are left out, for their namespaces are the peers' affair.
func byNamespaces(rows []receiptRow) (out []receiptRow) {
	for _, row := range rows {
		if row.Direction != api.Outgoing {
			continue
		}
		for _, share := range row.Shares {
			one := row
			one.namespace, one.part = share.Namespace, partNamespace
			if share.Namespace == "" {
				one.part = partUnknown
			}
			one.Used, one.Due, one.Total = share.Used, share.Due, share.Total
			out = append(out, one)
		}
		if unused := difference(row.Reserved, row.Used); len(unused) > 0 {
			one := row
			one.part, one.Used, one.Due, one.Total, one.Prices = partUnused, unused, nil, "0", nil // prices are for what is used
			out = append(out, one)
		}
	}
	return out
}

// difference is what sums have that others have not.
func difference(all, part map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range all {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			continue
		}
		if less, ok := new(big.Int).SetString(part[name], 10); ok {
			n.Sub(n, less)
		}
		if n.Sign() > 0 {
			out[name] = n.String()
		}
	}
	return out
}

// inShort writes a decimal number to three places.
func inShort(number string) string {
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return "0"
	}
	return shortened(n.FloatString(3))
}

var usageListing = program.Listing[usage]{
	Columns: []screen.Column[usage]{
		{Title: "DAY", Need: true, Cell: func(x usage) string { return x.Day }},
		{Title: "PEER", Cell: func(x usage) string { return x.Peer }},
		{Title: "PODS", Cell: func(x usage) string { return whosePods(x.Direction) }},
		{Title: "NAMESPACE", Need: true, Cell: usage.ofNamespace},
		{Title: "CORE HOURS", Cell: func(x usage) string { return inShort(x.Used[api.CPU]) }},
		{Title: "GIB HOURS", Cell: func(x usage) string { return inShort(x.Used[api.Memory]) }},
		{Title: "OTHERS", Need: true, Cell: func(x usage) string {
			var others []string
			for _, name := range api.Resources(x.Used).Names() {
				if name != api.CPU && name != api.Memory && name != api.Pods {
					others = append(others, api.Called(name)+" "+inShort(x.Used[name]))
				}
			}
			return strings.Join(others, ", ")
		}},
		{Title: "DUE", Cell: func(x usage) string { return strings.TrimSpace(x.Due + " " + x.Currency) }},
		{Title: "OPEN", Need: true, Cell: func(x usage) string { return x.Open }},
		{Title: "DISPUTED", Need: true, Cell: func(x usage) string { return x.Disputed }},
	},
	None:  "nothing was counted: there was no contract with any peer",
	Notes: func(x usage) []program.Note { return program.Notes(x.Peer, x.Fault) },
}

// writeCSV writes rows for a spreadsheet (RFC 4180).
func writeCSV[T any](to io.Writer, columns []screen.Column[T], rows []T) error {
	w := csv.NewWriter(to)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.Title
	}
	w.Write(line)
	for _, row := range rows {
		for i, c := range columns {
			line[i] = inCell(screen.Clean(c.Cell(row)))
		}
		w.Write(line)
	}
	w.Flush()
	return w.Error()
}

// inCell keeps a spreadsheet from reading what a peer calls itself as a formula.
func inCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@", rune(text[0])) {
		return "'" + text
	}
	return text
}

var usageCSV = []screen.Column[usage]{
	{Title: "day", Cell: func(x usage) string { return x.Day }},
	{Title: "peer", Cell: func(x usage) string { return x.Peer }},
	{Title: "peer_id", Cell: func(x usage) string { return x.PeerID }},
	{Title: "direction", Cell: func(x usage) string { return string(x.Direction) }},
	{Title: "core_hours", Cell: func(x usage) string { return cmp.Or(x.Used[api.CPU], "0") }},
	{Title: "memory_gib_hours", Cell: func(x usage) string { return cmp.Or(x.Used[api.Memory], "0") }},
	{Title: "storage_gib_hours", Cell: func(x usage) string { return x.storage() }},
	{Title: "due", Cell: func(x usage) string { return x.Due }},
	{Title: "currency", Cell: func(x usage) string { return x.Currency }},
	{Title: "disputed", Cell: func(x usage) string { return x.Disputed }},
	{Title: "open", Cell: func(x usage) string { return x.Open }},
	{Title: "namespace", Cell: func(x usage) string { return x.Namespace }},
	{Title: "network_gb", Cell: func(x usage) string { return cmp.Or(x.Used[api.Traffic], "0") }},
	{Title: "part", Cell: func(x usage) string { return string(x.Part) }},
}

// money is a sum in each currency.
type money map[string]*big.Rat

func (m money) add(amount, currency string) {
	n, ok := new(big.Rat).SetString(amount)
	if !ok {
		return
	}
	if m[currency] == nil {
		m[currency] = new(big.Rat)
	}
	m[currency].Add(m[currency], n)
}

func (m money) String() string {
	var all []string
	for _, currency := range slices.Sorted(maps.Keys(m)) {
		if m[currency].Sign() > 0 {
			all = append(all, fmt.Sprintf("%s %s", shortened(m[currency].FloatString(9)), currency))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}

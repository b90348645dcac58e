package backend

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/receipts"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// Metered are the contracts in force, and what is requested under them: at peers by the pods and claims of this cluster, and here by guests.
func (b *Backend) Metered(ctx context.Context) ([]receipts.Line, error) {
	c := b.Cluster()
	if c == nil {
		return nil, errors.New("the controllers of Kith do not run")
	}
	var lines []receipts.Line
	var f facts
	for _, ctr := range c.Client.Now().Contracts {
		ending := ctr.DeletionTimestamp != nil || ctr.Status.State == v1alpha1.StateEnding
		if ending && ctr.Spec.Role == v1alpha1.RoleProvider { // the consumer counts until its pods are home: it may hear of the end before the provider does
			continue
		}
		doc, err := contract.Parse(ctr.Spec.Document)
		if err != nil {
			continue // Contracts says so
		}
		granted, err := record.Quantities(doc.Resources)
		if err != nil {
			continue
		}
		line := receipts.Line{
			Signed:   contract.Signed{Document: ctr.Spec.Document, ConsumerSignature: ctr.Spec.ConsumerSignature, ProviderSignature: ctr.Spec.ProviderSignature},
			Document: doc, Provides: ctr.Spec.Role == v1alpha1.RoleProvider, Peer: ctr.Spec.Peer, Granted: counts(granted),
		}
		if line.Provides {
			line.Used = counts(c.Host.Used(ctr.Spec.ID))
		} else {
			if f.used == nil { // once for all
				if f, err = b.gather(ctx); err != nil {
					return nil, err
				}
			}
			node := v1alpha1.VirtualNodePrefix + ctr.Spec.Peer
			line.Used, line.By = counts(f.used[node]), map[string]receipts.Amounts{}
			for namespace, held := range f.by[node] {
				line.By[namespace] = counts(held)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// counts writes amounts in whole numbers: thousandths of a core, bytes, numbers.
func counts(list corev1.ResourceList) receipts.Amounts {
	out := receipts.Amounts{}
	for name, q := range list {
		if out[string(name)] = q.Value(); name == corev1.ResourceCPU {
			out[string(name)] = q.MilliValue()
		}
	}
	return out
}

// Receipts gives what was counted under contracts, also those that ended.
func (b *Backend) Receipts(_ context.Context, options api.ReceiptOptions) ([]api.Account, error) {
	if b.Book == nil {
		return nil, nil
	}
	accounts, err := b.Book.Accounts(options.Since)
	if err != nil {
		return nil, internal(err)
	}
	var all []api.Account
	for _, a := range accounts {
		v := api.Account{Contract: a.Contract, Peer: a.Peer, PeerID: a.PeerID, Direction: api.Outgoing, Ended: a.Ended, Fault: a.Fault}
		if a.Provides {
			v.Direction = api.Incoming
		}
		for _, item := range a.Items {
			v.Receipts = append(v.Receipts, receiptView(item))
		}
		if a.Ended.IsZero() {
			open := api.Receipt{From: a.Since, To: time.Now().UTC().Truncate(time.Second), Reserved: a.Reserved, Used: a.Used, Prices: a.Prices}
			if open.Due, open.Total, open.Currency, err = receipt.Due(a.Used, a.Prices); err != nil {
				return nil, internal(err)
			}
			v.Open = &open
		}
		if options.Namespaces {
			shares, err := b.Book.Shares(a)
			if err != nil {
				return nil, internal(err)
			}
			for i := range v.Receipts {
				v.Receipts[i].Shares = sharesView(shares[v.Receipts[i].Sequence])
			}
			if v.Open != nil {
				v.Open.Shares = sharesView(shares[0])
			}
		}
		all = append(all, v)
	}
	return all, nil
}

func sharesView(shares []receipts.Share) (list api.List[api.ReceiptShare]) {
	for _, s := range shares {
		list = append(list, api.ReceiptShare{Namespace: s.Namespace, Used: s.Used, Due: s.Due, Total: s.Total})
	}
	return list
}

func receiptView(item receipt.Item) api.Receipt {
	r := item.Receipt
	v := api.Receipt{
		Sequence: r.Sequence, Revision: r.Revision, From: r.From, To: r.To, Reserved: r.Reserved, Used: r.Used, Prices: r.Prices, Due: r.Due, Total: r.Total,
		Currency: r.Currency, Last: r.Last,
	}
	if item.Answer != nil {
		v.Verdict = api.ReceiptVerdict(item.Answer.Verdict)
		if v.Verdict == api.ReceiptDisputed {
			v.Counted = item.Answer.Used
		}
	}
	return v
}

// ReceiptFile gives the receipts of one contract as they were signed, by its ID, the beginning of that, or the peer's name where that is enough.
func (b *Backend) ReceiptFile(_ context.Context, ref string) (api.ReceiptFile, error) {
	out := api.ReceiptFile{}
	if b.Book == nil {
		return out, api.NotFound("contract", ref, "kith receipt list")
	}
	accounts, err := b.Book.Accounts(time.Now())
	if err != nil {
		return out, internal(err)
	}
	ended, err := b.Book.Accounts(time.Time{})
	if err != nil {
		return out, internal(err)
	}
	var found []string
	for _, list := range [][]receipts.Account{accounts, ended} { // those in force come first
		for _, a := range list {
			if a.Contract == ref {
				found = []string{ref}
				break
			}
			if len(ref) >= 4 && strings.HasPrefix(a.Contract, ref) || a.Peer == ref || a.PeerID == ref {
				found = append(found, a.Contract)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return out, api.NotFound("contract", ref, "kith receipt list")
	case 1:
	default:
		return out, &api.Error{Code: api.CodeConflict, Message: "there are receipts of several contracts with " + ref, Reason: strings.Join(found, ", "), Do: "name one of these"}
	}
	var text bytes.Buffer
	err = b.Book.Export(found[0], &text)
	if errors.Is(err, fs.ErrNotExist) {
		return out, api.NotFound("contract", ref, "kith receipt list")
	}
	if err != nil {
		return out, internal(err)
	}
	out.Contract = found[0]
	for line := range bytes.Lines(text.Bytes()) {
		out.Lines = append(out.Lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	return out, nil
}

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/receipts"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// openReceipts reads what was counted under contracts before.
func (d *Daemon) openReceipts() (err error) {
	d.receipts, err = receipts.Open(receipts.Config{
		Dir: filepath.Join(d.cfg.DataDir, "receipts"), Identity: d.me, Now: receipts.Now, Log: d.log, Ask: d.askForReceipts, Carried: d.carried,
		Tell: func(consumer identity.ID, id string) {
			d.notices.Send(consumer, peering.Notice{Type: peering.NoticeReceipt, Contract: id})
		},
	})
	d.backend.Book = d.receipts
	return err
}

// carried is what the tunnel to a peer carried of guests.
func (d *Daemon) carried(id string, provides bool) uint64 {
	if d.gateway == nil {
		return 0
	}
	here, there := d.gateway.Carried(id)
	if provides {
		return here
	}
	return there
}

// purse tells budgets of namespaces what pods at peers cost.
type purse struct {
	*receipts.Book
	now func() *ledger.Snapshot
}

// Currencies are those of the contracts in force in which this cluster consumes, by the peers' names; "" of one that is free.
func (p purse) Currencies() map[string]string {
	out := map[string]string{}
	for _, ctr := range p.now().Contracts {
		if ctr.Spec.Role != v1alpha1.RoleConsumer {
			continue
		}
		out[ctr.Spec.Peer] = ""
		doc, err := contract.Parse(ctr.Spec.Document)
		if err != nil {
			continue // Contracts says so
		}
		for _, text := range doc.Prices { // all are in one
			if price, err := contract.ParsePrice(text); err == nil {
				out[ctr.Spec.Peer] = price.Currency
			}
			break
		}
	}
	return out
}

// askForReceipts is for contracts that ended, too, as long as the provider is known here.
func (d *Daemon) askForReceipts(ctx context.Context, _, id string, in receipts.Request) (out receipts.Reply, err error) {
	k, err := d.directory.Find(id)
	if err != nil {
		return out, err
	}
	if k.Peer == nil {
		return out, fmt.Errorf("%s is no peer any more", k.Name)
	}
	to, err := d.directory.Client(k.Peer)
	if err != nil {
		return out, err
	}
	err = to.Call(ctx, http.MethodPost, receipts.Path, in, &out)
	return out, err
}

// receiptTime is what a consumer has to send a request, and to read the answer.
const receiptTime = 15 * time.Second

// serveReceipts answers consumers, also of contracts that ended: the Book knows whose they are.
func (d *Daemon) serveReceipts(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(receiptTime))
	control.SetWriteDeadline(time.Now().Add(2 * receiptTime))
	body, err := io.ReadAll(io.LimitReader(r.Body, receipts.MaxRequest+1))
	if err != nil || len(body) > receipts.MaxRequest {
		answerProblem(w, r, &peering.Problem{Code: peering.CodeTooLarge, Message: "body: did not come whole, or is too large"})
		return
	}
	in, err := receipts.ParseRequest(body)
	if err != nil {
		answerProblem(w, r, &peering.Problem{Code: peering.CodeBadRequest, Message: wire.Line("body: "+err.Error(), 256)})
		return
	}
	out, err := d.receipts.Answer(caller, in)
	if err != nil {
		if _, known := errors.AsType[*peering.Problem](err); !known {
			d.log.Error("receipts were not given", "id", caller.ID.String(), "err", err)
		}
		peering.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(out)
}

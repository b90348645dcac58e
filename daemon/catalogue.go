package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/find/catalogue"
	"kith.dev/core/trust/listing"
)

// errNotThere is of a peer that no call gets to now.
var errNotThere = errors.New("it cannot be reached")

// catalogueRoutes answers what is listed of this cluster at others; and what others list here, if this cluster keeps a catalogue.
func (d *Daemon) catalogueRoutes() {
	d.peerAPI.Handle("GET "+catalogue.ListingPath, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		c := d.cluster.Load()
		if c == nil {
			answerProblem(w, r, errNotReady)
			return
		}
		signed, err := c.Provider.Listing(r.Context(), caller.ID)
		answerJSON(w, signed, err)
	})
	if !d.cfg.Catalogue {
		return
	}
	shown := catalogue.New(d.listing, time.Now, d.log)
	d.peerAPI.Handle("GET "+catalogue.Path, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		if !(handler{d}).Compared(r.Context(), caller) {
			answerProblem(w, r, &peering.Problem{Code: peering.CodeForbidden, Message: "it is for peers whose key was accepted there", Do: "peer with it first"})
			return
		}
		after, err := catalogue.After(r.URL.Query())
		if err != nil {
			answerProblem(w, r, &peering.Problem{Code: peering.CodeBadRequest, Message: "after: is no ID"})
			return
		}
		answerJSON(w, shown.Page(r.Context(), caller.ID, after), nil)
	})
}

// answerJSON answers a call, within a time: the peer may not read it.
func answerJSON(w http.ResponseWriter, out any, err error) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(receiptTime))
	if err != nil {
		peering.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(out)
}

// listing are the peers who may have something listed here: those whose key was accepted.
func (d *Daemon) listing() (all []catalogue.Provider) {
	for _, k := range d.directory.All() {
		if !sharing.Accepted(k.Peer) {
			continue
		}
		all = append(all, catalogue.Provider{ID: k.ID, Addresses: k.Addresses, Ask: func(ctx context.Context) (signed listing.Signed, err error) {
			if !k.Contact.Reachable() {
				return signed, errNotThere
			}
			to, err := d.directory.Client(k.Peer)
			if err != nil {
				return signed, err
			}
			err = to.Call(ctx, http.MethodGet, catalogue.ListingPath, nil, &signed)
			return signed, err
		}})
	}
	return all
}

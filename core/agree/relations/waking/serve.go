package waking

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wake"
	"kith.dev/core/trust/wire"
)

// Path is the route of the peer API by which a peer hands on a last word that was said to it: to a neighbour of the machine that sleeps, which wakes it, or
// to the machine itself, when it is awake again, which counts that.
const Path = "/kith/v2/wake"

const (
	maxRequest = 2 * wake.MaxDocument // a document of the largest, in base64, with its signature
	readTime   = 10 * time.Second
	// maxLent bounds the machines of which is kept when they were woken for others.
	maxLent = 256
)

// ServeHTTP answers Path.
func (w *Waking) ServeHTTP(rw http.ResponseWriter, r *http.Request, caller peering.Caller) {
	control := http.NewResponseController(rw)
	control.SetReadDeadline(time.Now().Add(readTime))
	control.SetWriteDeadline(time.Now().Add(2 * readTime))
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil || len(body) > maxRequest {
		peering.WriteProblem(rw, &peering.Problem{Code: peering.CodeTooLarge, Message: "body: did not come whole, or is too large"})
		return
	}
	signed, err := parse(body)
	if err == nil {
		err = w.Answer(r.Context(), caller, signed)
	}
	if err == nil {
		rw.WriteHeader(http.StatusNoContent)
		return
	}
	if _, known := errors.AsType[*peering.Problem](err); !known {
		w.Log.Error("a peer was not helped to wake another", "id", caller.ID.String(), "err", err)
	}
	peering.WriteProblem(rw, err)
}

var shape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[canonical.Signed]())

// parse reads a body, whose size is bounded.
func parse(body []byte) (s canonical.Signed, err error) {
	if err = shape.Check(body, wire.Bound{Factor: 12, Slack: 64 << 10}); err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return s, peering.Refuse(peering.CodeBadRequest, "body: is not a signed document", "")
	}
	return s, nil
}

// Answer does what a caller asks by a word. The error is a *peering.Problem where it is the caller's to know.
func (w *Waking) Answer(ctx context.Context, caller peering.Caller, signed canonical.Signed) error {
	word, err := wake.Verify(signed)
	now := time.Now()
	switch {
	case err != nil:
		return peering.Refuse(peering.CodeBadRequest, wire.Line(err.Error(), 256), "")
	case word.Waker != caller.ID:
		return peering.Refuse(peering.CodeForbidden, "it was not said to the caller", "")
	case word.Owner == w.Identity.ID():
		return w.count(ctx, caller)
	case !w.trusts(caller.ID) || !w.trusts(word.Owner):
		return peering.Refuse(peering.CodeForbidden, "this laptop wakes only its own peers, and only for its own peers", "")
	case !word.Holds(now):
		return peering.Refuse(peering.CodeExpired, "it may not be woken now, as it said itself", "")
	}
	if why := w.outdated(word); why != "" {
		return peering.Refuse(peering.CodeExpired, why, "")
	}
	devices, err := w.met(w.Client.Now().Peer(word.Owner.String()))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(word.Devices, func(d wake.Device) bool { return wol.Here(devices, d.Networks) }) {
		return peering.Refuse(peering.CodeNotFound, wol.ErrElsewhere.Error(), "ask another peer")
	}
	if !w.lend(word.Owner, word.PerDay, now) {
		return peering.Refuse(peering.CodeRateLimited, "it was woken from here as often as it agreed to, or a moment ago", "")
	}
	w.Log.Info("wakes a peer for another", "id", word.Owner.String(), "for", caller.ID.String())
	return w.send(ctx, devices, word)
}

// met are the devices of this machine on whose networks it reached a peer by itself when it did so last, as far as is known. Elsewhere nothing is sent: many
// networks have the same addresses, and a peer that names the device of somebody else must have been where that one is.
func (w *Waking) met(peer *v1alpha1.Peer) ([]wol.Device, error) {
	at := netip.AddrPort{}
	if peer != nil {
		if at = w.Directory.Contact(peer).Reached; !at.IsValid() { // as after a restart
			at, _ = netip.ParseAddrPort(peer.Status.Endpoint)
		}
	}
	if !at.IsValid() {
		return nil, nil
	}
	devices, err := w.Devices()
	return slices.DeleteFunc(slices.Clone(devices), func(d wol.Device) bool { return !d.Reaches(at.Addr()) }), err
}

// trusts reports whether a contract with a cluster is in force, in either role.
func (w *Waking) trusts(id identity.ID) bool {
	now := w.Client.Now()
	peer := now.Peer(id.String())
	return peer != nil && (now.InForce(peer.Name, v1alpha1.RoleConsumer) != nil || now.InForce(peer.Name, v1alpha1.RoleProvider) != nil)
}

// skew is how far the clocks of two machines that sleep now and then may be apart.
const skew = 2 * time.Minute

// outdated says why a word that holds is not its owner's last, as far as this machine sees it by itself: one that was said before an earlier sleep may
// be shown again, after its owner took it back. "" where nothing speaks against it.
func (w *Waking) outdated(word wake.Word) string {
	peer := w.Client.Now().Peer(word.Owner.String())
	if peer == nil {
		return ""
	}
	there := w.Directory.Contact(peer)
	switch slept := there.Since.Add(there.Clock - skew); {
	case there.Reachable():
		return "it is awake"
	case there.State == presence.Suspended && !there.Since.IsZero() && word.Issued.Before(slept):
		return "it said that before it was awake last"
	}
	if s := there.LastWord; s != nil { // how the machine sleeps is said to all; whom its owner lets wake it is said to each alone
		if last, err := wake.Verify(*s); err == nil && last.Owner == word.Owner && (last.Refused == wake.OnBattery || last.Refused == wake.NoDevice) && !last.Issued.Before(word.Issued) {
			return "it took that back since"
		}
	}
	return ""
}

// lend reports whether a machine may be woken from here once more within a day, whoever asks, and counts it then.
func (w *Waking) lend(owner identity.ID, most int64, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, times := range w.lent {
		if times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= day }); len(times) == 0 {
			delete(w.lent, id)
		} else {
			w.lent[id] = times
		}
	}
	times := w.lent[owner]
	if n := len(times); int64(n) >= most || n > 0 && now.Sub(times[n-1]) < sooner || n == 0 && len(w.lent) >= maxLent {
		return false
	}
	w.lent[owner] = append(times, now)
	return true
}

// send sends packets to the devices of a word that are on a network of those of this machine. An error says that none was sent.
func (w *Waking) send(ctx context.Context, from []wol.Device, word wake.Word) error {
	sent, failed := false, wol.ErrElsewhere
	for _, d := range word.Devices {
		mac, err := d.Hardware()
		if err == nil {
			err = w.Send(ctx, from, mac, d.Networks)
		}
		if err == nil {
			sent = true
		} else if !errors.Is(err, wol.ErrElsewhere) {
			failed = err
		}
	}
	if sent {
		return nil
	}
	return failed
}

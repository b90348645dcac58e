package waking

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wake"
)

// LastWord says to a consumer, before this machine is suspended, whether it may wake it; nil where that is no term of its contract.
func (w *Waking) LastWord(to identity.ID) *canonical.Signed {
	now := w.Client.Now()
	peer := now.Peer(to.String())
	if peer == nil {
		return nil
	}
	ctr := now.InForce(peer.Name, v1alpha1.RoleProvider)
	term := record.Wake(ctr)
	if term == 0 {
		return nil
	}
	devices, err := w.Devices()
	if err != nil {
		w.Log.Warn("by which devices this machine can be woken is not known", "err", err)
	}
	word := w.word(ctr, min(term, contract.WakeOf(sharing.Wake(sharing.Select(now.Policies, peer)))), devices, time.Now())
	word.Waker = to
	signed, err := wake.Sign(word, w.Identity)
	if err != nil {
		w.Log.Warn("a peer is not told how this machine is woken", "peer", peer.Name, "err", err)
		return nil
	}
	return &signed
}

// word is the last word under a contract by which this machine may be woken so often.
func (w *Waking) word(ctr *v1alpha1.Contract, most int64, devices []wol.Device, now time.Time) wake.Word {
	word := wake.Word{Issued: now, From: now, Until: now.Add(wake.MaxTime).Truncate(time.Second)}
	if end := ctr.Spec.NotAfter; end != nil && end.Before(&metav1.Time{Time: word.Until}) {
		word.Until = end.Time
	}
	if word.Until.Before(now) { // it has run out, and is about to end
		word.Until = now
	}
	switch {
	case !w.Power().OnMains:
		word.Refused = wake.OnBattery
		return word
	case most == 0:
		word.Refused = wake.Withdrawn
		return word
	}
	armed := slices.ContainsFunc(devices, func(d wol.Device) bool { return d.Arming == wol.Armed })
	for _, d := range devices {
		if armed && d.Arming != wol.Armed || len(word.Devices) == wake.MaxDevices {
			continue // who has armed one means that one
		}
		networks := slices.DeleteFunc(slices.Clone(d.Networks), func(n netip.Prefix) bool { return !wake.Network(n) })
		one := wake.Device{MAC: d.MAC.String(), Networks: networks[:min(len(networks), wake.MaxDevices)]}
		if _, err := one.Hardware(); err == nil && len(networks) > 0 {
			word.Devices = append(word.Devices, one)
		}
	}
	if len(word.Devices) == 0 {
		word.Refused = wake.NoDevice
		return word
	}
	word.PerDay = most
	if is := ctr.Status.Wake; is != nil {
		word.From = free(is.Times, most, now)
	}
	return word
}

// unsaid is for how long it is waited until somebody says that he woke this machine.
const unsaid = 2 * time.Minute

// Sleeps notes that this machine is about to be suspended.
func (w *Waking) Sleeps() {
	before := w.counts()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// counts are how often each device woke this machine, as far as it is known.
func (w *Waking) counts() map[string]int64 {
	devices, err := w.Devices()
	if err != nil {
		w.Log.Debug("how often this machine was woken by its network is not known", "err", err)
	}
	return w.Counts(devices)
}

// Woke looks, when this machine is awake again, whether a device of it woke it. If so, and no peer says within a while that it did, the owner is told.
func (w *Waking) Woke() {
	now := w.counts()
	w.mu.Lock()
	defer w.mu.Unlock()
	by := ""
	for name, n := range now {
		if was, known := w.before[name]; known && n > was {
			by = name
		}
	}
	w.before, w.back = nil, time.Now()
	if by == "" || !w.grants() {
		return
	}
	if w.unsaid != nil {
		w.unsaid.Stop()
	}
	w.unsaid = time.AfterFunc(unsaid, func() {
		w.Announce(api.Event{Type: api.EventWoken, Severity: api.SeverityWarning, Reason: api.ReasonByNobody,
			Message: fmt.Sprintf("%s woke this laptop, and none of the peers that may do so says that it did; `kith share --wake \"\"` takes it away from all", by)})
	})
}

// grants reports whether a peer may wake this machine by its contract.
func (w *Waking) grants() bool {
	return slices.ContainsFunc(w.Client.Now().Contracts, func(ctr *v1alpha1.Contract) bool {
		return ctr.Spec.Role == v1alpha1.RoleProvider && record.Wake(ctr) > 0
	})
}

// said notes that a peer says that it woke this machine, which it may do before it is seen here that a device did.
func (w *Waking) said() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = nil
	if w.unsaid != nil {
		w.unsaid.Stop()
		w.unsaid = nil
	}
}

// sooner is how long after one count another is not taken: a machine that was just woken is awake.
const sooner = 10 * time.Second

// count notes that the caller woke this machine, by the word that it was given.
func (w *Waking) count(ctx context.Context, caller peering.Caller) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		known, now := w.Client.Now(), time.Now()
		peer := known.Peer(caller.ID.String())
		if peer == nil {
			return peering.Refuse(peering.CodeNoContract, "no contract with the caller is in force", "")
		}
		ctr := known.InForce(peer.Name, v1alpha1.RoleProvider)
		term := record.Wake(ctr)
		if term == 0 {
			return peering.Refuse(peering.CodeNoContract, "no contract with the caller lets it wake this laptop", "")
		}
		is := &v1alpha1.WakeStatus{}
		if ctr.Status.Wake != nil {
			is = ctr.Status.Wake.DeepCopy()
		}
		is.Times = lately(is.Times, now)
		if n := len(is.Times); n > 0 && now.Sub(is.Times[n-1].Time) < sooner {
			return peering.Refuse(peering.CodeRateLimited, "that this laptop was woken was counted a moment ago", "")
		}
		first := int64(len(is.Times)) == term // of those beyond what was agreed: the owner is told once, however many follow
		if is.Times = append(is.Times, metav1.NewTime(now)); len(is.Times) > maxTimes {
			is.Times = is.Times[len(is.Times)-maxTimes:]
		}
		is.Over = int32(max(0, int64(len(is.Times))-term))
		is.Message = fmt.Sprintf("woken by %s %d times within the last day, of %d agreed", peer.Name, len(is.Times), term)
		if _, err := w.put(ctx, ctr, is); err != nil {
			return err
		}
		w.said()
		w.Log.Info("this laptop was woken", "peer", peer.Name, "times", len(is.Times), "agreed", term)
		if first {
			w.Announce(api.Event{Type: api.EventWoken, Severity: api.SeverityWarning, Peer: peer.Name, Object: "contract/" + ctr.Name, Direction: api.Incoming, Reason: api.ReasonTooOften,
				Message: fmt.Sprintf("%s woke this laptop %d times within a day, and %d were agreed; take it away with `kith share --wake \"\"`, or end it with `kith unpeer %s`", peer.Name, len(is.Times), term, peer.Name)})
		}
		return nil
	})
}

// maxTimes bounds the times of a contract's status.
const maxTimes = contract.MaxWake + 8

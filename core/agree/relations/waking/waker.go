package waking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/wake"
)

const (
	// settle is for how long a pod waits before somebody is woken for it: the scheduler may yet find room.
	settle = 10 * time.Second
	// comes is how long a machine takes to come, at most; again is the pause after one that did not, which doubles with each.
	comes = 90 * time.Second
	again = 10 * time.Minute
	// elsewhere is the pause after nobody was on its network who would wake it; it doubles with each time that those who were asked all refuse.
	elsewhere = 2 * time.Minute
	// answers is how long a neighbour has to say whether it sent packets, which takes it two seconds: pods wait, and there are others.
	answers = 8 * time.Second
	// missed is for how long a word counts that was said before this machine was away itself: a night. Its owner may have slept anew since, on battery.
	missed = day
	// maxTold bounds the pods that an event is written for.
	maxTold = 20
)

// asleep is a machine that sleeps, as home knows it.
type asleep struct {
	peer *v1alpha1.Peer
	ctr  *v1alpha1.Contract
	is   *v1alpha1.WakeStatus // a copy; never nil
	word wake.Word
	most int64 // times a day
	seen bool  // this machine was there since it went to sleep, and would have seen that it was awake
}

// Reconcile looks at one peer.
func (w *Waking) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return record.Calm(w.reconcile(ctx, req.Name))
}

func (w *Waking) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	a, err := w.follow(ctx, name)
	if a == nil || err != nil {
		return ctrl.Result{}, err
	}
	now := time.Now()
	needs, _, err := w.Pods.Needs(ctx, []seeking.Place{{Peer: a.peer, There: w.Directory.Contact(a.peer).Presence, Most: a.ctr.Grants(now), Grants: a.ctr.Grants(now), Asleep: true}})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("see which pods wait for %s: %w", name, err)
	}
	pods := needs[0].Who
	if len(pods) == 0 {
		return ctrl.Result{}, nil // the next that waits brings us back
	}
	if due := needs[0].Since.Add(settle); now.Before(due) {
		return ctrl.Result{RequeueAfter: due.Sub(now)}, nil
	}
	if n := len(a.is.Times); n > 0 && (a.is.State == v1alpha1.WakeSent || a.is.State == v1alpha1.WakeNotWoken) { // it is on its way, or did not come
		last := a.is.Times[n-1].Time
		if now.Before(last.Add(comes)) {
			w.tell(a, pods)
			return ctrl.Result{RequeueAfter: last.Add(comes).Sub(now)}, nil
		}
		if due := a.due(); now.Before(due) {
			err := w.say(ctx, a, pods, v1alpha1.WakeNotWoken, fmt.Sprintf("%s was woken at %s, and did not come; it is woken again after %s", name, clock(last), clock(due)))
			return ctrl.Result{RequeueAfter: due.Sub(now)}, err
		}
	}
	if since := a.is.Since; a.is.State == v1alpha1.WakeNoWay && since != nil {
		due := since.Add(w.pause(name))
		if a.tries() > 0 && a.due().After(due) { // one who did not answer may have woken it
			due = a.due()
		}
		if now.Before(due) {
			w.tell(a, pods)
			return ctrl.Result{RequeueAfter: due.Sub(now)}, nil
		}
	}
	until, err := w.wake(ctx, a, pods, false)
	if err != nil || until.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Second, time.Until(until))}, nil
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// follow has the contract's status follow what is known of the machine's sleep; nil when it does not sleep, or nothing was said of waking it.
func (w *Waking) follow(ctx context.Context, name string) (*asleep, error) {
	known := w.Client.Now()
	peer := known.PeerNamed(name)
	ctr := known.InForce(name, v1alpha1.RoleConsumer)
	term := record.Wake(ctr)
	if peer == nil || term == 0 {
		w.forget(name)
		return nil, nil
	}
	a := &asleep{peer: peer, ctr: ctr, is: &v1alpha1.WakeStatus{}, most: term}
	if ctr.Status.Wake != nil {
		a.is = ctr.Status.Wake.DeepCopy()
	}
	there := w.Directory.Contact(peer)
	if there.Reachable() {
		return nil, w.awake(ctx, a)
	}
	if there.State == presence.Suspended { // else nothing is known of this sleep, and what was said before a restart here stands
		if err := w.hear(ctx, a, there.LastWord); err != nil {
			return nil, err
		}
		a.seen = !there.Since.Before(w.returned())
	}
	if len(a.is.Document) == 0 {
		return nil, nil
	}
	word, err := w.read(peer, canonical.Signed{Document: a.is.Document, Signature: a.is.Signature})
	if err != nil { // somebody wrote the status
		return nil, nil
	}
	if a.word = word; word.PerDay > 0 {
		a.most = min(term, word.PerDay)
	}
	return a, nil
}

// hear keeps what a peer said before the sleep that it is in. Where that is nothing, what it said before another sleep counts no more.
func (w *Waking) hear(ctx context.Context, a *asleep, said *canonical.Signed) (err error) {
	var word canonical.Signed
	if said != nil {
		word = *said
	}
	if slices.Equal(word.Document, a.is.Document) {
		return nil
	}
	if said != nil {
		if _, err := w.read(a.peer, word); err != nil {
			w.Log.Warn("the last word of a peer on how it is woken is not its own", "peer", a.peer.Name, "err", err)
			word = canonical.Signed{}
		}
	}
	if len(word.Document)+len(a.is.Document) == 0 {
		return nil
	}
	a.is.Document, a.is.Signature = word.Document, word.Signature
	a.is.State, a.is.Message, a.is.Since = "", "", nil
	a.ctr, err = w.put(ctx, a.ctr, a.is)
	return err
}

// returned is when this machine was away last: it may have missed that a peer was awake, and what it said when it went to sleep again.
func (w *Waking) returned() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.back
}

// read reads a word of a peer that is said to this cluster.
func (w *Waking) read(peer *v1alpha1.Peer, s canonical.Signed) (wake.Word, error) {
	word, err := wake.Verify(s)
	if err == nil && (word.Owner.String() != peer.Spec.ID || word.Waker != w.Identity.ID()) {
		err = errors.New("it is another's, or said to another")
	}
	return word, err
}

// awake notes that a machine sleeps no more, and tells it if it was woken from here: it counts, too.
func (w *Waking) awake(ctx context.Context, a *asleep) error {
	if len(a.is.Document) == 0 {
		return nil
	}
	word, err := w.read(a.peer, canonical.Signed{Document: a.is.Document, Signature: a.is.Signature})
	if n := len(a.is.Times); err == nil && n > 0 && !a.is.Times[n-1].Time.Before(word.Issued) {
		err := w.Ask(ctx, a.peer, canonical.Signed{Document: a.is.Document, Signature: a.is.Signature})
		if problem, refused := errors.AsType[*peering.Problem](err); refused && problem.Code != peering.CodeUnavailable && problem.Code != peering.CodeInternal { // else it is told again
			w.Log.Info("a peer that was woken did not count it", "peer", a.peer.Name, "err", problem)
		} else if err != nil {
			return fmt.Errorf("tell %s that it was woken: %w", a.peer.Name, err)
		}
		a.is.State, a.is.Message = v1alpha1.WakeWoken, fmt.Sprintf("%s was woken at %s", a.peer.Name, clock(a.is.Times[n-1].Time))
	} else {
		a.is.State, a.is.Message = "", ""
	}
	now := metav1.Now()
	a.is.Document, a.is.Signature, a.is.Times, a.is.Since = nil, nil, lately(a.is.Times, now.Time), &now
	w.forget(a.peer.Name)
	_, err = w.put(ctx, a.ctr, a.is)
	return err
}

// forget forgets what is only known of a machine while it sleeps and may be woken.
func (w *Waking) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.told, name)
	delete(w.refused, name)
}

// tries counts how often the machine was woken, or that was tried, since it sleeps.
func (a *asleep) tries() (n int) {
	for _, t := range a.is.Times {
		if !t.Time.Before(a.word.Issued) {
			n++
		}
	}
	return n
}

// due is when a machine is woken again that did not come when it was woken last, which it was.
func (a *asleep) due() time.Time {
	return a.is.Times[len(a.is.Times)-1].Add(again << min(max(a.tries()-1, 0), 6))
}

// pause is how long nobody is asked to wake a machine after nobody would.
func (w *Waking) pause(name string) time.Duration {
	return elsewhere << min(max(w.refusals(name)-1, 0), 6)
}

// refusals are how often in a row nobody would wake a machine.
func (w *Waking) refusals(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[name]
}

// may says whether a machine may be woken now; else why not, and when it may be again, zero for not before its next word.
func (a *asleep) may(now time.Time) (state v1alpha1.WakeState, why string, until time.Time) {
	name := a.peer.Name
	switch a.word.Refused {
	case "":
	case wake.OnBattery:
		return v1alpha1.WakeOnBattery, name + " went to sleep on battery, and is not to be woken", time.Time{}
	case wake.Withdrawn:
		return v1alpha1.WakeWithdrawn, "the owner of " + name + " lets nobody wake it any more", time.Time{}
	default:
		return v1alpha1.WakeNoDevice, name + " has no network device by which it can be woken", time.Time{}
	}
	from := free(a.is.Times, a.most, now)
	if a.word.From.After(from) {
		from = a.word.From
	}
	switch {
	case !now.Before(a.word.Until):
		return v1alpha1.WakeExpired, fmt.Sprintf("%s could be woken until %s", name, clock(a.word.Until)), time.Time{}
	case !a.seen && !now.Before(a.word.Issued.Add(missed)):
		return v1alpha1.WakeExpired, fmt.Sprintf("%s went to sleep at %s, and this laptop was away since: it may have been awake, and sleep on battery", name, clock(a.word.Issued)), time.Time{}
	case now.Before(from):
		return v1alpha1.WakeSpent, fmt.Sprintf("%s was woken %s already, as agreed; it may be woken again after %s", name, api.WakeWords(int32(a.most)), clock(from)), from
	}
	return "", "", time.Time{}
}

// wake wakes a machine, if it may, and says so. That is written before anything is sent: after a restart in between it is counted, and not done again.
// until is when to look again.
func (w *Waking) wake(ctx context.Context, a *asleep, pods []*corev1.Pod, byHand bool) (until time.Time, err error) {
	w.doing.Lock()
	defer w.doing.Unlock()
	now := time.Now()
	if state, why, until := a.may(now); state != "" {
		return until, w.say(ctx, a, pods, state, why)
	}
	devices, err := w.met(a.peer)
	if err != nil {
		return time.Time{}, err
	}
	here := slices.ContainsFunc(a.word.Devices, func(d wake.Device) bool { return wol.Here(devices, d.Networks) })
	neighbours, tries := w.neighbours(a), a.tries()
	if n := len(neighbours); n > 1 { // those that say that they did, or refuse, are not the only ones that are ever asked
		from := (tries + w.refusals(a.peer.Name)*maxAsked) % n
		neighbours = slices.Concat(neighbours[from:], neighbours[:from])[:min(n, maxAsked)]
	}
	if !here && len(neighbours) == 0 {
		return now.Add(elsewhere), w.say(ctx, a, pods, v1alpha1.WakeNoWay, fmt.Sprintf("neither this laptop nor a peer that is awake is known to be on the network of %s", a.peer.Name))
	}
	before := lately(a.is.Times, now)
	a.is.Times = append(slices.Clone(before), metav1.NewTime(now))
	sent := func() error {
		return w.say(ctx, a, pods, v1alpha1.WakeSent, fmt.Sprintf("waiting for %s to wake", a.peer.Name))
	}
	if a.is.State != v1alpha1.WakeNoWay {
		err = sent()
	} else { // it may be so again: pods hear of it when it is not
		a.is.Since = &metav1.Time{Time: now}
		a.ctr, err = w.put(ctx, a.ctr, a.is)
	}
	if err != nil {
		return time.Time{}, err
	}
	w.Log.Info("wakes a peer", "peer", a.peer.Name, "byHand", byHand, "pods", len(pods), "times", len(a.is.Times), "agreed", a.most)
	type way struct {
		by  string
		own bool
		try func() error
	}
	var ways []way
	for _, n := range neighbours {
		ways = append(ways, way{n.Name, false, func() error {
			ctx, cancel := context.WithTimeout(ctx, answers)
			defer cancel()
			return w.Ask(ctx, n, canonical.Signed{Document: a.is.Document, Signature: a.is.Signature})
		}})
	}
	if here { // first, and every other time last: many a network has the same addresses as another, and one that did not come may be on that
		at := (tries % 2) * len(ways)
		ways = slices.Insert(ways, at, way{"this laptop", true, func() error { return w.send(ctx, devices, a.word) }})
	}
	maybe, refused := false, []string(nil) // a packet may have been sent
	for _, way := range ways {
		err := way.try()
		if err == nil {
			return now.Add(comes), w.done(a, sent)
		}
		if !way.own {
			problem, answered := errors.AsType[*peering.Problem](err)
			maybe = maybe || !answered || problem.Code == peering.CodeUnavailable || problem.Code == peering.CodeInternal
		}
		refused = append(refused, way.by+": "+err.Error())
	}
	if !maybe {
		a.is.Times = before
	}
	w.mu.Lock()
	w.refused[a.peer.Name]++
	w.mu.Unlock()
	a.is.Since = &metav1.Time{Time: now} // the pause begins anew
	return now.Add(w.pause(a.peer.Name)), w.say(ctx, a, pods, v1alpha1.WakeNoWay, fmt.Sprintf("nobody on the network of %s could wake it: %s", a.peer.Name, strings.Join(refused, "; ")))
}

// done says that packets were sent, where that was not said before.
func (w *Waking) done(a *asleep, sent func() error) error {
	w.mu.Lock()
	delete(w.refused, a.peer.Name)
	w.mu.Unlock()
	if a.is.State == v1alpha1.WakeSent {
		return nil
	}
	return sent()
}

// maxAsked bounds the neighbours that are asked to wake one machine, each time.
const maxAsked = 3

// neighbours are the peers that may be asked to wake a machine: those that are there, have a contract with this cluster, and are on the machine's network.
func (w *Waking) neighbours(a *asleep) (list []*v1alpha1.Peer) {
	for _, p := range w.Client.Now().Peers {
		id := p.Spec.ID
		if id == a.peer.Spec.ID || !w.inForce(p) {
			continue
		}
		there := w.Directory.Contact(p)
		if !there.Reachable() {
			continue
		}
		at := []netip.Addr{there.At.Addr().Unmap()}
		for _, e := range p.Spec.Endpoints {
			if ap, err := netip.ParseAddrPort(e); err == nil {
				at = append(at, ap.Addr().Unmap())
			}
		}
		if slices.ContainsFunc(at, a.word.On) {
			list = append(list, p)
		}
	}
	return list
}

func (w *Waking) inForce(p *v1alpha1.Peer) bool {
	now := w.Client.Now()
	return now.InForce(p.Name, v1alpha1.RoleConsumer) != nil || now.InForce(p.Name, v1alpha1.RoleProvider) != nil
}

// Wake wakes a peer by hand, whether pods wait or not; the same bounds hold. The error is an *api.Error where it is not done.
func (w *Waking) Wake(ctx context.Context, name string) (api.Waking, error) {
	if there := w.Client.Now().PeerNamed(name); there != nil && w.Directory.Contact(there).Reachable() {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: name + " is awake"}
	}
	if ctr := w.Client.Now().InForce(name, v1alpha1.RoleConsumer); record.Wake(ctr) == 0 {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: "no contract with " + name + " lets this laptop wake it", Do: "its owner grants that by `kith share --wake 3/day`, for contracts that are signed from then on"}
	}
	a, err := w.follow(ctx, name)
	if err != nil {
		return api.Waking{}, err
	}
	if a == nil {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: name + " said nothing before it was gone: it is not known to sleep, nor how it would be woken"}
	}
	if n := len(a.is.Times); a.is.State == v1alpha1.WakeSent && n > 0 && time.Since(a.is.Times[n-1].Time) < sooner {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s was woken %s ago", name, time.Since(a.is.Times[n-1].Time).Round(time.Second))}
	}
	if _, err = w.wake(ctx, a, nil, true); err != nil {
		return api.Waking{}, err
	}
	ctr := w.Client.Now().InForce(name, v1alpha1.RoleConsumer)
	if ctr == nil || ctr.Status.Wake == nil {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: "the contract with " + name + " ended"}
	}
	is := ctr.Status.Wake
	if is.State != v1alpha1.WakeSent && is.State != v1alpha1.WakeWoken {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: cmp.Or(is.Message, name+" is not woken")}
	}
	return api.Waking{Peer: name, Times: int32(Within(is.Times, time.Now())), PerDay: int32(a.most)}, nil
}

// sleepers are the peers of which a word is kept, which pods may wait for.
func (w *Waking) sleepers(context.Context) (all []ctrl.Request) {
	for _, ctr := range w.Client.Now().Contracts {
		if is := ctr.Status.Wake; is != nil && len(is.Document) > 0 && ctr.Spec.Role == v1alpha1.RoleConsumer && ledger.Live([]*v1alpha1.Contract{ctr}) != nil {
			all = append(all, ctrl.Request{NamespacedName: types.NamespacedName{Name: ctr.Spec.Peer}})
		}
	}
	return all
}

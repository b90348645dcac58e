package seeking

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// pods are those of a cluster, each with the time since which it waits.
type pods struct {
	wait map[string]time.Time
	at   map[string]string // a peer
	each int64             // processors of each
	held map[string]int    // volumes, by peer
}

// come has so many pods be made.
func (w *world) come(n int) {
	if w.pods.wait == nil {
		w.pods = pods{wait: map[string]time.Time{}, at: map[string]string{}, each: 1}
	}
	for range n {
		w.pods.wait[fmt.Sprintf("pod-%03d", len(w.pods.wait)+len(w.pods.at))] = time.Now()
	}
	w.schedule()
}

// leave has all pods end but so many at a peer.
func (w *world) leave(but int) {
	clear(w.pods.wait)
	for _, name := range slices.Sorted(maps.Keys(w.pods.at)) {
		if but--; but < 0 {
			delete(w.pods.at, name)
		}
	}
}

// used is how many processors pods at a peer request, and how many pods are there.
func (w *world) used(peer string) (cpu int64, n int) {
	for _, at := range w.pods.at {
		if at == peer {
			n++
		}
	}
	return int64(n) * w.pods.each, n
}

// schedule has pods that wait go where there is room for them.
func (w *world) schedule() {
	if len(w.pods.wait) == 0 {
		return
	}
	for _, ctr := range w.client.Now().Contracts {
		used, _ := w.used(ctr.Spec.Peer)
		for _, name := range slices.Sorted(maps.Keys(w.pods.wait)) {
			if used += w.pods.each; used > ctr.Spec.Resources.Cpu().Value() {
				break
			}
			delete(w.pods.wait, name)
			w.pods.at[name] = ctr.Spec.Peer
		}
	}
}

func (w *world) Needs(_ context.Context, places []Place) (needs []Need, waiting int, err error) {
	for _, at := range places {
		used, n := w.used(at.Peer.Name)
		granted := w.granted(at.Peer.Name)
		if granted == "" {
			granted = "2" // that is asked for first
		}
		if is := at.Grants[corev1.ResourceCPU]; is.String() != granted {
			w.t.Errorf("%s grants %s, not %s", at.Peer.Name, &is, granted)
		}
		need := Need{Pods: n, Held: w.pods.held[at.Peer.Name]}
		for _, since := range w.pods.wait {
			if used+w.pods.each > at.Most.Cpu().Value() {
				need.Beyond++
				continue
			}
			used += w.pods.each
			if need.Waits++; need.Since.IsZero() || since.Before(need.Since) {
				need.Since = since
			}
		}
		need.All = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(used, resource.DecimalSI)}
		needs = append(needs, need)
	}
	return needs, len(w.pods.wait), nil
}

// grants has a peer grant what it is asked for, and what it grants already of the rest.
func (w *world) grants(peer string, amounts corev1.ResourceList) {
	w.t.Helper()
	ctr := w.client.Now().InForce(peer, v1alpha1.RoleConsumer)
	if ctr == nil {
		w.do(w.client.Create(w.t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer},
			Spec: v1alpha1.ContractSpec{Peer: peer, Role: v1alpha1.RoleConsumer, Resources: amounts, Revision: 1}}))
		return
	}
	ctr = ctr.DeepCopy()
	maps.Copy(ctr.Spec.Resources, amounts)
	ctr.Spec.Revision++
	w.do(w.client.Update(w.t.Context(), ctr))
}

// grants tells how many processors a peer grants.
func (w *world) granted(peer string) string {
	ctr := w.client.Now().InForce(peer, v1alpha1.RoleConsumer)
	if ctr == nil {
		return ""
	}
	cpu := ctr.Spec.Resources[corev1.ResourceCPU]
	return cpu.String()
}

// grown is how a policy stands with more room at a peer.
func (w *world) grown(policy, peer string) v1alpha1.Growth {
	for _, s := range w.policy(policy).Status.Peers {
		if s.Peer == peer && s.Growth != nil {
			return *s.Growth
		}
	}
	return v1alpha1.Growth{}
}

func (w *world) told() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// growing is a policy that asks for two processors, and for more.
func growing(name string, most int32, limit string, peers ...string) *v1alpha1.PeeringPolicy {
	p := policy(name, most, peers...)
	p.Spec.Amounts = map[string]v1alpha1.Amount{"cpu": "2"}
	p.Spec.Grow = &v1alpha1.Grow{MaxAmounts: map[string]v1alpha1.Amount{"cpu": v1alpha1.Amount(limit)}}
	return p
}

func yes(string) v1alpha1.RelationState { return v1alpha1.StateContracted }

func TestMoreIsAskedForWhilePodsWaitAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		w.expect(asked{"bob", 0})
		w.told()
		w.come(5)
		w.runs(settle - time.Second)
		w.expect()
		if is := w.policy("all").Status; is.State != v1alpha1.SeekingGrowing || is.Waiting != 3 {
			t.Errorf("before it asks: %+v", is)
		}
		w.runs(2 * time.Second)
		w.expect(asked{"bob", time.Hour + settle})
		request := w.requests[1]
		if cpu := request.Resources[corev1.ResourceCPU]; cpu.String() != "5" || len(request.Resources) != 1 || request.MaxPrices["cpu"] != "0.02 EUR" {
			t.Errorf("asked for %+v", request)
		}
		if w.granted("bob") != "5" || len(w.pods.wait) != 0 || w.grown("all", "bob").Reason != v1alpha1.GrowthGranted {
			t.Errorf("granted %s, %d wait, %+v", w.granted("bob"), len(w.pods.wait), w.grown("all", "bob"))
		}
		w.says("all", v1alpha1.SeekingEnough, 1, contracted)
		if got := w.told(); !slices.Equal(got, []string{"Normal MoreAsked bob: cpu 2 → 5", "Normal MoreGranted bob: it grants 5 cpu"}) {
			t.Errorf("events %q", got)
		}

		w.leave(4) // what is used is never given back
		w.runs(giveBack - time.Minute)
		w.restart()
		w.leave(3) // and there is another change
		w.runs(giveBack - time.Minute)
		if w.granted("bob") != "5" {
			t.Errorf("granted %s while what is needed changes", w.granted("bob"))
		}
		w.runs(2 * time.Minute)
		if w.granted("bob") != "3" || w.grown("all", "bob").Reason != v1alpha1.GrowthGaveBack {
			t.Errorf("granted %s, %+v", w.granted("bob"), w.grown("all", "bob"))
		}
		w.leave(0)
		w.runs(2 * giveBack)
		if w.granted("bob") != "2" { // no less than before it grew
			t.Errorf("granted %s", w.granted("bob"))
		}
		w.asked = nil
		w.told()
		w.runs(48 * time.Hour)
		w.expect()
		if got := w.told(); len(got) > 0 {
			t.Errorf("events %q of what does not change", got)
		}
	})
}

// Pods that come and go within the time keep what they use.
func TestRoomThatIsUsedNowAndThenIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		for range 50 {
			w.come(6)
			w.runs(10 * time.Minute)
			w.leave(0)
			w.runs(10 * time.Minute)
		}
		if len(w.asked) != 2 || w.granted("bob") != "6" {
			t.Errorf("asked %v, granted %s", w.asked, w.granted("bob"))
		}
	})
}

func TestPodsThatWaitAreAskedForWithTheFirstQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "4"))
		w.answer = yes
		w.come(3)
		w.runs(time.Minute)
		w.expect(asked{"bob", 0})
		if w.granted("bob") != "3" {
			t.Errorf("granted %s", w.granted("bob"))
		}
		w.leave(0)
		w.runs(giveBack + gap)
		if w.granted("bob") != "2" {
			t.Errorf("%s is left", w.granted("bob"))
		}
	})
}

func TestNoMoreIsAskedForThanTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "4"))
		w.answer = yes
		w.runs(time.Hour)
		w.come(10)
		w.runs(time.Hour)
		w.expect(asked{"bob", 0}, asked{"bob", time.Hour + settle})
		if is := w.policy("all").Status; w.granted("bob") != "4" || is.State != v1alpha1.SeekingFull || is.Waiting != 6 {
			t.Errorf("granted %s, %+v", w.granted("bob"), is)
		}
		w.leave(0)
		w.runs(time.Hour)
		w.pods.each = 5 // which would not fit if all were granted
		w.come(1)
		w.asked = nil
		w.runs(24 * time.Hour)
		w.expect()
		w.edits("all", func(s *v1alpha1.PeeringPolicySpec) { s.Grow = nil })
		w.pods.each = 1
		w.come(5)
		w.runs(24 * time.Hour)
		w.expect()
		w.says("all", v1alpha1.SeekingEnough, 1, contracted)
		w.edits("all", func(s *v1alpha1.PeeringPolicySpec) {
			s.Grow = &v1alpha1.Grow{MaxAmounts: map[string]v1alpha1.Amount{"cpu": "0"}}
		})
		w.runs(time.Hour)
		w.says("all", v1alpha1.SeekingInvalid, 1, contracted)
	})
}

// Two hundred pods wait at fifty peers that say no to everything: what is asked in a day is bounded by the peers, not by the pods. Of what is decided
// alone, since fifty peers are too many for a client in memory that writes all of them as JSON.
func TestQuestionsForMoreAreBounded(t *testing.T) {
	p, begin := growing("all", 50, "64"), time.Now()
	known, seeker := &ledger.Snapshot{}, &Seeker{}
	two, all := resource.MustParse("2"), corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
	for i := range 50 {
		peer := accepted(fmt.Sprintf("peer-%02d", i))
		peer.Spec.Request = &v1alpha1.ResourceRequest{}
		record.Step(&peer.Status.Outgoing, peering.EventAsked, "")
		record.Step(&peer.Status.Outgoing, peering.EventSigned, "")
		known.Peers = append(known.Peers, peer)
		known.Contracts = append(known.Contracts, &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Peer: peer.Name, Role: v1alpha1.RoleConsumer,
			Resources: corev1.ResourceList{corev1.ResourceCPU: two}}})
	}
	r := &room{amounts: corev1.ResourceList{corev1.ResourceCPU: two}, limits: all, after: giveBack, waiting: 200}
	counts, last := map[string]int{}, time.Time{}
	for now := begin; now.Before(begin.Add(24 * time.Hour)); {
		var selected []facts
		for _, peer := range known.Peers {
			f := observe(known, peer, presence.Presence{State: presence.Reachable})
			f.need = Need{Pods: 2, Waits: 62, Beyond: 138, Since: begin, All: all} // of each a processor
			selected = append(selected, f)
		}
		plan := decide(p, selected, r, now, seeker.next(known, now))
		p.Status = plan.status
		if plan.ask == nil {
			if plan.again <= 0 {
				t.Fatalf("nothing is looked at again: %+v", plan.status)
			}
			now = now.Add(plan.again)
			continue
		}
		if now.Sub(last) < gap {
			t.Errorf("%s is asked %s after the last question", plan.ask.Name, now.Sub(last))
		}
		counts[plan.ask.Name]++
		last, seeker.last = now, now
		plan.ask.Spec.Request = &v1alpha1.ResourceRequest{Resources: plan.amounts, Attempt: plan.attempt}
		plan.ask.Status.Outgoing.Attempt = plan.attempt
		record.Step(&plan.ask.Status.Outgoing, peering.EventDeclined, "not today")
	}
	sum := 0
	for peer, n := range counts {
		if sum += n; n > 8 { // at once, after 10 minutes, after 20, ... and 640
			t.Errorf("%s was asked %d times in a day", peer, n)
		}
	}
	if len(counts) != 50 || sum > 400 {
		t.Errorf("%d questions to %d peers in a day", sum, len(counts))
	}
	if p.Status.State != v1alpha1.SeekingFull || p.Status.Waiting != 200 || !strings.Contains(p.Status.Message, "nobody is asked before") {
		t.Errorf("%+v", p.Status)
	}
	t.Logf("%d questions in a day", sum)
}

// The same of the whole, of which a process is started anew each half an hour.
func TestWhoGrantsNoMoreIsAskedLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), accepted("carol"), growing("all", 2, "64"))
		w.answer = yes
		w.runs(time.Hour)
		w.come(200)
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
		w.asked = nil
		for range 48 {
			w.runs(30 * time.Minute)
			w.restart()
		}
		if n := len(w.asked); n != 16 {
			t.Errorf("%d questions in a day: %v", n, w.asked)
		}
		if g := w.grown("all", "carol"); g.Reason != v1alpha1.GrowthNotGranted || g.Message != "not today" || g.Until == nil || g.Tries != 8 {
			t.Errorf("%+v", g)
		}
		w.says("all", v1alpha1.SeekingFull, 2, contracted, contracted)
	})
}

// A peer that lowers what it grants is not asked for that while it does, nor at once when it has.
func TestWhoLowersIsNotAskedForMoreAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		w.come(5)
		w.runs(time.Minute)
		if w.granted("bob") != "5" {
			t.Fatalf("granted %s", w.granted("bob"))
		}
		w.asked = nil
		lower := func(change func(*v1alpha1.Contract)) {
			ctr := w.client.Now().InForce("bob", v1alpha1.RoleConsumer).DeepCopy()
			change(ctr)
			w.do(w.client.Update(t.Context(), ctr))
			change(ctr) // of the status, that was passed over
			w.do(w.client.Status().Update(t.Context(), ctr))
		}
		one := corev1.ResourceList{"cpu": resource.MustParse("1")}
		lower(func(ctr *v1alpha1.Contract) {
			ctr.Status.Lowering = &v1alpha1.Lowering{Resources: one, From: metav1.NewTime(time.Now().Add(time.Hour))}
		})
		w.come(2)
		w.runs(time.Hour)
		w.expect()
		if g := w.grown("all", "bob"); g.Reason != v1alpha1.GrowthNotGranted || !strings.HasPrefix(g.Message, "it lowers what it grants: cpu 5 → 1") {
			t.Errorf("%+v", g)
		}
		w.restart()
		w.leave(1)
		lower(func(ctr *v1alpha1.Contract) { ctr.Spec.Resources, ctr.Status.Lowering = one, nil })
		w.come(4)
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
		w.runs(first - time.Minute)
		w.expect()
		w.runs(5 * time.Minute)
		if len(w.asked) != 1 {
			t.Errorf("asked %v", w.asked)
		}
		w.runs(first - 5*time.Minute)
		if len(w.asked) != 1 {
			t.Errorf("and again: %v", w.asked)
		}
	})
}

func TestAnotherPeerIsAskedWhenOneGivesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := growing("all", 1, "2")
		two := int32(2)
		p.Spec.Grow.MaxPeers = &two
		w := newWorld(t, accepted("bob"), accepted("carol"), accepted("dave"), p)
		w.answer = yes
		w.runs(time.Hour)
		w.come(6)
		w.runs(time.Hour)
		w.expect(asked{"bob", 0}, asked{"carol", time.Hour + settle})
		w.says("all", v1alpha1.SeekingFull, 2, contracted, contracted, next)
		w.leave(3)
		w.runs(2 * time.Hour)
		w.says("all", v1alpha1.SeekingEnough, 2, contracted, contracted, next) // something runs at carol's
		w.leave(2)
		w.runs(giveBack + time.Minute)
		if w.granted("carol") != "" || w.granted("bob") != "2" {
			t.Errorf("carol grants %q, bob %q", w.granted("carol"), w.granted("bob"))
		}
		w.says("all", v1alpha1.SeekingEnough, 1, contracted, v1alpha1.SoughtEnded, next)
	})
}

// A contract is not ended while volumes are at the peer, though nothing runs there: what is beyond the base alone is given back.
func TestAContractStaysForItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := growing("all", 1, "4")
		two := int32(2)
		p.Spec.Grow.MaxPeers = &two
		w := newWorld(t, accepted("bob"), accepted("carol"), p)
		w.answer = yes
		w.runs(time.Hour)
		w.come(8)
		w.runs(time.Hour)
		if w.granted("carol") != "4" {
			t.Fatalf("carol grants %q", w.granted("carol"))
		}
		w.pods.held = map[string]int{"carol": 2}
		w.leave(0)
		w.told()
		w.runs(48 * time.Hour)
		if g := w.grown("all", "carol"); w.granted("carol") != "2" || g.Reason != v1alpha1.GrowthHeld || !strings.Contains(g.Message, "2 volumes") {
			t.Fatalf("carol grants %q, %+v", w.granted("carol"), g)
		}
		said := 0
		for _, e := range w.told() {
			if strings.Contains(e, string(v1alpha1.GrowthHeld)) {
				said++
			}
		}
		if said != 1 {
			t.Errorf("it is said %d times", said)
		}
		// Who runs there again is said to be granted what is; nothing is asked for.
		w.asked = nil
		w.come(4)
		w.runs(giveBack)
		if g := w.grown("all", "carol"); w.granted("carol") != "2" || g.Reason != v1alpha1.GrowthGranted {
			t.Errorf("carol grants %q, %+v", w.granted("carol"), g)
		}
		w.expect()
		w.leave(0)
		w.runs(2 * giveBack)
		w.pods.held["carol"] = 0
		w.runs(2 * giveBack)
		if w.granted("carol") != "" {
			t.Errorf("carol grants %q without volumes", w.granted("carol"))
		}
	})
}

// Storage is no pod's request: that pods need none of it does not say that it is not used.
func TestStorageIsNotGivenBack(t *testing.T) {
	list := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{"storage": resource.MustParse(amount), "fast.storageclass.storage.k8s.io/requests.storage": resource.MustParse(amount)}
	}
	if left := less(&v1alpha1.Growth{Base: list("1Gi")}, list("5Gi"), Need{}); len(left) > 0 {
		t.Errorf("all but %v is given back", left)
	}
}

// What somebody else asked for since is not given back.
func TestWhatTheOwnerAskedForIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		w.come(4)
		w.runs(time.Minute)
		peer := w.client.Now().PeerNamed("bob").DeepCopy()
		peer.Spec.Request = &v1alpha1.ResourceRequest{Resources: corev1.ResourceList{"cpu": resource.MustParse("6")}, Attempt: time.Now().UnixMilli()}
		w.do(w.client.Update(t.Context(), peer))
		w.runs(time.Minute)
		w.leave(0)
		w.runs(24 * time.Hour)
		if w.granted("bob") != "6" {
			t.Errorf("%s is left", w.granted("bob"))
		}
	})
}

// Two policies know nothing of each other: each gives back what it asked for, as long as nobody asked for something else since.
func TestOfTwoPoliciesTheLastGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("first", 1, "8"), growing("second", 1, "8"))
		w.answer = yes
		w.edits("second", func(s *v1alpha1.PeeringPolicySpec) { s.Paused = true })
		w.runs(time.Hour)
		w.come(5)
		w.runs(time.Hour)
		for name, paused := range map[string]bool{"first": true, "second": false} {
			w.edits(name, func(s *v1alpha1.PeeringPolicySpec) { s.Paused = paused })
		}
		w.come(2)
		w.runs(time.Hour)
		if w.granted("bob") != "7" {
			t.Fatalf("granted %s", w.granted("bob"))
		}
		w.edits("first", func(s *v1alpha1.PeeringPolicySpec) { s.Paused = false })
		w.leave(0)
		w.runs(24 * time.Hour)
		if w.granted("bob") != "5" {
			t.Errorf("%s is left", w.granted("bob"))
		}
	})
}

// A process that ends between what it writes and what it asks knows of what had grown before, and gives that back.
func TestWhatGrewIsGivenBackThoughAQuestionWasLost(t *testing.T) {
	for name, change := range map[string]func(*world){
		"more": func(w *world) { w.come(2) },
		"less": func(w *world) { w.leave(3); w.runs(giveBack) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
				w.answer = yes
				w.runs(time.Hour)
				w.come(5)
				w.runs(time.Hour)
				if w.granted("bob") != "5" {
					t.Fatalf("granted %s", w.granted("bob"))
				}
				asks := len(w.asked)
				w.cut = true
				change(w)
				w.runs(gap)
				if g := w.grown("all", "bob"); !pending(&g) || len(w.asked) != asks {
					t.Fatalf("nothing was lost: %+v", g)
				}
				w.cut = false
				w.restart()
				w.runs(time.Second)
				if g := w.grown("all", "bob"); g.Base == nil {
					t.Errorf("it is forgotten what was granted before: %+v", g)
				}
				w.leave(0)
				w.runs(3 * giveBack)
				if w.granted("bob") != "2" {
					t.Errorf("%s is left, %+v", w.granted("bob"), w.grown("all", "bob"))
				}
			})
		})
	}
}

// A question for more that nobody answers is taken back, and the contract stays.
func TestAQuestionForMoreThatIsLostIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateRequested }
		w.come(4)
		w.runs(time.Minute)
		w.restart()
		w.runs(unanswered / 2)
		w.expect(asked{"bob", 0}, asked{"bob", time.Hour + settle})
		if w.grown("all", "bob").Reason != v1alpha1.GrowthAsked {
			t.Errorf("%+v", w.grown("all", "bob"))
		}
		w.runs(unanswered/2 + time.Minute)
		if g := w.grown("all", "bob"); g.Reason != v1alpha1.GrowthNotGranted || g.Tries == 0 || w.granted("bob") != "2" {
			t.Errorf("%+v, granted %s", g, w.granted("bob"))
		}
		// One that was not put yet, to who went away at that moment.
		w.answer = yes
		w.goes("bob")
		peer := w.client.Now().PeerNamed("bob")
		if peer.Status.Outgoing.RequestID != "" {
			t.Errorf("a question is out: %+v", peer.Status.Outgoing)
		}
		w.runs(24 * time.Hour)
		w.comes("bob")
		w.runs(time.Minute)
		if w.granted("bob") != "4" {
			t.Errorf("granted %s", w.granted("bob"))
		}
		w.do(w.client.Delete(t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}))
		w.status(w.client.Now().PeerNamed("bob"), func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventEnded, "bob ended the contract") })
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
		w.runs(time.Minute)
		if g := w.grown("all", "bob"); g.Reason != "" {
			t.Errorf("of a contract that ended it is said %+v", g)
		}
	})
}

// A question for less that nobody answers is taken back as soon as pods need what it would give back, and they are asked for then.
func TestAQuestionForLessGivesWay(t *testing.T) {
	for name, tt := range map[string]struct {
		pods    int
		granted string
	}{
		"pods wait":                         {8, "8"},
		"pods came that need what there is": {5, "5"},
		"pods came that need some of it":    {3, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
				w.answer = yes
				w.runs(time.Hour)
				w.come(5)
				w.runs(time.Hour)
				w.leave(0)
				w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateRequested }
				w.runs(giveBack + gap)
				if g := w.grown("all", "bob"); g.Reason != v1alpha1.GrowthGivingBack {
					t.Fatalf("nothing is given back: %+v", g)
				}
				w.answer = yes
				w.come(tt.pods)
				w.runs(time.Minute)
				g, peer := w.grown("all", "bob"), w.client.Now().PeerNamed("bob")
				if w.granted("bob") != tt.granted || g.Reason != v1alpha1.GrowthGranted || peer.Status.Outgoing.RequestID != "" {
					t.Errorf("granted %s, %+v, question %q", w.granted("bob"), g, peer.Status.Outgoing.RequestID)
				}
				w.leave(0) // and all of it is given back later
				w.runs(2 * giveBack)
				if w.granted("bob") != "2" {
					t.Errorf("%s is left", w.granted("bob"))
				}
			})
		})
	}
}

// Whom a question for less is in the way of, and whom not.
func TestWhatAQuestionForLessIsInTheWayOf(t *testing.T) {
	cpu := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	with := func(granted, asked, needs int64, waits int) facts {
		f := facts{peer: &v1alpha1.Peer{}, there: presence.Presence{State: presence.Reachable}, contract: true, need: Need{Waits: waits, All: cpu(needs)}}
		f.peer.Spec.Request = &v1alpha1.ResourceRequest{Resources: cpu(asked), Attempt: 7}
		f.ctr = &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Resources: cpu(granted)}}
		return f
	}
	out := with(5, 2, 1, 0)
	out.asking = true
	none := facts{peer: &v1alpha1.Peer{}, there: out.there, need: Need{Waits: 1, All: cpu(1)}}
	later := metav1.Now()
	paused := &v1alpha1.Growth{Attempt: 7, Until: &later}
	for name, tt := range map[string]struct {
		other facts
		was   v1alpha1.SoughtPeer
		most  int
		want  bool
	}{
		"nobody":                          {with(2, 2, 2, 0), v1alpha1.SoughtPeer{}, 2, false},
		"a peer that may be asked":        {with(2, 2, 3, 1), v1alpha1.SoughtPeer{}, 2, true},
		"one that grants all it may":      {with(8, 8, 9, 1), v1alpha1.SoughtPeer{}, 2, false},
		"one that said no to more":        {with(2, 4, 3, 1), v1alpha1.SoughtPeer{Growth: paused}, 2, false},
		"one that said no to less":        {with(4, 2, 5, 1), v1alpha1.SoughtPeer{Growth: paused}, 2, true},
		"one without a contract":          {none, v1alpha1.SoughtPeer{}, 3, true},
		"one too many":                    {none, v1alpha1.SoughtPeer{}, 2, false},
		"one that is not to be asked yet": {none, v1alpha1.SoughtPeer{Until: &later}, 3, false},
	} {
		p := plan{}
		p.status.Peers = []v1alpha1.SoughtPeer{{Growth: &v1alpha1.Growth{Reason: v1alpha1.GrowthGivingBack, Base: cpu(2), Attempt: 7}}, tt.was}
		if got := p.hinders(&room{limits: cpu(8)}, []facts{out, tt.other}, 0, 2, tt.most); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	p := plan{status: v1alpha1.PeeringPolicyStatus{Peers: []v1alpha1.SoughtPeer{{}}}}
	less := with(2, 2, 1, 0)
	less.asking = true
	if !p.hinders(&room{limits: cpu(8)}, []facts{less}, 0, 1, 1) {
		t.Error("it is asked for what it gave back by itself")
	}
}

// Who does not want to take back what he granted is asked for that later and later, and for more at once.
func TestANoToLessIsNoneToMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), growing("all", 1, "8"))
		w.answer = yes
		w.runs(time.Hour)
		w.come(5)
		w.runs(time.Hour)
		w.leave(0)
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
		w.asked = nil
		w.runs(24 * time.Hour)
		if n := len(w.asked); n < 3 || n > 8 {
			t.Errorf("it is asked for less %d times in a day", n)
		}
		if g := w.grown("all", "bob"); g.Until == nil || time.Until(g.Until.Time) < time.Hour {
			t.Fatalf("nothing pauses: %+v", g)
		}
		w.answer = yes
		w.come(7)
		w.runs(time.Minute)
		if w.granted("bob") != "7" {
			t.Errorf("granted %s, %+v", w.granted("bob"), w.grown("all", "bob"))
		}
	})
}

func TestWhichPodsMatter(t *testing.T) {
	waits := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	gated := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}}
	for name, tt := range map[string]struct {
		node   string
		status corev1.PodStatus
		want   bool
	}{
		"just made":             {"", corev1.PodStatus{Phase: corev1.PodPending}, false},
		"gated":                 {"", gated, false},
		"found no node":         {"", waits, true},
		"at home":               {"alice", corev1.PodStatus{Phase: corev1.PodRunning}, false},
		"at a peer":             {"kith-bob", corev1.PodStatus{Phase: corev1.PodRunning}, true},
		"done at a peer":        {"kith-bob", corev1.PodStatus{Phase: corev1.PodSucceeded}, false},
		"found none, and ended": {"", corev1.PodStatus{Phase: corev1.PodFailed, Conditions: waits.Conditions}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: tt.node}, Status: tt.status}
		if got := bears(pod) != (bearing{}); got != tt.want {
			t.Errorf("%s: matters is %v", name, got)
		}
	}
}

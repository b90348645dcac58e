package consumer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// pair is alice, who consumes, and bob, who provides, with a contract between them.
type pair struct {
	bob              *bob
	alice            *identity.Identity
	caller           peering.Caller
	r                *Consumer
	client           *ledger.Ledger // alice's
	arrives, returns func() bool    // what alice sends, and what bob answers
	sent             int
}

// newPair signs a contract under bob's policy, for so long as it says.
func newPair(t *testing.T, policy *v1alpha1.SharingPolicy) *pair {
	t.Helper()
	time.Sleep(24 * time.Hour) // in a bubble: the clock of a bubble begins with the year 2000, and contracts begin a little earlier
	alice := load(t)
	w := &pair{bob: newBob(t, policy), alice: alice, caller: peering.Caller{ID: alice.ID()}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	peer := acceptedPeer("bob", w.bob.me.ID())
	peer.Spec.Request = &v1alpha1.ResourceRequest{}
	peer.Status.Outgoing.State = v1alpha1.StateConnected
	w.client = ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(peer).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}).Build())
	w.r = New(Config{Client: w.client, Identity: alice, Name: "alice", Announce: func(api.Event) {}, Log: slog.New(slog.DiscardHandler)})
	w.r.countersigned = func(ctx context.Context, _ *v1alpha1.Peer, doc *contract.Document) (contract.Signed, error) {
		for first := doc.Revision; ; doc.Revision++ { // as signWith
			if w.arrives != nil && !w.arrives() {
				return contract.Signed{}, errors.New("connection refused")
			}
			signed, err := w.sign(ctx, t, *doc)
			if err == nil && w.returns != nil && !w.returns() {
				return contract.Signed{}, errors.New("connection reset")
			}
			if !errors.Is(err, &peering.Problem{Code: peering.CodeConflict}) || doc.Revision == first+answersLost {
				return signed, err
			}
		}
	}
	name, _, err := w.bob.Ask(t.Context(), w.caller, peering.Question{Name: "alice", Attempt: 1}, "123456", false)
	if err != nil {
		t.Fatal(err)
	}
	request := w.bob.requests(t)[0]
	w.bob.accepts(t, &request)
	outcome, err := w.bob.Outcome(t.Context(), w.caller, name)
	if err != nil || outcome.Offer == nil {
		t.Fatalf("%+v, %v", outcome, err)
	}
	doc := record.NewDocument(alice, "alice", contract.Party{ID: w.bob.me.ID(), Name: "bob", Key: w.bob.me.Public()}, outcome.Offer.Terms, time.Duration(outcome.Offer.ValidFor)*time.Second)
	signed, err := w.sign(t.Context(), t, doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.r.record(t.Context(), w.peer(t), nil, signed, doc, &corev1.ResourceList{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *pair) sign(ctx context.Context, t *testing.T, doc contract.Document) (contract.Signed, error) {
	t.Helper()
	w.sent++
	s, err := contract.New(doc)
	if err := errors.Join(err, s.SignAs(contract.Consumer, w.alice)); err != nil {
		t.Fatal(err)
	}
	return w.bob.Sign(ctx, w.caller, s)
}

func (w *pair) peer(t *testing.T) *v1alpha1.Peer {
	t.Helper()
	var peer v1alpha1.Peer
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "bob"}, &peer); err != nil {
		t.Fatal(err)
	}
	return &peer
}

// kept is the contract of one side.
func kept(t *testing.T, c client.Client) *v1alpha1.Contract {
	t.Helper()
	var list v1alpha1.ContractList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d contracts, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

// holds has the consumer do its work for so long, and fails when there is a moment in which the contract is over anywhere. It
// gives the number of revisions.
func (w *pair) holds(t *testing.T, long time.Duration) (revisions int64) {
	t.Helper()
	began := kept(t, w.bob.client).Spec.Revision
	for end := time.Now().Add(long); time.Now().Before(end); {
		for side, c := range map[string]client.Client{"alice": w.client, "bob": w.bob.client} {
			if ctr := kept(t, c); !time.Now().Before(ctr.Spec.NotAfter.Time) {
				t.Fatalf("revision %d ran out at %s at %s", ctr.Spec.Revision, ctr.Spec.NotAfter, side)
			}
		}
		again, err := w.r.revise(t.Context(), w.peer(t), kept(t, w.client))
		if err != nil {
			t.Fatal(err)
		}
		if n := kept(t, w.bob.client).Spec.Revision - began; n > 1000 {
			t.Fatalf("%d revisions", n)
		}
		time.Sleep(max(again, 10*time.Millisecond)) // zero: the event of its own write brings it back at once
	}
	return kept(t, w.bob.client).Spec.Revision - began
}

func running(d time.Duration) *v1alpha1.SharingPolicy {
	policy := sharing.Default(50)
	policy.Spec.ContractValidity = &metav1.Duration{Duration: d}
	return policy
}

func TestTheShortestContractHolds(t *testing.T) {
	for name, policy := range map[string]*v1alpha1.SharingPolicy{
		"the shortest allowed": running(sharing.MinValidity),
		"one minute, of old":   running(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPair(t, policy)
				sent := w.sent
				revisions := w.holds(t, 12*time.Hour)
				if revisions < 12 || revisions > 24 {
					t.Errorf("%d revisions in twelve hours", revisions)
				}
				if n := w.sent - sent; int64(n) != revisions {
					t.Errorf("%d documents were sent for %d revisions", n, revisions)
				}
			})
		})
	}
}

// The other owner may take longer to answer a question for more than what is in force has left, and so may this one to confirm.
func TestAQuestionThatWaitsKeepsNoContractFromItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPair(t, running(sharing.MinValidity))
		peer := w.peer(t)
		peer.Status.Outgoing.RequestID, peer.Status.Outgoing.Code = "more", "069210"
		if err := w.client.Status().Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		w.r.waiting["bob"] = &waiter{request: "more", cancel: func() {}}
		if n := w.holds(t, 4*time.Hour); n < 4 {
			t.Errorf("%d revisions", n)
		}
		if out := w.peer(t).Status.Outgoing; out.RequestID != "more" || out.Code != "069210" {
			t.Errorf("the question is gone: %+v", out)
		}
		if w.r.waiting["bob"] == nil {
			t.Error("nobody waits for its answer any more")
		}
	})
}

// What the provider's owner accepted meanwhile, other amounts, is not what a renewal is about: it neither takes them up nor has
// to fit them.
func TestARenewalLeavesWhatWasAcceptedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPair(t, running(sharing.MinValidity))
		old, err := contract.Parse(kept(t, w.bob.client).Spec.Document)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Minute)
		if _, _, err := w.bob.Ask(t.Context(), w.caller, peering.Question{Name: "alice", Resources: map[string]string{"cpu": "1"}, Attempt: 2}, "123456", false); err != nil {
			t.Fatal(err)
		}
		request := w.bob.requests(t)[0]
		w.bob.accepts(t, &request)
		if _, err := w.sign(t.Context(), t, record.Renewed(old, time.Now(), sharing.MinValidity)); err != nil {
			t.Error(err)
		}
		if n := len(w.bob.requests(t)); n != 1 {
			t.Fatalf("%d requests, want the one that was accepted", n)
		}
		less := record.Renewed(old, time.Now(), sharing.MinValidity)
		less.Revision, less.Resources = 3, maps.Clone(old.Resources)
		less.Resources["cpu"] = "1"
		if _, err := w.sign(t.Context(), t, less); err != nil {
			t.Error(err)
		}
		if n := len(w.bob.requests(t)); n != 0 || kept(t, w.bob.client).Spec.Revision != 3 {
			t.Errorf("%d requests, revision %d", n, kept(t, w.bob.client).Spec.Revision)
		}
	})
}

func TestALongContractIsRenewedSeldom(t *testing.T) {
	for _, validity := range []time.Duration{30 * 24 * time.Hour, sharing.MaxValidity} {
		synctest.Test(t, func(t *testing.T) {
			if n := newPair(t, running(validity)).holds(t, 90*24*time.Hour); n < 3 || n > 6 {
				t.Errorf("%d revisions in a quarter of a year", n)
			}
		})
	}
}

// Answers get lost, the provider is away for a while, or does not want to at first.
func TestAContractHoldsThroughTroubleWithItsRenewal(t *testing.T) {
	n, dice := 0, rand.New(rand.NewPCG(1, 2))
	everySecond := func() bool { n++; return n%2 == 0 }
	oneOfFour := func() bool { return dice.IntN(4) == 0 }
	for name, trouble := range map[string]func(w *pair){
		"every second answer is lost":                func(w *pair) { w.returns = everySecond },
		"half of all does not arrive":                func(w *pair) { w.arrives = func() bool { return dice.IntN(2) == 0 } },
		"away for five minutes of ten":               func(w *pair) { w.arrives = func() bool { return time.Now().Minute()/5%2 == 0 } },
		"long contracts, three of four answers lost": func(w *pair) { w.returns = oneOfFour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := sharing.MinValidity
				if strings.HasPrefix(name, "long") {
					runs = 7 * 24 * time.Hour
				}
				w := newPair(t, running(runs))
				trouble(w)
				if n := w.holds(t, 8*runs); n > 8*2 {
					t.Errorf("%d revisions", n) // a lost answer is asked for again, not another revision
				}
			})
		})
	}
}

// "off" accepts nothing new while contracts in force stay, and a shorter time counts from the next revision on.
func TestAContractOutlivesChangesOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPair(t, running(48*time.Hour))
		change := func(f func(*v1alpha1.SharingPolicySpec)) {
			var policy v1alpha1.SharingPolicy
			if err := w.bob.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
				t.Fatal(err)
			}
			f(&policy.Spec)
			if err := w.bob.client.Update(t.Context(), &policy); err != nil {
				t.Fatal(err)
			}
		}
		change(func(s *v1alpha1.SharingPolicySpec) { s.Paused = true })
		w.holds(t, 24*time.Hour)
		change(func(s *v1alpha1.SharingPolicySpec) { s.ContractValidity = &metav1.Duration{Duration: 2 * time.Hour} })
		w.holds(t, 24*time.Hour)
		if left := time.Until(kept(t, w.bob.client).Spec.NotAfter.Time); left > 2*time.Hour {
			t.Errorf("the contract runs for %s more, and the policy says two hours", left)
		}
		change(func(s *v1alpha1.SharingPolicySpec) { s.ContractValidity = nil })
		w.holds(t, 24*time.Hour) // an old time, shorter than offered, is renewed as often as it needs
	})
}

func TestAConsumerThatRenewsInALoopIsRefusedWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPair(t, running(sharing.MinValidity))
		renewals := func(n int, step time.Duration, shorter time.Duration) (signed int) {
			for range n {
				time.Sleep(step)
				doc, err := contract.Parse(kept(t, w.bob.client).Spec.Document)
				if err != nil {
					t.Fatal(err)
				}
				doc = record.Renewed(doc, time.Now(), sharing.MinValidity-shorter)
				doc.Created = doc.Created.Add(-20 * time.Hour) // whatever it writes there
				_, err = w.sign(t.Context(), t, doc)
				if err == nil {
					signed++
				} else if !errors.Is(err, &peering.Problem{Code: peering.CodeRateLimited}) {
					t.Fatal(err)
				}
			}
			return signed
		}
		before := w.bob.writes.Load()
		if n := renewals(50, 0, 0); n != 0 || w.bob.writes.Load() != before {
			t.Errorf("%d of 50 renewals were signed at once, %d writes", n, w.bob.writes.Load()-before)
		}
		if n := renewals(120, 30*time.Second, 59*time.Minute); n > record.RenewalPause {
			t.Errorf("%d renewals were signed in an hour", n)
		}
	})
}

// Two clocks may be clockSkew apart, the answer to the first try may be lost: there is still time for two tries.
func TestThereIsTimeToRenewTheShortestContract(t *testing.T) {
	alice, bob := load(t), load(t)
	doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}, contract.Terms{PodSecurity: contract.Baseline}, sharing.MinValidity)
	runs := record.RunsFor(doc)
	if runs != sharing.MinValidity {
		t.Fatalf("it runs %s", runs)
	}
	overThere := doc.NotAfter.Add(-record.ClockSkew)
	mayAgain := firstTry(doc, 0).Add(runs / record.RenewalPause)
	if left := overThere.Sub(mayAgain); left < 2*nextTry(doc, 100, 0) {
		t.Errorf("%s are left for trying, and it is tried every %s", left, nextTry(doc, 100, 0))
	}
}

func TestTriesAreSpaced(t *testing.T) {
	alice, bob := load(t), load(t)
	for _, validity := range []time.Duration{sharing.MinValidity, 30 * 24 * time.Hour} {
		doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}, contract.Terms{PodSecurity: contract.Baseline}, validity)
		for tries := range 100 {
			late, early := nextTry(doc, tries, 0), nextTry(doc, tries, 1)
			if early < retryFirst/2 || early != late-late/2 || late > max(validity/renewalRetry, retryFirst) || late > retryMax {
				t.Errorf("%s: after %d tries from %s to %s", validity, tries, early, late)
			}
		}
	}
}

func TestAnOfferThatCannotBeRenewedIsNotSigned(t *testing.T) {
	for validFor, short := range map[int64]bool{1: true, 60: true, 3599: true, 3600: false, 1 << 30: false} {
		if err := tooShort(&peering.Offer{ValidFor: validFor}); (err != nil) != short {
			t.Errorf("for %d s: %v", validFor, err)
		}
	}
}

// A contract's ID is its consumer's choice, and what is kept here by it is its consumer's alone.
func TestTheIDOfAnothersContractIsRefused(t *testing.T) {
	synctest.Test(t, theIDOfAnothersContractIsRefused)
}

func theIDOfAnothersContractIsRefused(t *testing.T) {
	w := newPair(t, sharing.Default(25))
	mallory := load(t)
	caller := peering.Caller{ID: mallory.ID()}
	var policy v1alpha1.SharingPolicy // so that there is something for her
	err := w.bob.client.Get(t.Context(), client.ObjectKey{Name: api.DefaultPolicy}, &policy)
	policy.Spec.Amounts = sharing.Default(50).Spec.Amounts
	if err := errors.Join(err, w.bob.client.Update(t.Context(), &policy)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.bob.Ask(t.Context(), caller, peering.Question{Name: "mallory", Attempt: 1}, "123456", false); err != nil {
		t.Fatal(err)
	}
	request := w.bob.requests(t)[0]
	w.bob.accepts(t, &request)
	doc := record.NewDocument(mallory, "mallory", contract.Party{ID: w.bob.me.ID(), Name: "bob", Key: w.bob.me.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1", "memory": "1Gi", "pods": "1"}, PodSecurity: contract.Baseline}, time.Hour)
	doc.ID = kept(t, w.bob.client).Spec.ID
	s, err := contract.New(doc)
	if err := errors.Join(err, s.SignAs(contract.Consumer, mallory)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bob.Sign(t.Context(), caller, s); !errors.Is(err, &peering.Problem{Code: peering.CodeConflict}) {
		t.Errorf("signed: %v", err)
	}
}

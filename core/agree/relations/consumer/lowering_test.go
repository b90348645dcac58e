package consumer

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// lowered is a pair whose provider may lower the contract.
type lowered struct {
	*pair
	deaf, cut bool // alice does not hear of lowerings; she does not reach bob at all
	mute      bool // she does not sign, and does nothing else
	events    []api.Event
}

func newLowered(t *testing.T, notice, runs time.Duration) *lowered {
	t.Helper()
	policy := running(runs)
	if notice != 0 {
		policy.Spec.Notice = &metav1.Duration{Duration: notice}
	}
	w := &lowered{pair: newPair(t, policy)}
	w.r.Announce = func(e api.Event) { w.events = append(w.events, e) }
	w.r.books = func(ctx context.Context, _ *v1alpha1.Peer) ([]peering.ContractRef, error) {
		if w.cut {
			return nil, errors.New("no route to host")
		}
		return w.bob.Contracts(ctx, w.caller)
	}
	w.r.signedOnce = func(ctx context.Context, _ *v1alpha1.Peer, doc contract.Document) (contract.Signed, error) {
		signed, err := w.sign(ctx, t, doc)
		if err == nil && w.returns != nil && !w.returns() {
			return contract.Signed{}, errors.New("connection reset")
		}
		return signed, err
	}
	w.arrives = func() bool { return !w.cut }
	return w
}

// shares has bob's owner share something else.
func (w *lowered) shares(t *testing.T, change func(*v1alpha1.SharingPolicySpec)) {
	t.Helper()
	var policy v1alpha1.SharingPolicy
	if err := w.bob.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
		t.Fatal(err)
	}
	change(&policy.Spec)
	if err := w.bob.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
}

func cpu(amount v1alpha1.Amount) func(*v1alpha1.SharingPolicySpec) {
	return func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = amount }
}

// goesOn has both do their work for so long.
func (w *lowered) goesOn(t *testing.T, long time.Duration) {
	t.Helper()
	step, end := max(time.Second, long/60), time.Now().Add(long)
	for ; time.Now().Before(end); time.Sleep(min(step, time.Until(end))) {
		now := w.bob.client.Now()
		if err := w.bob.Incoming(t.Context(), now.Peer(w.caller.ID.String()), presence.Presence{State: presence.Reachable}, now.Contracts, nil); err != nil {
			t.Fatal(err)
		}
		if w.cut || w.mute {
			continue
		}
		if !w.deaf {
			refs, err := w.bob.Contracts(t.Context(), w.caller)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.r.Told(t.Context(), w.peer(t), kept(t, w.client), refs[0]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.r.revise(t.Context(), w.peer(t), kept(t, w.client)); err != nil {
			t.Fatal(err)
		}
	}
}

// are checks what both have signed, and what is granted there now.
func (w *lowered) are(t *testing.T, when string, revision int64, signed, granted string) {
	t.Helper()
	alice, bob := kept(t, w.client), kept(t, w.bob.client)
	has, grants := cores(alice.Spec.Resources), cores(bob.Grants(time.Now()))
	if !bytes.Equal(alice.Spec.Document, bob.Spec.Document) || alice.Spec.Revision != revision || has != signed || grants != granted {
		t.Errorf("%s: revision %d here and %d there, cpu %s is signed and %s granted; want %d, %s, %s", when, alice.Spec.Revision, bob.Spec.Revision, has, grants, revision, signed, granted)
	}
}

func asSigned(ctr *v1alpha1.Contract) string {
	c := meta.FindStatusCondition(ctr.Status.Conditions, v1alpha1.ConditionAsSigned)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// said are the events of lowerings, and of what was signed.
func (w *lowered) said() (all []string) {
	for _, e := range w.events {
		if e.Type == api.EventLowering || e.Type == api.EventContractSigned {
			all = append(all, string(e.Type)+string(e.Reason))
		}
	}
	return all
}

func TestAContractIsLoweredWithItsNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, time.Hour, 30*24*time.Hour)
		before := kept(t, w.client).Spec.NotAfter
		w.goesOn(t, time.Minute)
		if is := kept(t, w.client).Status.Lowering; is != nil {
			t.Fatalf("lowered for nothing: %+v", is)
		}
		w.shares(t, func(s *v1alpha1.SharingPolicySpec) { // prices wait for the renewal, and keep nothing from being lowered
			s.Amounts["cpu"], s.Prices = "2", map[string]v1alpha1.UnitPrice{"cpu": "1 EUR"}
		})
		w.goesOn(t, time.Second)
		for side, ctr := range map[string]*v1alpha1.Contract{"alice": kept(t, w.client), "bob": kept(t, w.bob.client)} {
			l := ctr.Status.Lowering
			if l == nil || cores(l.Resources) != "2" || time.Until(l.From.Time) < 59*time.Minute || asSigned(ctr) != "True NoticeGiven" {
				t.Errorf("%s: %+v, %s", side, l, asSigned(ctr))
			}
		}
		w.are(t, "told", 1, "4", "4")
		w.goesOn(t, time.Hour-10*time.Second)
		w.are(t, "a moment before", 1, "4", "4")
		w.goesOn(t, 20*time.Second)
		w.are(t, "after its time", 2, "2", "2")
		for side, ctr := range map[string]*v1alpha1.Contract{"alice": kept(t, w.client), "bob": kept(t, w.bob.client)} {
			if ctr.Status.Lowering != nil || asSigned(ctr) != "True NowSigned" || !ctr.Spec.NotAfter.Equal(before) {
				t.Errorf("%s: %+v, %s, until %s", side, ctr.Status.Lowering, asSigned(ctr), ctr.Spec.NotAfter)
			}
		}
		if said := w.said(); len(said) != 2 || said[0] != "Lowering" || said[1] != "ContractSignedLowered" {
			t.Errorf("her owner was told of %v", said)
		}
		// And that is the end of it: the price is a matter of the renewal.
		w.goesOn(t, time.Hour)
		w.are(t, "an hour later", 2, "2", "2")
	})
}

func TestWithoutANoticeNothingIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, 0, sharing.MinValidity)
		w.shares(t, func(s *v1alpha1.SharingPolicySpec) {
			s.Amounts["cpu"], s.Notice = "2", &metav1.Duration{Duration: time.Minute} // of contracts that are signed from then on
		})
		w.goesOn(t, 55*time.Minute)
		w.are(t, "before its end", 1, "4", "4")
		if is := kept(t, w.bob.client).Status.Lowering; is != nil || len(w.said()) != 0 {
			t.Errorf("%+v, %v", is, w.said())
		}
		// Nor does a consumer believe one who says so.
		told := peering.ContractRef{ID: kept(t, w.client).Spec.ID, Revision: 1, Role: contract.Provider, Lowering: &peering.Lowering{Resources: map[string]string{"cpu": "1"}}}
		if err := w.r.Told(t.Context(), w.peer(t), kept(t, w.client), told); err != nil || kept(t, w.client).Status.Lowering != nil {
			t.Errorf("%v, %+v", err, kept(t, w.client).Status.Lowering)
		}
	})
}

func TestANoticeIsTakenBack(t *testing.T) {
	for name, deaf := range map[string]bool{"she hears it": false, "word of it is lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLowered(t, time.Minute, 30*24*time.Hour)
				w.shares(t, cpu("2"))
				w.goesOn(t, 30*time.Second)
				w.deaf = deaf
				w.shares(t, cpu("4"))
				w.goesOn(t, 2*time.Minute)
				w.are(t, "shared again", 1, "4", "4")
				if said := w.said(); len(said) != 2 || said[1] != "LoweringTakenBack" || kept(t, w.client).Status.Lowering != nil || asSigned(kept(t, w.bob.client)) != "True AsSigned" {
					t.Errorf("%v, %+v, %s", said, kept(t, w.client).Status.Lowering, asSigned(kept(t, w.bob.client)))
				}
			})
		})
	}
}

// Who shares nothing any more does not grant in full again what he lowered.
func TestSharingNothingTakesNoNoticeBack(t *testing.T) {
	for name, nothing := range map[string]func(*testing.T, *lowered){
		"an amount of nothing": func(t *testing.T, w *lowered) { w.shares(t, cpu("0")) },
		"no policy": func(t *testing.T, w *lowered) {
			if err := w.bob.client.Delete(t.Context(), &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: sharing.DefaultName}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLowered(t, time.Minute, sharing.MinValidity)
				w.shares(t, cpu("2"))
				w.goesOn(t, 30*time.Second)
				nothing(t, w)
				w.goesOn(t, 25*time.Second)
				w.are(t, "before its time", 1, "4", "4")
				w.goesOn(t, 30*time.Second)
				w.are(t, "after", 2, "2", "2")
				if l := kept(t, w.bob.client).Status.Lowering; l != nil {
					t.Errorf("%+v still stands", l)
				}
				w.mute = true
				w.goesOn(t, 2*time.Minute)
				w.mute = false
				ends := kept(t, w.client).Spec.NotAfter
				time.Sleep(time.Until(ends.Time) - 10*time.Minute)
				w.goesOn(t, 9*time.Minute)
				w.are(t, "and is not renewed", 2, "2", "2")
			})
		})
	}
}

// One that is not signed is not renewed either where nothing is left.
func TestALoweringIsNotRenewedWhereNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, 3*time.Hour, sharing.MinValidity)
		w.shares(t, cpu("2"))
		w.goesOn(t, 10*time.Second)
		w.shares(t, cpu("0"))
		w.goesOn(t, sharing.MinValidity-10*time.Minute)
		w.are(t, "at its end", 1, "4", "4")
	})
}

// A notice ends with the term by which it was given.
func TestARevisionWithoutTheTermIsNotLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, 4*24*time.Hour, 30*24*time.Hour)
		w.mute = true
		w.shares(t, func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"], s.Notice = "2", nil })
		w.goesOn(t, 3*24*time.Hour)
		doc, err := contract.Parse(kept(t, w.client).Spec.Document)
		if err != nil {
			t.Fatal(err)
		}
		doc.Version, doc.Revision, doc.Notice = contract.Version, 2, 0
		if _, err := w.sign(t.Context(), t, doc); err != nil {
			t.Fatal(err)
		}
		w.goesOn(t, 3*24*time.Hour)
		if bob := kept(t, w.bob.client); bob.Spec.Revision != 2 || bob.Status.Lowering != nil || cores(bob.Grants(time.Now())) != "4" {
			t.Errorf("revision %d, %+v, granted %s", bob.Spec.Revision, bob.Status.Lowering, cores(bob.Grants(time.Now())))
		}
	})
}

// What was lowered is not signed again and again, each revision being written down on both sides.
func TestALoweringIsSignedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, time.Minute, 30*24*time.Hour)
		w.mute = true
		w.shares(t, cpu("2"))
		w.goesOn(t, 90*time.Second)
		doc, err := contract.Parse(kept(t, w.client).Spec.Document)
		if err != nil {
			t.Fatal(err)
		}
		doc.Resources["cpu"] = "2"
		for revision, want := range []error{nil, &peering.Problem{Code: peering.CodeRateLimited}, &peering.Problem{Code: peering.CodeRateLimited}} {
			doc.Revision = int64(revision) + 2
			if _, err := w.sign(t.Context(), t, doc); !errors.Is(err, want) {
				t.Errorf("revision %d: %v, want %v", doc.Revision, err, want)
			}
		}
	})
}

// Whoever does not sign has no more for it; when he is back he signs what holds.
func TestWhoDoesNotSignIsGrantedNoMore(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*lowered) }{
		"the link is cut at the moment": {func(w *lowered) { w.cut = true }, func(w *lowered) { w.cut = false }},
		"she does nothing":              {func(w *lowered) { w.mute = true }, func(w *lowered) { w.mute = false }},
		"bob is started again": {func(w *lowered) {
			w.mute, w.bob.Provider = true, provider.New(w.bob.Config)
		}, func(w *lowered) { w.mute, w.bob.Provider = false, provider.New(w.bob.Config) }},
		"the answer is lost": {func(w *lowered) { w.returns = func() bool { return false } }, func(w *lowered) { w.returns = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLowered(t, time.Minute, 30*24*time.Hour)
				w.shares(t, cpu("2"))
				w.goesOn(t, 50*time.Second)
				w.are(t, "before", 1, "4", "4")
				c.before(w)
				w.goesOn(t, time.Minute)
				if bob := kept(t, w.bob.client); cores(bob.Grants(time.Now())) != "2" || bob.Spec.Revision == 1 && asSigned(bob) != "False Lowered" {
					t.Errorf("granted %s, %s", cores(bob.Grants(time.Now())), asSigned(bob))
				}
				if w.mute { // who refuses to sign is not renewed with what he had either
					doc, err := contract.Parse(kept(t, w.client).Spec.Document)
					if err != nil {
						t.Fatal(err)
					}
					doc.Revision, doc.Created = 2, time.Now()
					time.Sleep(3 * 24 * time.Hour)
					if _, err := w.sign(t.Context(), t, doc); !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) {
						t.Errorf("the renewal of what is granted no more: %v", err)
					}
				}
				c.after(w)
				w.goesOn(t, time.Minute)
				w.are(t, "after", 2, "2", "2")
				if w.sent > 10 {
					t.Errorf("%d documents were sent", w.sent)
				}
			})
		})
	}
}

// A lowering that cannot be signed does not keep the contract from being renewed, with what is granted.
func TestALoweringThatIsNotSignedIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, time.Minute, sharing.MinValidity)
		w.r.signedOnce = func(context.Context, *v1alpha1.Peer, contract.Document) (contract.Signed, error) {
			return contract.Signed{}, &peering.Problem{Code: peering.CodeDeclined}
		}
		first := kept(t, w.client).Spec.NotAfter
		w.shares(t, cpu("2"))
		w.goesOn(t, 2*time.Hour)
		if w.are(t, "renewed", kept(t, w.client).Spec.Revision, "2", "2"); !kept(t, w.client).Spec.NotAfter.After(first.Time) {
			t.Error("it ran out")
		}
	})
}

// Nor does a renewal whose answer was lost keep a lowering from being signed.
func TestALoweringAfterARenewalWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, 45*time.Minute, sharing.MinValidity)
		w.shares(t, cpu("2"))
		w.goesOn(t, 38*time.Minute)
		w.returns = func() bool { return false }
		w.goesOn(t, 8*time.Minute)
		ahead := kept(t, w.bob.client)
		if here := kept(t, w.client); here.Spec.Revision >= ahead.Spec.Revision || cores(ahead.Grants(time.Now())) != "2" {
			t.Fatalf("revision %d here and %d there, %s granted", here.Spec.Revision, ahead.Spec.Revision, cores(ahead.Grants(time.Now())))
		}
		w.returns = nil
		w.goesOn(t, 12*time.Minute)
		if w.are(t, "both", kept(t, w.client).Spec.Revision, "2", "2"); kept(t, w.client).Spec.NotAfter.Before(ahead.Spec.NotAfter) {
			t.Errorf("it ends %s, and was renewed until %s", kept(t, w.client).Spec.NotAfter, ahead.Spec.NotAfter)
		}
	})
}

// What holds is told as such each time that contracts are compared, and is news once.
func TestABegunLoweringIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, time.Minute, 30*24*time.Hour)
		w.r.signedOnce = func(context.Context, *v1alpha1.Peer, contract.Document) (contract.Signed, error) {
			return contract.Signed{}, errors.New("connection reset")
		}
		w.shares(t, cpu("2"))
		w.goesOn(t, 10*time.Second)
		from := kept(t, w.client).Status.Lowering.From
		w.goesOn(t, time.Hour)
		if is := kept(t, w.client).Status.Lowering; is == nil || !is.From.Equal(&from) {
			t.Errorf("%+v, from %s at first", is, from)
		}
		if said := w.said(); len(said) != 1 {
			t.Errorf("her owner was told of %v", said)
		}
	})
}

func TestLoweredTwice(t *testing.T) {
	for name, c := range map[string]struct {
		first, second time.Duration // how long after the first and the second change
		mute          bool
		revisions     int64
	}{
		"before the first has begun":         {30 * time.Second, 90 * time.Second, false, 2},
		"when the first is signed":           {90 * time.Second, 90 * time.Second, false, 3},
		"when the first holds, not signed":   {90 * time.Second, 20 * time.Second, true, 3},
		"when neither is, and both do by it": {90 * time.Second, 90 * time.Second, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLowered(t, time.Minute, 30*24*time.Hour)
				w.shares(t, cpu("2"))
				w.mute = c.mute
				w.goesOn(t, c.first)
				w.shares(t, cpu("1"))
				w.goesOn(t, time.Second)
				if got := cores(kept(t, w.bob.client).Grants(time.Now())); (got == "4") != (c.first < time.Minute) || got == "1" {
					t.Errorf("%s is granted at once", got)
				}
				w.goesOn(t, c.second)
				w.mute = false
				w.goesOn(t, 2*time.Minute)
				w.are(t, "in the end", 1+c.revisions-1, "1", "1")
			})
		})
	}
}

// A contract that is shorter than the notice is renewed with what is granted until then.
func TestRenewedWhileItIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, 3*time.Hour, sharing.MinValidity)
		var there []string
		w.bob.Announce = func(e api.Event) {
			if e.Type == api.EventContractSigned {
				there = append(there, string(e.Reason))
			}
		}
		w.shares(t, cpu("2"))
		w.goesOn(t, 2*time.Hour+50*time.Minute)
		revision := kept(t, w.client).Spec.Revision
		if revision < 3 {
			t.Fatalf("revision %d", revision)
		}
		here := strings.Join(w.said(), " ") // a renewal says that it is one, at both: nobody need look up
		if n := int(revision) - 1; here != "Lowering"+strings.Repeat(" ContractSignedRenewed", n) || strings.Join(there, "") != strings.Repeat("Renewed", n) {
			t.Errorf("%d renewals were told as %q here and %q there", n, here, there)
		}
		w.are(t, "renewed", revision, "4", "4")
		w.goesOn(t, 15*time.Minute)
		w.goesOn(t, 2*time.Hour)
		if w.are(t, "lowered", kept(t, w.client).Spec.Revision, "2", "2"); !time.Now().Before(kept(t, w.client).Spec.NotAfter.Time) {
			t.Error("it ran out")
		}
	})
}

// What a provider says is bounded by what was signed, whatever it says.
func TestALoweringIsOfWhatWasSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLowered(t, time.Minute, 30*24*time.Hour)
		ctr := kept(t, w.client)
		for name, c := range map[string]struct {
			told map[string]string
			want bool
		}{
			"more":              {map[string]string{"cpu": "100", "memory": "1Ti", "pods": "1000"}, false},
			"the same and more": {map[string]string{"cpu": "4", "memory": "8Gi", "pods": "55", "a.com/x": "1"}, false},
			"less and more":     {map[string]string{"cpu": "1", "memory": "1Ti", "pods": "55"}, true},
			"none of one":       {map[string]string{"cpu": "4", "memory": "8Gi"}, true},
		} {
			is := lowering(ctr, &peering.Lowering{Resources: c.told}, time.Now())
			if (is != nil) != c.want {
				t.Errorf("%s: %+v", name, is)
			}
			if is != nil {
				for of, q := range is.Resources {
					if has := ctr.Spec.Resources[of]; q.Cmp(has) > 0 {
						t.Errorf("%s: %s of %s", name, q.String(), of)
					}
				}
			}
		}
	})
}

// What is asked for on top of a contract goes by what it grants.
func TestWhatIsWantedGoesByWhatIsGranted(t *testing.T) {
	signed, less := corev1.ResourceList{"cpu": resource.MustParse("4"), "a.com/gpu": resource.MustParse("1")}, corev1.ResourceList{"cpu": resource.MustParse("2")}
	peer := &v1alpha1.Peer{}
	for begins, want := range map[time.Duration]corev1.ResourceList{-time.Second: less, time.Hour: signed} {
		ctr := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Resources: signed}, Status: v1alpha1.ContractStatus{Lowering: &v1alpha1.Lowering{Resources: less, From: metav1.NewTime(time.Now().Add(begins))}}}
		if got := Wanted(peer, ctr); !sharing.Same(got, want) {
			t.Errorf("begun %s ago: %v", -begins, got)
		}
	}
}

func cores(amounts corev1.ResourceList) string { return amounts.Cpu().String() }

package provider

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/power"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// saysYes asks for amounts in somebody's name, and has bob's owner say yes.
func (d *world) saysYes(t *testing.T, who *identity.Identity, asked map[string]string) {
	t.Helper()
	id, _, err := d.Ask(t.Context(), peering.Caller{ID: who.ID()}, peering.Question{Name: "alice", Resources: asked, Attempt: 1}, "123456", false)
	if err != nil {
		t.Fatal(err)
	}
	var r v1alpha1.PeeringRequest
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: id}, &r); err != nil {
		t.Fatal(err)
	}
	if err := d.Accept(t.Context(), &r, nil, ""); err != nil {
		t.Fatal(err)
	}
}

// document is what a consumer may write about amounts: for an hour.
func (d *world) document(who *identity.Identity, amounts map[string]string) contract.Document {
	now := time.Now().UTC().Truncate(time.Second)
	return contract.Document{
		Version: contract.Version, ID: contract.NewID(), Revision: 1,
		Consumer:  contract.Party{ID: who.ID(), Name: "alice", Key: who.Public()},
		Provider:  contract.Party{ID: d.me.ID(), Name: "bob", Key: d.me.Public()},
		Terms:     contract.Terms{Resources: amounts, PodSecurity: contract.Baseline},
		NotBefore: now.Add(-10 * time.Minute), NotAfter: now.Add(time.Hour), Created: now,
	}
}

// signs has bob sign what somebody signed.
func (d *world) signs(t *testing.T, who *identity.Identity, doc contract.Document) (sent, got contract.Signed, err error) {
	t.Helper()
	sent, err = contract.New(doc)
	if err := errors.Join(err, sent.SignAs(contract.Consumer, who)); err != nil {
		t.Fatal(err)
	}
	got, err = d.Sign(t.Context(), peering.Caller{ID: who.ID()}, sent)
	return sent, got, err
}

func (d *world) signedOnes(t *testing.T) []v1alpha1.Contract {
	t.Helper()
	var list v1alpha1.ContractList
	if err := d.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// Bob, who has 8 cpu and shares them all, said yes to eight peers before any of them signed; then all sign at once.
func TestTwoPeersAreNotPromisedTheSameCore(t *testing.T) {
	for each, want := range map[string]int32{"8": 1, "5": 1, "4": 2, "3": 2, "1": 8} {
		t.Run(each+" cpu each", func(t *testing.T) {
			d := newWorld(t, sharing.Default(100))
			d.Provider.Client = ledgertest.Over(t, interceptor.NewClient(d.client.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					for range 1000 { // between the look at what is free and the contract others have their turn
						runtime.Gosched()
					}
					return c.Create(ctx, o, opts...)
				},
			}))
			amounts := map[string]string{"cpu": each, "memory": "1Gi", "pods": "5"}
			var all []*identity.Identity
			for range 8 {
				all = append(all, load(t))
				d.saysYes(t, all[len(all)-1], amounts)
			}
			var group sync.WaitGroup
			var signed atomic.Int32
			for _, who := range all {
				group.Go(func() {
					if _, _, err := d.signs(t, who, d.document(who, amounts)); err == nil {
						signed.Add(1)
					} else if !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) {
						t.Error(err)
					}
				})
			}
			group.Wait()
			var sum resource.Quantity
			for _, ctr := range d.signedOnes(t) {
				sum.Add(ctr.Spec.Resources[corev1.ResourceCPU])
			}
			if signed.Load() != want || len(d.signedOnes(t)) != int(want) || sum.CmpInt64(8) > 0 {
				t.Errorf("%d signed, want %d; %d contracts about %s cpu of 8", signed.Load(), want, len(d.signedOnes(t)), sum.String())
			}
		})
	}
}

func TestWhatIsCountersigned(t *testing.T) {
	asked := map[string]string{"cpu": "4", "memory": "8Gi", "pods": "55"}
	pause := func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }
	for name, c := range map[string]struct {
		change func(*contract.Document)
		before func(*v1alpha1.SharingPolicySpec) // what the owner does meanwhile
		code   peering.Code
		says   string
	}{
		"as offered":           {},
		"less than offered":    {change: func(d *contract.Document) { d.Resources["cpu"] = "1500m" }},
		"more than offered":    {func(d *contract.Document) { d.Resources["cpu"] = "4001m" }, nil, peering.CodeDeclined, "the contract grants 4001m cpu, the offer is 4"},
		"what was not offered": {func(d *contract.Document) { d.Resources["nvidia.com/gpu"] = "1" }, nil, peering.CodeDeclined, "the contract grants 1 nvidia.com/gpu, the offer is 0"},
		"privilege":            {func(d *contract.Document) { d.PodSecurity = contract.Privileged }, nil, peering.CodeDeclined, "pod security level is not the offered baseline"},
		"a price":              {func(d *contract.Document) { d.Prices = map[string]string{"cpu": "0.02 EUR"} }, nil, peering.CodeDeclined, "prices are not the offered ones"},
		"a storage class":      {func(d *contract.Document) { d.StorageClasses = []string{"fast"} }, nil, peering.CodeDeclined, "storage classes that were not offered"},
		"volumes kept for longer": {func(d *contract.Document) {
			d.KeepVolumes, d.Version = contract.KeepFor(30*24*time.Hour), contract.Version2
		}, nil, peering.CodeDeclined, "the contract has volumes kept for 720h0m0s, the offer is 168h0m0s"},
		"volumes kept as offered":      {change: func(d *contract.Document) { d.KeepVolumes, d.Version = contract.KeepFor(time.Hour), contract.Version2 }, before: func(s *v1alpha1.SharingPolicySpec) { s.KeepVolumes = &metav1.Duration{Duration: time.Hour} }},
		"by an older consumer":         {before: func(s *v1alpha1.SharingPolicySpec) { s.KeepVolumes = &metav1.Duration{Duration: time.Hour} }},
		"with a notice":                {func(d *contract.Document) { d.Notice, d.Version = 60, contract.Version2 }, nil, peering.CodeDeclined, "may be lowered with a notice of 1m0s, the offer is 0s"},
		"with the notice offered":      {change: func(d *contract.Document) { d.Notice, d.Version = 60, contract.Version2 }, before: func(s *v1alpha1.SharingPolicySpec) { s.Notice = &metav1.Duration{Duration: time.Minute} }},
		"without the notice offered":   {before: func(s *v1alpha1.SharingPolicySpec) { s.Notice = &metav1.Duration{Duration: time.Minute} }},
		"to be offered on":             {func(d *contract.Document) { d.Reoffer, d.Version = true, contract.Version2 }, nil, peering.CodeDeclined, "lets what it grants be offered on to others, and the offer does not"},
		"to be offered on, as is said": {change: func(d *contract.Document) { d.Reoffer, d.Version = true, contract.Version2 }, before: func(s *v1alpha1.SharingPolicySpec) { s.Reoffer = v1alpha1.AccessAllow }},
		"not to be, though it may":     {before: func(s *v1alpha1.SharingPolicySpec) { s.Reoffer = v1alpha1.AccessAllow }},
		"to be, by a broker": {func(d *contract.Document) { d.Reoffer, d.Version = true, contract.Version2 }, func(s *v1alpha1.SharingPolicySpec) {
			s.Reoffer, s.ReofferFrom = v1alpha1.AccessAllow, []string{"carol"}
		}, peering.CodeDeclined, "the offer does not"},
		"for longer than offered":   {func(d *contract.Document) { d.NotAfter = d.NotAfter.Add(sharing.DefaultValidity) }, nil, peering.CodeDeclined, "runs longer than offered"},
		"for a time that is over":   {func(d *contract.Document) { d.NotAfter = d.NotBefore.Add(time.Minute) }, nil, peering.CodeDeclined, "and here it is"},
		"with another provider":     {func(d *contract.Document) { d.Provider = d.Consumer; d.Provider.Name = "bob" }, nil, peering.CodeBadRequest, ""},
		"when less is shared":       {nil, func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "3" }, peering.CodeDeclined, "the contract grants 4 cpu, the offer is 3"},
		"when sharing is paused":    {nil, pause, peering.CodeDeclined, "sharing is paused"},
		"when the level is another": {nil, func(s *v1alpha1.SharingPolicySpec) { s.PodSecurity = v1alpha1.PodSecurityRestricted }, peering.CodeDeclined, "not the offered restricted"},
	} {
		t.Run(name, func(t *testing.T) {
			d, alice := newWorld(t), load(t)
			d.saysYes(t, alice, asked)
			doc := d.document(alice, maps.Clone(asked))
			if c.change != nil {
				c.change(&doc)
			}
			if c.before != nil {
				d.share(t, c.before)
			}
			if name == "with another provider" {
				mallory := load(t)
				doc.Provider = contract.Party{ID: mallory.ID(), Name: "bob", Key: mallory.Public()}
			}
			sent, got, err := d.signs(t, alice, doc)
			if c.code != "" {
				if !errors.Is(err, &peering.Problem{Code: c.code}) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s %q", err, c.code, c.says)
				}
				if len(d.signedOnes(t)) != 0 || len(d.requests(t)) != 1 {
					t.Errorf("%d contracts, %d requests", len(d.signedOnes(t)), len(d.requests(t)))
				}
				return
			}
			if err != nil || got.Verify() != nil || len(d.signedOnes(t)) != 1 || len(d.requests(t)) != 0 {
				t.Fatalf("%v, %v; %d contracts, %d requests", err, got.Verify(), len(d.signedOnes(t)), len(d.requests(t)))
			}
			peer := d.client.Now().Peer(alice.ID().String())
			ctr := d.signedOnes(t)[0]
			if peer.Status.Incoming.State != v1alpha1.StateContracted || peer.Status.Incoming.Contract != ctr.Name || !sharing.Accepted(peer) {
				t.Errorf("%+v, %v", peer, err)
			}
			// The answer was lost: the same bytes are signed again, and nothing is written.
			before := d.writes.Load()
			again, err := d.Sign(t.Context(), peering.Caller{ID: alice.ID()}, sent)
			if err != nil || string(again.ProviderSignature) != string(got.ProviderSignature) || d.writes.Load() != before {
				t.Errorf("again: %v, %d writes", err, d.writes.Load()-before)
			}
		})
	}
	d, alice, mallory := newWorld(t), load(t), load(t)
	if _, _, err := d.signs(t, alice, d.document(alice, asked)); !errors.Is(err, &peering.Problem{Code: peering.CodeNoContract}) {
		t.Errorf("nothing was accepted: %v", err)
	}
	d.saysYes(t, alice, asked)
	unsigned, err := contract.New(d.document(alice, asked))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Sign(t.Context(), peering.Caller{ID: alice.ID()}, unsigned); !errors.Is(err, &peering.Problem{Code: peering.CodeBadRequest}) {
		t.Errorf("not signed: %v", err)
	}
	sent, _, _ := d.signs(t, alice, d.document(alice, map[string]string{"cpu": "5"}))
	if _, err := d.Sign(t.Context(), peering.Caller{ID: mallory.ID()}, sent); !errors.Is(err, &peering.Problem{Code: peering.CodeBadRequest}) {
		t.Errorf("brought by another: %v", err)
	}
}

// An owner who changes his mind changes no contract that is in force, and a consumer none that it signed.
func TestHowLongARevisionMayHaveVolumesKept(t *testing.T) {
	policy := func(keep time.Duration) *v1alpha1.SharingPolicy {
		return &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{KeepVolumes: &metav1.Duration{Duration: keep}}}
	}
	d, alice := newWorld(t), load(t)
	doc := d.document(alice, map[string]string{"cpu": "1"})
	doc.KeepVolumes, doc.Version = contract.KeepFor(2*time.Hour), contract.Version2
	signed, err := contract.Canonical(doc)
	if err != nil {
		t.Fatal(err)
	}
	old := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Document: signed}}
	for keep, want := range map[time.Duration]bool{2 * time.Hour: true, time.Hour: true, 3 * time.Hour: false, contract.DefaultKeep: false} {
		doc.KeepVolumes = contract.KeepFor(keep)
		if got := mayKeep(doc, old, policy(time.Hour)); got != want {
			t.Errorf("signed for 2h, offered for 1h, and now for %s: %v", keep, got)
		}
	}
	if doc.KeepVolumes = 0; !mayKeep(doc, nil, policy(time.Hour)) || mayKeep(doc, &v1alpha1.Contract{}, policy(time.Hour)) {
		t.Error("of an older consumer, or of a contract that nobody can read")
	}
}

// What is in force goes on without a question as long as it is not more; each document takes the place of the one before.
func TestWhatARevisionMaySay(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*contract.Document)
		code     peering.Code
		revision int64
	}{
		"the same":                 {func(*contract.Document) {}, "", 2},
		"less":                     {func(d *contract.Document) { d.Resources["cpu"] = "1" }, "", 2},
		"one whose answer was not": {func(d *contract.Document) { d.Revision = 5 }, "", 5},
		"more":                     {func(d *contract.Document) { d.Resources["cpu"] = "3" }, peering.CodeNoContract, 1},
		"more of another":          {func(d *contract.Document) { d.Resources["nvidia.com/gpu"] = "1" }, peering.CodeNoContract, 1},
		"no later revision":        {func(d *contract.Document) { d.Revision = 1 }, peering.CodeConflict, 1},
		"another contract":         {func(d *contract.Document) { d.ID, d.Revision = contract.NewID(), 1 }, peering.CodeNoContract, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour) // a bubble's clock begins with the year 2000, and contracts begin a little earlier
				d, alice := newWorld(t), load(t)
				amounts := map[string]string{"cpu": "2", "memory": "2Gi", "pods": "5"}
				d.saysYes(t, alice, amounts)
				first := d.document(alice, amounts)
				if _, _, err := d.signs(t, alice, first); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Minute)
				doc := d.document(alice, maps.Clone(amounts))
				doc.ID, doc.Revision = first.ID, 2
				c.change(&doc)
				_, _, err := d.signs(t, alice, doc)
				if (err == nil) != (c.code == "") || err != nil && !errors.Is(err, &peering.Problem{Code: c.code}) {
					t.Errorf("%v, want %q", err, c.code)
				}
				if ctr := d.signedOnes(t)[0]; len(d.signedOnes(t)) != 1 || ctr.Spec.Revision != c.revision || ctr.Spec.ID != first.ID {
					t.Errorf("%d contracts, %s revision %d", len(d.signedOnes(t)), ctr.Spec.ID, ctr.Spec.Revision)
				}
			})
		})
	}
}

// A contract names the prices that were offered, all of them and no others; who changed his is not held to the old ones, and says so when he is asked.
func TestPricesAreThoseOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		d, alice := newWorld(t), load(t)
		d.share(t, func(s *v1alpha1.SharingPolicySpec) {
			s.Prices = map[string]v1alpha1.UnitPrice{"cpu": "0.02 EUR", "memory": "0.005 EUR", "nvidia.com/gpu": "1 EUR"}
		})
		amounts := map[string]string{"cpu": "2", "memory": "2Gi", "pods": "5"}
		id, _, err := d.Ask(t.Context(), peering.Caller{ID: alice.ID()}, peering.Question{Name: "alice", Resources: amounts, Attempt: 1}, "123456", false)
		if err != nil {
			t.Fatal(err)
		}
		var r v1alpha1.PeeringRequest
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: id}, &r); err != nil {
			t.Fatal(err)
		}
		if err := d.Accept(t.Context(), &r, nil, ""); err != nil {
			t.Fatal(err)
		}
		out, err := d.Outcome(t.Context(), peering.Caller{ID: alice.ID()}, id)
		offered := map[string]string{"cpu": "0.02 EUR", "memory": "0.005 EUR"} // of the device there is nothing
		if err != nil || out.Offer == nil || !maps.Equal(out.Offer.Prices, offered) {
			t.Fatalf("%+v, %v", out.Offer, err)
		}
		doc := d.document(alice, maps.Clone(amounts))
		for name, prices := range map[string]map[string]string{
			"none": nil, "one of two": {"cpu": "0.02 EUR"}, "cheaper": {"cpu": "0.01 EUR", "memory": "0.005 EUR"}, "one more": {"cpu": "0.02 EUR", "memory": "0.005 EUR", "pods": "1 EUR"},
		} {
			doc.Prices = prices
			if _, _, err := d.signs(t, alice, doc); !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) {
				t.Errorf("%s: %v", name, err)
			}
		}
		doc.Prices = offered
		if _, _, err := d.signs(t, alice, doc); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Prices = map[string]v1alpha1.UnitPrice{"cpu": "0.03 EUR"} })
		doc.Revision, doc.NotAfter = 2, doc.NotAfter.Add(20*time.Minute)
		if _, _, err := d.signs(t, alice, doc); !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) {
			t.Errorf("renewed at the old price: %v", err)
		}
		again := peering.Question{Name: "alice", Resources: amounts, Attempt: 2, Contract: doc.ID}
		if _, _, err := d.Ask(t.Context(), peering.Caller{ID: alice.ID()}, again, "", false); err != nil {
			t.Errorf("the same for another price is a question: %v", err)
		}
	})
}

// Who lost its memory asks anew, and what it had ends with the new contract, not before.
func TestWhoAsksAnewLosesWhatItHad(t *testing.T) {
	d, alice := newWorld(t), load(t)
	for i, cpu := range []string{"1", "2"} {
		amounts := map[string]string{"cpu": cpu, "memory": "1Gi", "pods": "5"}
		d.saysYes(t, alice, amounts)
		if n := len(d.signedOnes(t)); n != i {
			t.Fatalf("%d contracts before anything was signed", n)
		}
		if _, _, err := d.signs(t, alice, d.document(alice, amounts)); err != nil {
			t.Fatal(err)
		}
	}
	var standing, ending []string
	for _, ctr := range d.signedOnes(t) {
		cpu := ctr.Spec.Resources[corev1.ResourceCPU]
		if ctr.DeletionTimestamp != nil {
			ending = append(ending, cpu.String())
		} else {
			standing = append(standing, cpu.String())
		}
	}
	if len(standing) != 1 || standing[0] != "2" || len(ending) != 1 || ending[0] != "1" {
		t.Errorf("in force %v, ending %v", standing, ending)
	}
}

// Who asks anew has woken this laptop as often as before: also by a contract that is about to end, each time once, and by none of days ago.
func TestWhoAsksAnewHasWokenAsOftenAsBefore(t *testing.T) {
	d, alice := newWorld(t), load(t)
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	now := time.Now().Truncate(time.Second)
	for i, want := range []int{0, 2, 2} {
		d.saysYes(t, alice, amounts)
		doc := d.document(alice, amounts)
		if _, _, err := d.signs(t, alice, doc); err != nil {
			t.Fatal(err)
		}
		for _, ctr := range d.signedOnes(t) {
			if ctr.Spec.ID != doc.ID {
				continue
			}
			var times []metav1.Time
			if is := ctr.Status.Wake; is != nil {
				times = is.Times
			}
			if len(times) != want || want > 0 && !times[0].Before(&times[1]) {
				t.Errorf("contract %d begins with %v", i+1, times)
			}
			if i == 0 {
				ctr.Status.Wake = &v1alpha1.WakeStatus{Times: []metav1.Time{{Time: now.Add(-25 * time.Hour)}, {Time: now.Add(-2 * time.Hour)}, {Time: now.Add(-time.Hour)}}}
				if err := d.client.Status().Update(t.Context(), &ctr); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// inMode is a laptop's mode.
type inMode struct {
	company string
	joins   bool
}

func (m inMode) Company() (string, bool) { return m.company, m.joins }

// What was accepted before a tether is worth nothing while it lasts.
func TestATetheredLaptopSignsForItsCompanyAlone(t *testing.T) {
	d, alice := newWorld(t, sharing.Default(100)), load(t)
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	d.saysYes(t, alice, amounts)
	for _, mode := range []inMode{{"CORP", true}, {alice.ID().String(), false}} {
		d.Mode = mode
		if _, _, err := d.signs(t, alice, d.document(alice, amounts)); !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) || len(d.signedOnes(t)) > 0 {
			t.Errorf("%+v: %v, %d contracts", mode, err, len(d.signedOnes(t)))
		}
	}
	d.Mode = inMode{alice.ID().String(), true}
	if _, _, err := d.signs(t, alice, d.document(alice, amounts)); err != nil {
		t.Error(err)
	}
}

// grants has bob's owner accept what somebody asks, and both sign it.
func (d *world) grants(t *testing.T, who *identity.Identity, pairs ...string) {
	t.Helper()
	amounts := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		amounts[pairs[i]] = pairs[i+1]
	}
	d.saysYes(t, who, amounts)
	if _, _, err := d.signs(t, who, d.document(who, amounts)); err != nil {
		t.Fatal(err)
	}
}

// Two were accepted before either signed, under a policy that is for one: the second is refused, until the first has gone.
func TestAPolicyForOnePeerSignsWithOne(t *testing.T) {
	policy := sharing.Default(50)
	policy.Spec.MaxPeers, policy.Spec.MaxPerPeer = new(int32(1)), map[string]v1alpha1.Amount{"cpu": "1"}
	d := newWorld(t, policy)
	alice, carol := load(t), load(t)
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	d.saysYes(t, alice, amounts)
	d.saysYes(t, carol, amounts)
	more := maps.Clone(amounts)
	more["cpu"] = "1001m"
	if _, _, err := d.signs(t, alice, d.document(alice, more)); !declined(err, "the contract grants 1001m cpu, the offer is 1") {
		t.Error(err)
	}
	if _, _, err := d.signs(t, alice, d.document(alice, amounts)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.signs(t, carol, d.document(carol, amounts)); !declined(err, "is for 1 peers at once, and so many hold contracts under it") {
		t.Error(err)
	}
	if err := d.client.Delete(t.Context(), &d.signedOnes(t)[0]); err != nil {
		t.Fatal(err)
	}
	ended := d.signedOnes(t)
	for i := range ended { // cleared away
		ended[i].Finalizers = nil
		if err := d.client.Update(t.Context(), &ended[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := d.signs(t, carol, d.document(carol, amounts)); err != nil {
		t.Error(err)
	}
}

// The plug is pulled between the yes and the contract: nothing new is signed, and what was is renewed.
func TestOnBatteryNothingNewIsSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		policy := sharing.Default(50)
		policy.Spec.Only = &v1alpha1.SharingConditions{OnMains: true}
		d := newWorld(t, policy)
		plugged := true
		d.Laptop = func() sharing.Laptop { return sharing.Laptop{Power: power.State{OnMains: plugged, Battery: 90}} }
		alice, carol, dave := load(t), load(t), load(t)
		amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
		d.saysYes(t, alice, amounts)
		d.saysYes(t, carol, amounts)
		doc := d.document(alice, amounts)
		if _, _, err := d.signs(t, alice, doc); err != nil {
			t.Fatal(err)
		}
		plugged = false
		if _, _, err := d.signs(t, carol, d.document(carol, amounts)); !declined(err, "offers something on mains alone, and this laptop runs on its battery") {
			t.Error(err)
		}
		if _, err := d.ask(t, peering.Caller{ID: dave.ID()}, "dave"); !declined(err, "offers something on mains alone") {
			t.Error(err)
		}
		time.Sleep(40 * time.Minute)
		again := d.document(alice, amounts)
		again.ID, again.Revision = doc.ID, 2
		if _, _, err := d.signs(t, alice, again); err != nil {
			t.Errorf("what was signed is not renewed: %v", err)
		}
	})
}

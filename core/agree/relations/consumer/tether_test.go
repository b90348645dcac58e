package consumer

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
)

// of is a laptop's mode.
type of struct {
	company string
	joins   bool
}

func (m of) Company() (string, bool) { return m.company, m.joins }

// runs is a company that answers each laptop the same.
type runs struct {
	answer peering.TetherAnswer
	why    string
}

func (c runs) Weigh(context.Context, *v1alpha1.Peer) (peering.TetherAnswer, string, string, error) {
	return c.answer, "laptops", c.why, nil
}

func (runs) Grant(context.Context, *v1alpha1.Peer) (peering.TetherGrant, error) {
	return peering.TetherGrant{User: "kith:laptop:x", Namespaces: []peering.TetherNamespace{{Name: "team", Role: "edit"}}}, nil
}

// wish is what the switch of the mode writes.
func (a *consumerSide) wish(t *testing.T, attempt int64) {
	t.Helper()
	peer := a.peer(t, "bob")
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt, Tether: true}
	if err := a.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	a.look(t)
}

func TestALaptopsWishIsAcceptedByTheCompanysOwner(t *testing.T) {
	company := newBob(t)
	company.Company = runs{answer: peering.TetherAsks}
	laptop := newAsker(t, company.me.ID(), serveHandler(t, company.me, provided{Provider: company.Provider}))
	laptop.r.Mode = of{company: company.me.ID().String()}
	laptop.wish(t, 1)
	out := laptop.until(t, "asked", func(out v1alpha1.DirectionStatus) bool { return out.RequestID != "" })
	open := company.requests(t)
	if len(open) != 1 || !open[0].Spec.Tether || open[0].Spec.Code != out.Code || out.Code == "" {
		t.Fatalf("%+v, here the code is %q", open, out.Code)
	}
	if grant, err := company.Grant(t.Context(), &open[0]); err != nil || grant.Summary != "this cluster runs it; its users work in team (edit)" {
		t.Errorf("%+v, %v", grant, err)
	}
	company.accepts(t, &open[0])
	// Nothing is begun before this owner has compared the code, too.
	laptop.until(t, "to be confirmed", func(out v1alpha1.DirectionStatus) bool { return out.Confirm != nil })
	if tether := laptop.peer(t, "bob").Status.Tether; tether != nil {
		t.Errorf("%+v before the code was compared", tether)
	}
	laptop.say(t, v1alpha1.Confirm{Attempt: 1, Code: out.Code})
	laptop.until(t, "accepted", func(out v1alpha1.DirectionStatus) bool { return out.State == v1alpha1.StateNone })
	if tether := laptop.peer(t, "bob").Status.Tether; tether == nil || tether.Accepted != 1 || tether.Role != v1alpha1.TetherLaptop || tether.User != "kith:laptop:x" {
		t.Errorf("%+v", tether)
	}
	if all := laptop.contracts(t); len(all) > 0 {
		t.Errorf("a laptop that wants to be run has a contract as consumer: %+v", all)
	}
}

func TestAWishThatIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		says    runs
		company of // the mode at the company
		laptop  func(id string) of
		why     string
	}{
		"no policy":             {says: runs{peering.TetherNo, "no TetherPolicy there is for this laptop"}, why: "no TetherPolicy there is for this laptop"},
		"tethered itself":       {says: runs{answer: peering.TetherYes}, company: of{"OTHER", true}, why: "this laptop is tethered: another cluster has all of it"},
		"by hand":               {says: runs{answer: peering.TetherYes}, laptop: func(string) of { return of{} }, why: "`kith tether bob` asks for that"},
		"tethered to it by now": {says: runs{answer: peering.TetherYes}, laptop: func(id string) of { return of{id, true} }, why: "this laptop is tethered to it"},
	} {
		t.Run(name, func(t *testing.T) {
			company := newBob(t)
			company.Company, company.Mode = c.says, c.company
			laptop := newAsker(t, company.me.ID(), serveHandler(t, company.me, provided{Provider: company.Provider}))
			laptop.r.Mode = of{company: company.me.ID().String()}
			if c.laptop != nil {
				laptop.r.Mode = c.laptop(company.me.ID().String())
			}
			laptop.wish(t, 1)
			out := laptop.until(t, "over", func(out v1alpha1.DirectionStatus) bool {
				return out.Attempt == 1 && out.State == v1alpha1.StateDeclined
			})
			if !strings.Contains(out.Why, c.why) || len(company.requests(t)) > 0 {
				t.Errorf("%q, %d requests", out.Why, len(company.requests(t)))
			}
		})
	}
}

// companyOf has a laptop, bob, whose company asks for all it has.
func companyOf(t *testing.T, mode of, objects ...client.Object) (laptop *bob, company *consumerSide) {
	t.Helper()
	laptop = newBob(t, objects...)
	company = newAsker(t, laptop.me.ID(), serveHandler(t, laptop.me, provided{Provider: laptop.Provider}))
	if mode.company == "the company" {
		mode.company = company.me.ID().String()
	}
	laptop.Mode = mode
	peer := company.peer(t, "bob")
	peer.Status = acceptedPeer("bob", laptop.me.ID()).Status
	peer.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany}
	if err := company.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	peer.Spec.Tethered, peer.Spec.Request = &v1alpha1.Tethered{}, &v1alpha1.ResourceRequest{Attempt: 1}
	if err := company.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	company.look(t)
	return laptop, company
}

// Whatever her policy shares, and be it nothing: she said so herself. What her own pods have is not the company's.
func TestTheCompanyGetsAllThatIsFree(t *testing.T) {
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: corev1.PodSpec{NodeName: "bob", Containers: []corev1.Container{{
		Name: "db", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1500m", "memory", "2Gi")},
	}}}}
	policy := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.SharingPolicySpec{
		Amounts: map[string]v1alpha1.Amount{"cpu": "10%"}, Paused: true, PodSecurity: v1alpha1.PodSecurityRestricted,
	}}
	laptop, company := companyOf(t, of{"the company", true}, own, policy)
	company.until(t, "signed", func(out v1alpha1.DirectionStatus) bool { return out.Contract != "" })
	ctr := company.contracts(t)[0]
	for name, want := range list("cpu", "6500m", "memory", "14Gi", "pods", "100") {
		if has := ctr.Spec.Resources[name]; has.Cmp(want) != 0 {
			t.Errorf("%s %s, want %s", name, has.String(), want.String())
		}
	}
	if !strings.Contains(string(ctr.Spec.Document), `"podSecurity":"restricted"`) {
		t.Errorf("the owner's level does not hold: %s", ctr.Spec.Document)
	}
	if left := laptop.requests(t); len(left) > 0 {
		t.Errorf("left at the laptop: %+v", left)
	}
	// Nobody else gets anything meanwhile.
	carol := newAsker(t, laptop.me.ID(), serveHandler(t, laptop.me, provided{Provider: laptop.Provider}))
	carol.ask(t, 1, nil)
	out := carol.until(t, "refused", func(out v1alpha1.DirectionStatus) bool { return out.State == v1alpha1.StateDeclined })
	if !strings.Contains(out.Why, "another cluster has all of it") {
		t.Error(out.Why)
	}
}

func TestALaptopThatIsNotTetheredSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		mode  of
		why   string
		ended bool
	}{
		"it took itself back":     {of{}, "this laptop is not tethered to you", true},
		"it is another's":         {of{"OTHER", true}, "this laptop is not tethered to you", true},
		"it is not so far":        {of{"the company", false}, "at another step of its tether", false},
		"it is so far, of course": {of{"the company", true}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			laptop, company := companyOf(t, c.mode)
			out := company.until(t, "answered", func(out v1alpha1.DirectionStatus) bool {
				return out.State == v1alpha1.StateDeclined || out.Contract != ""
			})
			if !strings.Contains(out.Why, c.why) || len(laptop.requests(t)) > 0 {
				t.Errorf("%+v, %d requests", out, len(laptop.requests(t)))
			}
			if ended := company.peer(t, "bob").Status.Tether.Step == v1alpha1.TetherStepRefused; ended != c.ended {
				t.Errorf("ended is %t", ended)
			}
		})
	}
}

func TestATetheredLaptopAsksNobody(t *testing.T) {
	b := newBob(t)
	laptop := newAsker(t, b.me.ID(), serveHandler(t, b.me, provided{Provider: b.Provider}))
	laptop.r.Mode = of{"CORP", true}
	laptop.ask(t, 1, nil)
	out := laptop.until(t, "over", func(out v1alpha1.DirectionStatus) bool { return out.State == v1alpha1.StateDeclined })
	if !strings.Contains(out.Why, "this laptop is tethered") || len(b.requests(t)) > 0 {
		t.Errorf("%q, %d requests", out.Why, len(b.requests(t)))
	}
}

// What the company had of the laptop by an ordinary contract is no bound for the tether.
func TestAnOrdinaryContractGrowsToAll(t *testing.T) {
	w := newBetween(t, list("cpu", "1", "memory", "1Gi", "pods", "5"))
	w.bob.Mode = of{w.alice.me.ID().String(), true}
	peer := w.alice.peer(t, "bob")
	peer.Spec.Tethered, peer.Spec.Request = &v1alpha1.Tethered{}, &v1alpha1.ResourceRequest{Attempt: 2}
	if err := w.alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	if err := w.alice.r.ask(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	w.alice.until(t, "signed", func(out v1alpha1.DirectionStatus) bool { return out.RequestID == "" && out.Attempt == 2 })
	if all := w.alice.contracts(t); len(all) != 1 || all[0].Spec.Revision != 2 || all[0].Spec.Resources.Cpu().String() != "8" {
		t.Errorf("%+v", all)
	}
}

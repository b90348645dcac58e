package offloading

import (
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

// meter is a purse from which so much an hour is spent since a moment.
type meter struct {
	priced  map[string]string
	perHour *big.Rat
	from    time.Time
}

func (m *meter) Currencies() map[string]string { return m.priced }

func (m *meter) Changed() <-chan struct{} { return nil }

func (m *meter) Spent(_, currency string, since time.Time) (spent, perHour *big.Rat, err error) {
	if currency != "EUR" {
		return new(big.Rat), new(big.Rat), nil
	}
	if m.from.After(since) {
		since = m.from
	}
	hours := big.NewRat(int64(time.Since(since)), int64(time.Hour))
	return hours.Mul(hours, m.perHour), m.perHour, nil
}

func TestPeriods(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, c := range []struct {
		of                v1alpha1.BudgetPeriod
		now, since, until string
	}{
		{v1alpha1.BudgetHour, "2026-11-30 09:20", "2026-11-30 09:00", "2026-11-30 10:00"},
		{v1alpha1.BudgetDay, "2026-11-30 00:00", "2026-11-30 00:00", "2026-12-01 00:00"},
		{v1alpha1.BudgetWeek, "2026-11-29 23:59", "2026-11-23 00:00", "2026-11-30 00:00"}, // a Sunday
		{v1alpha1.BudgetWeek, "2026-11-30 00:00", "2026-11-30 00:00", "2026-12-07 00:00"},
		{v1alpha1.BudgetMonth, "2028-02-29 12:00", "2028-02-01 00:00", "2028-03-01 00:00"},
		{v1alpha1.BudgetMonth, "2026-12-31 23:59", "2026-12-01 00:00", "2027-01-01 00:00"},
	} {
		zone := time.FixedZone("east", 5*3600)
		if since, until := Period(c.of, at(c.now).In(zone)); !since.Equal(at(c.since)) || !until.Equal(at(c.until)) {
			t.Errorf("%s of %s: %s to %s", c.of, c.now, since, until)
		}
	}
}

// pending is a pod for which the scheduler found no node.
func pending(name string, tolerations ...corev1.Toleration) *corev1.Pod {
	p := abroad(name)
	p.Spec.NodeName, p.Spec.Tolerations = "", tolerations
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	return p
}

// A budget of a day, over two days: it is told at four fifths and when it is spent, closes the peers at its prices and opens them again at midnight.
func TestABudgetClosesPeersUntilItsPeriodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)))
		nso := offloaded(v1alpha1.NamespaceOffloadingSpec{Budget: &v1alpha1.NamespaceBudget{Amount: "5 EUR", Period: v1alpha1.BudgetDay}})
		c := world(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}, nso, abroad("runs"))
		r, recorder := New(c, c, &released{}, slog.New(slog.DiscardHandler)), events.NewFakeRecorder(20)
		purse := &meter{map[string]string{"bob": "EUR", "carol": "USD", "dave": ""}, big.NewRat(1, 1), time.Now()}
		r.events, r.Purse = recorder, purse
		looks := 0
		now := func() (*v1alpha1.BudgetStatus, map[string]string) {
			var ns corev1.Namespace
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil {
				t.Fatal(err)
			}
			return nso.Status.Budget, ns.Annotations
		}
		until := func(end time.Time) { // looks when it said it would
			for time.Now().Before(end) {
				result, err := r.Reconcile(t.Context(), shop)
				if err != nil {
					t.Fatal(err)
				}
				if looks++; result.RequeueAfter <= 0 {
					t.Fatal("nobody looks again")
				}
				time.Sleep(min(result.RequeueAfter, time.Until(end)))
			}
			if _, err := r.Reconcile(t.Context(), shop); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		said := func(want string) {
			t.Helper()
			select {
			case got := <-recorder.Events:
				if want == "" || !strings.Contains(got, want) {
					t.Errorf("%q is told, want %q", got, want)
				}
			default:
				if want != "" {
					t.Errorf("nothing is told, want %q", want)
				}
			}
		}
		closed := func(want ...v1alpha1.ClosedPeer) {
			t.Helper()
			if is, _ := now(); !slices.Equal(is.Closed, want) {
				t.Errorf("closed: %v, want %v", is.Closed, want)
			}
		}
		bob, carol := v1alpha1.ClosedPeer{Peer: "bob", Reason: v1alpha1.ClosedSpent}, v1alpha1.ClosedPeer{Peer: "carol", Reason: v1alpha1.ClosedOtherCurrency}

		until(begin.Add(4*time.Hour - 2*time.Minute))
		said("")
		closed(carol)
		if is, notes := now(); is.State != v1alpha1.BudgetWithin || notes[v1alpha1.AnnotationBudgetOpen] != "bob,dave" || notes[v1alpha1.AnnotationBudgetClosed] != "carol/OtherCurrency" {
			t.Errorf("%+v, %v", is, notes)
		}
		until(begin.Add(4*time.Hour + 2*time.Second))
		said("Warning BudgetNearlySpent 4.0")
		until(begin.Add(5*time.Hour + 2*time.Second))
		said("Warning BudgetSpent 5.0")
		said("")
		closed(bob, carol)
		if is, notes := now(); is.State != v1alpha1.BudgetSpent || notes[v1alpha1.AnnotationBudgetOpen] != "dave" || notes[v1alpha1.AnnotationBudgetClosed] != "bob/Spent,carol/OtherCurrency" {
			t.Errorf("%+v, %v", is, notes)
		}
		for peer, want := range map[string]Permit{"bob": Closed, "carol": Closed, "dave": Granted, "erin": Granted} {
			if permit, why := PermitOf("shop", nso, peer); permit != want || want == Closed && !strings.Contains(why, "budget of 5 EUR/day") {
				t.Errorf("%s: %v, %q", peer, permit, why)
			}
		}
		// Those that wait say why, each once; what could go to dave gets what it lacks for bob later.
		everywhere := pending("older", corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists})
		some := pending("newer", corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: "dave"})
		some.Annotations = map[string]string{v1alpha1.AnnotationNarrowed: "true"}
		everywhere.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError // it could not be bound
		own := pending("own", corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: "dave"})
		late := pending("late") // made while all were closed
		for _, p := range []*corev1.Pod{everywhere, some, own, late} {
			if err := c.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if !stuckOrLeft().CreateFunc(event.CreateEvent{Object: p}) && p != own {
				t.Error("a pod that waits for the budget is no news")
			}
		}
		until(time.Now().Add(time.Hour))
		for range 4 {
			said("Warning BudgetSpent namespace shop has spent its budget of 5 EUR/day, and bob has a price: no more of its pods go there until 2026-12-01 00:00 UTC")
		}
		said("")
		tolerated := func(p *corev1.Pod) (list []string) {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			for _, t := range p.Spec.Tolerations {
				list = append(list, string(t.Operator)+t.Value)
			}
			return list
		}
		for _, p := range []*corev1.Pod{some, late} {
			if got := tolerated(p); !slices.Equal(got, []string{"Equaldave"}) {
				t.Errorf("%s: %v", p.Name, got)
			}
		}
		if is, _ := now(); is.Spent == "" || looks > 110 {
			t.Errorf("%d looks, %+v", looks, is)
		}

		until(time.Date(2026, 12, 1, 0, 0, 1, 0, time.UTC))
		said("Normal BudgetRenewed")
		closed(carol)
		for _, p := range []*corev1.Pod{some, late} {
			if got := tolerated(p); len(got) != 2 || !slices.Contains(got, "Equaldave") || !slices.Contains(got, "Equalbob") {
				t.Errorf("%s: %v", p.Name, got)
			}
		}
		if got := tolerated(own); !slices.Equal(got, []string{"Equaldave"}) {
			t.Errorf("its owner's word was changed: %v", got)
		}
		var runs corev1.Pod
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(abroad("runs")), &runs); err != nil || runs.DeletionTimestamp != nil {
			t.Errorf("the pod that ran: %v", err)
		}
		// Nothing else is priced, and then there is no budget any more: nothing is left of it.
		purse.priced = map[string]string{"bob": "EUR"}
		until(time.Now().Add(time.Second))
		if _, notes := now(); notes[v1alpha1.AnnotationBudgetClosed] != "" {
			t.Error(notes)
		}
		nso.Spec.Budget = nil
		if err := c.Update(t.Context(), nso); err != nil {
			t.Fatal(err)
		}
		if result, err := r.Reconcile(t.Context(), shop); err != nil || result.RequeueAfter != 0 {
			t.Errorf("%v, %v", result, err)
		}
		if is, _ := now(); is != nil {
			t.Errorf("%+v", is)
		}
		if got := tolerated(some); !slices.Equal(got, []string{"Equaldave", "Equalbob", "Exists"}) {
			t.Error(got)
		}
	})
}

// What runs at peers goes on costing when a budget is spent, or is nothing at all. That is told seldom: each write of the status is one more look.
func TestASpentBudgetIsToldSeldom(t *testing.T) {
	for _, amount := range []string{"0 EUR", "0.000001 EUR", "1 EUR"} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)))
			begin := time.Now()
			time.Sleep(time.Hour) // it began to run
			budget := v1alpha1.NamespaceBudget{Amount: amount, Period: v1alpha1.BudgetDay}
			purse := &meter{nil, big.NewRat(2, 1), begin}
			var before *v1alpha1.BudgetStatus
			writes := 0
			for range 23*3600 - 1 { // somebody looks each second
				spent, perHour, _ := purse.Spent("shop", "EUR", begin)
				is, _, err := assess(budget, nil, map[string]string{"bob": "EUR"}, spent, perHour, time.Now(), before)
				if err != nil || is.State != v1alpha1.BudgetSpent {
					t.Fatalf("%+v, %v", is, err)
				}
				if before == nil || is.Spent != before.Spent {
					writes++
				}
				if last, ok := new(big.Rat).SetString(is.Spent); !ok || last.Mul(last, big.NewRat(102, 100)).Cmp(spent) < 0 {
					t.Fatalf("%s are told of %s", is.Spent, spent.FloatString(9))
				}
				before = is
				time.Sleep(time.Second)
			}
			if writes > 350 {
				t.Errorf("%s: it is told %d times", amount, writes)
			}
		})
	}
}

func TestHowABudgetStands(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	daily := func(amount string) v1alpha1.NamespaceBudget {
		return v1alpha1.NamespaceBudget{Amount: amount, Period: v1alpha1.BudgetDay}
	}
	since := metav1.NewTime(noon.Add(-12 * time.Hour))
	for name, c := range map[string]struct {
		budget         v1alpha1.NamespaceBudget
		peers          []string
		spent, perHour *big.Rat
		before         *v1alpha1.BudgetStatus
		state          v1alpha1.BudgetState
		told           string
		closed         int
		next           time.Duration
	}{
		"nothing is spent":            {daily("5 EUR"), nil, big.NewRat(0, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetWithin, "0", 1, 12 * time.Hour},
		"it is being spent":           {daily("5 EUR"), nil, big.NewRat(39, 10), big.NewRat(1, 1), nil, v1alpha1.BudgetWithin, "3.9", 1, 3*time.Minute + time.Millisecond},
		"almost nearly":               {daily("5 EUR"), nil, big.NewRat(3999, 1000), big.NewRat(1, 1), nil, v1alpha1.BudgetWithin, "3.999", 1, 3600*time.Millisecond + time.Millisecond},
		"nearly":                      {daily("5 EUR"), nil, big.NewRat(4, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetNearly, "4", 1, 12 * time.Hour},
		"all":                         {daily("5 EUR"), nil, big.NewRat(5, 1), big.NewRat(9, 1), nil, v1alpha1.BudgetSpent, "5", 2, 12 * time.Hour},
		"more":                        {daily("5 EUR"), nil, big.NewRat(50, 3), big.NewRat(9, 1), nil, v1alpha1.BudgetSpent, "16.666666666", 2, 12 * time.Hour},
		"a budget of nothing":         {daily("0 EUR"), nil, big.NewRat(0, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetSpent, "0", 2, 12 * time.Hour},
		"slower than the period":      {daily("5 EUR"), nil, big.NewRat(0, 1), big.NewRat(1, 1000), nil, v1alpha1.BudgetWithin, "0", 1, 12 * time.Hour},
		"faster than anybody looks":   {daily("0.000000001 EUR"), nil, big.NewRat(0, 1), big.NewRat(1, 1), nil, v1alpha1.BudgetWithin, "0", 1, time.Second},
		"for free peers and bob":      {daily("5 EUR"), []string{"bob", "dave"}, big.NewRat(5, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetSpent, "5", 1, 12 * time.Hour},
		"for free peers":              {daily("5 EUR"), []string{"dave"}, big.NewRat(5, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetSpent, "5", 0, 12 * time.Hour},
		"in what nobody is paid in":   {daily("5 credits"), nil, big.NewRat(0, 1), big.NewRat(0, 1), nil, v1alpha1.BudgetWithin, "0", 2, 12 * time.Hour},
		"it was said a little before": {daily("5 EUR"), nil, big.NewRat(104, 100), big.NewRat(0, 1), &v1alpha1.BudgetStatus{NamespaceBudget: daily("5 EUR"), Since: since, State: v1alpha1.BudgetWithin, Spent: "1"}, v1alpha1.BudgetWithin, "1", 1, 12 * time.Hour},
		"it was said of another":      {daily("5 EUR"), nil, big.NewRat(104, 100), big.NewRat(0, 1), &v1alpha1.BudgetStatus{NamespaceBudget: daily("6 EUR"), Since: since, State: v1alpha1.BudgetWithin, Spent: "1"}, v1alpha1.BudgetWithin, "1.04", 1, 12 * time.Hour},
		"the receipt says less":       {daily("5 EUR"), nil, big.NewRat(104, 100), big.NewRat(0, 1), &v1alpha1.BudgetStatus{NamespaceBudget: daily("5 EUR"), Since: since, State: v1alpha1.BudgetWithin, Spent: "1.08"}, v1alpha1.BudgetWithin, "1.04", 1, 12 * time.Hour},
		"the day before it was spent": {daily("5 EUR"), nil, big.NewRat(1, 1), big.NewRat(0, 1), &v1alpha1.BudgetStatus{NamespaceBudget: daily("5 EUR"), Since: metav1.NewTime(noon.Add(-36 * time.Hour)), State: v1alpha1.BudgetSpent, Spent: "5"}, v1alpha1.BudgetWithin, "1", 1, 12 * time.Hour},
	} {
		is, next, err := assess(c.budget, c.peers, map[string]string{"bob": "EUR", "carol": "USD", "dave": ""}, c.spent, c.perHour, noon, c.before)
		if err != nil || is.State != c.state || is.Spent != c.told || len(is.Closed) != c.closed || next.Round(time.Millisecond) != c.next {
			t.Errorf("%s: %+v, next in %s, %v", name, is, next, err)
		}
	}
	if _, _, err := assess(v1alpha1.NamespaceBudget{Amount: "5"}, nil, nil, new(big.Rat), new(big.Rat), noon, nil); err == nil {
		t.Error("a budget without a currency is one")
	}
}

package backend

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

// The wait for pods that come home is bounded, and what it says then names the budget that holds them, and what to do.
func TestUnoffloadSaysWhatHoldsThePods(t *testing.T) {
	const why = "pod web stays at bob: The disruption budget web needs 2 healthy pods and has 2 currently"
	synctest.Test(t, func(t *testing.T) {
		nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, Finalizers: []string{v1alpha1.FinalizerOffloading}}}
		live := fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(nso).WithObjects(nso).Build()
		c := &Cluster{Client: ledgertest.Over(t, live), Fresh: live}
		var said []string
		unoffload := func(ctx context.Context, o api.UnoffloadOptions) *api.Error {
			said = nil
			began := time.Now()
			err := c.unoffload(ctx, "shop", o, func(p api.Progress) { said = append(said, p.Message) })
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeTimeout || time.Since(began) != o.Wait {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			return e
		}
		now := func() *v1alpha1.NamespaceOffloading {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil {
				t.Fatal(err)
			}
			return nso
		}

		if e := unoffload(t.Context(), api.UnoffloadOptions{Wait: time.Minute}); strings.Contains(e.Do, "--force") {
			t.Errorf("no budget holds anything: %+v", e)
		}
		if now().DeletionTimestamp == nil {
			t.Fatal("nothing was begun")
		}
		meta.SetStatusCondition(&nso.Status.Conditions, metav1.Condition{Type: offloading.ConditionPodsEvicted, Status: metav1.ConditionFalse, Reason: "DisruptionBudget", Message: why})
		if err := c.Client.Status().Update(t.Context(), nso); err != nil {
			t.Fatal(err)
		}
		if e := unoffload(t.Context(), api.UnoffloadOptions{Wait: time.Second}); e.Reason != why || !strings.Contains(e.Do, "kith unoffload shop --force") || len(said) != 2 || said[1] != why {
			t.Errorf("%+v, said %q", e, said)
		}
		if now().Annotations[v1alpha1.AnnotationForce] != "" {
			t.Error("forced without being told to")
		}
		if unoffload(t.Context(), api.UnoffloadOptions{Wait: time.Second, Force: true}); now().Annotations[v1alpha1.AnnotationForce] != "true" {
			t.Error("not forced when told to, on the way home")
		}

		// Nobody waits any more: that is no fault of the pods.
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := c.unoffload(gone, "shop", api.UnoffloadOptions{Wait: time.Minute}, func(api.Progress) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		home := make(chan error)
		go func() { home <- c.unoffload(t.Context(), "shop", api.UnoffloadOptions{}, func(api.Progress) {}) }()
		time.Sleep(time.Hour)
		now().Finalizers = nil
		if err := c.Client.Update(t.Context(), nso); err != nil {
			t.Fatal(err)
		}
		c.Changed.Notify()
		if err := <-home; err != nil {
			t.Errorf("%v", err)
		}
	})
}

// fixed is a purse of which only the prices are asked.
type fixed map[string]string

func (f fixed) Currencies() map[string]string { return f }

func (fixed) Changed() <-chan struct{} { return nil }

func (fixed) Spent(string, string, time.Time) (spent, perHour *big.Rat, err error) {
	return nil, nil, errors.New("nobody counted")
}

func TestABudgetWithoutACurrency(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		priced fixed
		want   string // "" when it is refused, for the reason
		why    string
	}{
		"with one":            {"5 EUR/day", nil, "5 EUR Day", ""},
		"without a space":     {"0.5credits/month", fixed{"bob": "EUR"}, "0.5 credits Month", ""},
		"that of the prices":  {"5/week", fixed{"bob": "EUR", "carol": "", "dave": "EUR"}, "5 EUR Week", ""},
		"there are several":   {"5/hour", fixed{"bob": "USD", "carol": "EUR"}, "", "EUR, USD"},
		"there is none":       {"5/hour", fixed{"bob": ""}, "", "no peer has prices yet"},
		"no period":           {"5 EUR", nil, "", "hour, day, week or month"},
		"less than nothing":   {"-5 EUR/day", nil, "", "hour, day, week or month"},
		"two places too many": {"5.00000000001 EUR/day", nil, "", "hour, day, week or month"},
	} {
		cluster := &Cluster{Offloading: &offloading.Reconciler{Purse: c.priced}}
		b, err := cluster.budgetOf(c.text)
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v, want %q", name, err, c.why)
		case c.want != "" && (err != nil || b.Amount+" "+string(b.Period) != c.want):
			t.Errorf("%s: %+v, %v, want %s", name, b, err, c.want)
		}
	}
}

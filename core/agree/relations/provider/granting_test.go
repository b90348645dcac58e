package provider

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// share has bob share other amounts from now on.
func (d *world) share(t *testing.T, change func(*v1alpha1.SharingPolicySpec)) {
	t.Helper()
	var policy v1alpha1.SharingPolicy
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
		t.Fatal(err)
	}
	change(&policy.Spec)
	if err := d.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
}

// offered is what the caller hears of its accepted request.
func (d *world) offered(t *testing.T, who peering.Caller, id string) map[string]string {
	t.Helper()
	outcome, err := d.Outcome(t.Context(), who, id)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Offer == nil {
		return map[string]string{"declined": outcome.Reason}
	}
	return outcome.Offer.Resources
}

func everything(s *v1alpha1.SharingPolicySpec) {
	for name := range s.Amounts {
		s.Amounts[name] = "100%"
	}
	s.Amounts["example.com/fpga"] = "1"
}

// Whatever became free between what the owner read and his yes, or after it, is not granted by it; what is gone by then is not
// granted either.
func TestAYesGivesNoMoreThanWasShown(t *testing.T) {
	half := list("cpu", "4", "memory", "8Gi", "pods", "55")
	less := func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "1" }
	for name, c := range map[string]struct {
		shown         corev1.ResourceList
		before, after func(*v1alpha1.SharingPolicySpec)
		want          string
	}{
		"nothing moves":                {half, nil, nil, "cpu 4, memory 8Gi, pods 55"},
		"more is free by then":         {half, everything, nil, "cpu 4, memory 8Gi, pods 55"},
		"more is free afterwards":      {half, nil, everything, "cpu 4, memory 8Gi, pods 55"},
		"less is free by then":         {half, less, nil, "cpu 1, memory 8Gi, pods 55"},
		"less is free afterwards":      {half, nil, less, "cpu 1, memory 8Gi, pods 55"},
		"less, and more again":         {half, less, everything, "cpu 1, memory 8Gi, pods 55"},
		"shown nothing, as a script":   {nil, everything, nil, "cpu 8, memory 16Gi, pods 110, example.com/fpga 1"},
		"a script, and more is free":   {nil, nil, everything, "cpu 4, memory 8Gi, pods 55"},
		"the owner says less himself":  {list("cpu", "1", "memory", "1Gi", "pods", "5"), nil, nil, "cpu 1, memory 1Gi, pods 5"},
		"what was not shown is absent": {list("cpu", "4", "memory", "8Gi"), nil, nil, "declined it was accepted when no pods could be granted"},
	} {
		t.Run(name, func(t *testing.T) {
			d, alice := newWorld(t), stranger(1, "192.0.2.11")
			id, err := d.ask(t, alice, "alice")
			if err != nil {
				t.Fatal(err)
			}
			r := d.requests(t)[0]
			if grant, err := d.Grant(t.Context(), &r); err != nil || !sharing.Same(grant.Resources, half) || grant.Summary != "cpu 4, memory 8Gi, pods 55" {
				t.Fatalf("would get %+v, %v", grant, err)
			}
			if c.before != nil {
				d.share(t, c.before)
			}
			if err := d.Accept(t.Context(), &r, c.shown, ""); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				d.share(t, c.after)
			}
			if got := api.Resources(d.offered(t, alice, id)).String(); got != c.want {
				t.Errorf("offered %s, want %s", got, c.want)
			}
		})
	}
}

// What kubectl shows of a request follows the policy while the request waits, and an answer ends that: it is to what was shown.
func TestARequestSaysWhatAYesGivesWhileItWaits(t *testing.T) {
	d, alice := newWorld(t), stranger(1, "192.0.2.11")
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	look := func() v1alpha1.PeeringRequest {
		t.Helper()
		if _, err := d.Provider.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}); err != nil {
			t.Fatal(err)
		}
		return d.requests(t)[0]
	}
	says := func(want string) v1alpha1.PeeringRequest {
		t.Helper()
		r := look()
		if r.Status.Grant == nil || r.Status.Grant.Summary != want {
			t.Errorf("says %+v, want %s", r.Status.Grant, want)
		}
		return r
	}
	r := says("cpu 4, memory 8Gi, pods 55")
	before := d.writes.Load()
	if look(); d.writes.Load() != before {
		t.Error("it is written again though nothing changed")
	}
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = true })
	says("nothing: sharing is paused (SharingPolicy default)")
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused, s.Amounts["cpu"] = false, "3" })
	stale := says("cpu 3, memory 8Gi, pods 55")
	accepted := stale.DeepCopy()
	if err := answer(t.Context(), d.client, accepted, v1alpha1.AnswerAccepted, "", ""); err != nil {
		t.Fatal(err)
	}
	d.share(t, everything)
	if err := d.keepGrant(t.Context(), &stale); !apierrors.IsConflict(err) { // a cache that has not seen the answer
		t.Errorf("what was accepted was changed afterwards: %v", err)
	}
	says("cpu 3, memory 8Gi, pods 55")
	if got := d.offered(t, alice, id)["cpu"]; got != "3" {
		t.Errorf("offered cpu %s", got)
	}
	// An answer to what was read a moment ago, while what a yes gives is written: it is tried again.
	if err := d.client.Delete(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ask(t, alice, "alice"); err != nil {
		t.Fatal(err)
	}
	r = d.requests(t)[0]
	id = r.Name
	look()
	if err := d.Accept(t.Context(), &r, list("cpu", "2", "memory", "1Gi", "pods", "5"), ""); err != nil {
		t.Error(err)
	}
	if err := d.Accept(t.Context(), &r, nil, ""); err == nil {
		t.Error("accepted twice")
	}
	if got := d.offered(t, alice, id)["cpu"]; got != "2" {
		t.Errorf("offered cpu %s", got)
	}
}

// Nobody says yes to nothing: the request waits until there is something.
func TestWhatGivesNothingCannotBeAccepted(t *testing.T) {
	d, alice := newWorld(t), stranger(1, "192.0.2.11")
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = true })
	r := d.requests(t)[0]
	var nothing *sharing.Refusal
	if err := d.Accept(t.Context(), &r, nil, ""); !errors.As(err, &nothing) || !Pending(&d.requests(t)[0]) {
		t.Errorf("%v", err)
	}
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = false })
	if err := d.Accept(t.Context(), &r, nil, ""); err != nil || d.offered(t, alice, id)["cpu"] != "4" {
		t.Error(err)
	}
}

// Whoever asks where there is nothing for him hears so at once, and knew before: no question is left that no yes could answer.
func TestWhereThereIsNothingThatIsSaidAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		policy func(*v1alpha1.SharingPolicySpec)
		state  peering.SupplyState
		why    string
	}{
		"paused":             {func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }, peering.SupplyPaused, "sharing is paused"},
		"no pods":            {func(s *v1alpha1.SharingPolicySpec) { delete(s.Amounts, "pods") }, peering.SupplyNothing, "offers no pods"},
		"none, by itself":    {func(s *v1alpha1.SharingPolicySpec) { delete(s.Amounts, "pods"); s.AutoAccept = true }, peering.SupplyNothing, "offers no pods"},
		"for somebody else":  {func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{"carol"} }, peering.SupplyNothing, "no SharingPolicy here offers anything to this peer"},
		"there is something": {func(*v1alpha1.SharingPolicySpec) {}, peering.SupplySome, ""},
	} {
		policy := sharing.Default(50)
		c.policy(&policy.Spec)
		d, alice := newWorld(t, policy), stranger(1, "192.0.2.11")
		gives, err := d.WouldGive(t.Context(), alice)
		if err != nil || gives.State != c.state || !strings.Contains(gives.Why, c.why) || (len(gives.Resources) > 0) != (c.state == peering.SupplySome) || gives.Validate() != nil {
			t.Errorf("%s: would give %+v, %v", name, gives, err)
		}
		_, err = d.ask(t, alice, "alice")
		if c.state == peering.SupplySome {
			if err != nil || len(d.requests(t)) != 1 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var no *peering.Problem
		if !errors.As(err, &no) || no.Code != peering.CodeDeclined || !strings.Contains(no.Message, c.why) || len(d.requests(t)) != 0 {
			t.Errorf("%s: asked: %v, %d requests", name, err, len(d.requests(t)))
		}
	}
}

// Room for volumes is promised to those who ask for it, so whoever looks before asking hears of it.
func TestStorageThatCanBeAskedForIsTold(t *testing.T) {
	policy := sharing.Default(50)
	policy.Spec.Amounts["storage"] = "20Gi"
	d, alice := newWorld(t, policy), stranger(1, "192.0.2.11")
	gives, err := d.WouldGive(t.Context(), alice)
	if err != nil || gives.Resources["storage"] != "20Gi" {
		t.Errorf("would give %v, %v", gives.Resources, err)
	}
}

// A laptop that has just woken gives nothing for some moments. Nobody decided that, so the question waits for its owner as any other.
func TestWhileNoNodeTakesGuestsQuestionsWait(t *testing.T) {
	d, alice := newWorld(t), stranger(1, "192.0.2.11")
	var nodes corev1.NodeList
	if err := d.client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		delete(node.Labels, v1alpha1.LabelFenced)
		if err := d.client.Update(t.Context(), &node); err != nil {
			t.Fatal(err)
		}
	}
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	r := d.requests(t)[0]
	var nothing *sharing.Refusal
	if err := d.Accept(t.Context(), &r, nil, ""); !errors.As(err, &nothing) || !Pending(&d.requests(t)[0]) {
		t.Errorf("%v", err)
	}
	for _, node := range nodes.Items {
		if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(&node), &node); err != nil {
			t.Fatal(err)
		}
		metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelFenced, "true")
		if err := d.client.Update(t.Context(), &node); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Accept(t.Context(), &r, nil, ""); err != nil || d.offered(t, alice, id)["cpu"] != "4" {
		t.Error(err)
	}
}

// A cluster that can take no guests in says so before anybody is asked.
func TestWhoCanTakeNoGuestsInSaysSo(t *testing.T) {
	d := newWorld(t)
	d.NoGuests = "its network plugin gives pods their addresses"
	_, _, err := d.Ask(t.Context(), peering.Caller{ID: load(t).ID()}, peering.Question{Name: "alice", Attempt: 1}, "123456", false)
	var problem *peering.Problem
	if !errors.As(err, &problem) || problem.Code != peering.CodeDeclined || problem.Message != "it can take no guests in: its network plugin gives pods their addresses" {
		t.Error(err)
	}
	var requests v1alpha1.PeeringRequestList
	if err := d.client.List(t.Context(), &requests); err != nil || len(requests.Items) != 0 {
		t.Errorf("%d requests, %v", len(requests.Items), err)
	}
}

package company

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

func TestAnAcceptedLaptopIsRun(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "edit"), in("own-{laptop}", "")), accepted(alice, "owner"))
	for range 2 { // the second time it says how it is
		got, err := w.BeginTether(t.Context(), caller(alice))
		if err != nil || !got.Runs || got.Answer != peering.TetherYes || got.Grant == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		if want := []peering.TetherNamespace{{Name: "team", Role: "edit"}, {Name: "own-alice", Role: "edit"}}; !slices.Equal(got.Grant.Namespaces, want) {
			t.Errorf("%+v", got.Grant)
		}
		// The laptop's users need not wait for it.
		if got := w.bindings(); len(got) != 2 {
			t.Errorf("rights: %v", got)
		}
	}
	p := w.peer("alice")
	if p.Spec.Tethered == nil || p.Spec.Tethered.Policy != "staff" || p.Spec.Request == nil || p.Spec.Request.Attempt != 1 || p.Spec.Request.Tether || !sharing.Accepted(p) {
		t.Errorf("%+v %+v", p.Spec, p.Status)
	}
	var requests v1alpha1.PeeringRequestList
	if err := w.client.List(t.Context(), &requests); err != nil || len(requests.Items) != 0 {
		t.Errorf("the request is used up: %v, %v", requests.Items, err)
	}
	if got, err := w.Tether(t.Context(), caller(alice)); err != nil || !got.Runs {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatWasNotAcceptedIsNotRun(t *testing.T) {
	late := accepted(alice, "owner")
	late.Spec.Expires = metav1.NewTime(time.Now().Add(-time.Second))
	ordinary := accepted(alice, "owner")
	ordinary.Spec.Tether = false
	declined := accepted(alice, "owner")
	declined.Status.Answer = v1alpha1.AnswerDeclined
	for name, c := range map[string]struct {
		objects []client.Object
		want    peering.Code
	}{
		"a stranger":                      {nil, peering.CodeForbidden},
		"another's request":               {[]client.Object{accepted(bob, "owner")}, peering.CodeForbidden},
		"too late":                        {[]client.Object{late}, peering.CodeForbidden},
		"a request for resources":         {[]client.Object{ordinary}, peering.CodeForbidden},
		"declined":                        {[]client.Object{declined}, peering.CodeForbidden},
		"given back":                      {[]client.Object{laptop("alice", alice)}, peering.CodeNotFound},
		"by one that is a laptop itself":  {[]client.Object{accepted(alice, "owner"), laptop("corp", bob, func(p *v1alpha1.Peer) { p.Spec.Request = &v1alpha1.ResourceRequest{Tether: true} })}, peering.CodeConflict},
		"by one that it is run by itself": {[]client.Object{accepted(alice, "owner"), laptop("alice", alice, func(p *v1alpha1.Peer) { p.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherLaptop} })}, peering.CodeConflict},
	} {
		w := newWorld(t, append(c.objects, policy("staff", in("team", "edit")))...)
		if got, err := w.BeginTether(t.Context(), caller(alice)); !errors.Is(err, &peering.Problem{Code: c.want}) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, c.want)
		}
		if got := w.bindings(); len(got) != 0 {
			t.Errorf("%s: rights %v", name, got)
		}
		// To ask how it stands is never answered by nothing.
		if got, err := w.Tether(t.Context(), caller(alice)); err != nil || got.Runs || got.Validate() != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Whose key nobody compared does not become somebody whose name counts.
func TestAcceptedKeys(t *testing.T) {
	withoutCode := accepted(alice, "owner")
	withoutCode.Spec.Code = ""
	for name, c := range map[string]struct {
		request *v1alpha1.PeeringRequest
		policy  *v1alpha1.TetherPolicy
		want    bool
	}{
		"by the code":                        {accepted(alice, "owner"), policy("staff"), true},
		"without a code":                     {withoutCode, policy("staff"), false},
		"by a policy that names the ID":      {accepted(alice, "policy staff"), policy("staff", func(s *v1alpha1.TetherPolicySpec) { s.Peers = []string{alice.Compact()} }), true},
		"by a policy that takes who comes":   {accepted(alice, "policy staff"), policy("staff"), false},
		"by a policy that is not there more": {accepted(alice, "policy gone"), policy("staff"), false},
	} {
		w := newWorld(t, c.request, c.policy)
		if _, err := w.BeginTether(t.Context(), caller(alice)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := sharing.Accepted(w.peer("alice")); got != c.want {
			t.Errorf("%s: accepted %v, want %v", name, got, c.want)
		}
	}
}

// The contract that there is goes over into the tether, and comes under no other number than the next.
func TestAnOrdinaryContractGoesOver(t *testing.T) {
	w := newWorld(t, policy("staff"), accepted(alice, "owner"), laptop("alice", alice, func(p *v1alpha1.Peer) {
		p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 3, Resources: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	}, outgoing(v1alpha1.StateConnected, 5)))
	if _, err := w.BeginTether(t.Context(), caller(alice)); err != nil {
		t.Fatal(err)
	}
	if r := w.peer("alice").Spec.Request; r.Attempt != 6 || len(r.Resources) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestALaptopTakesItselfBack(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "edit")), laptop("alice", alice, tethered, outgoing(v1alpha1.StateConnected, 1)))
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 1 {
		t.Fatal(got)
	}
	for range 2 {
		if err := w.EndTether(t.Context(), caller(alice)); err != nil {
			t.Fatal(err)
		}
		p := w.peer("alice")
		if p.Spec.Tethered != nil || p.Spec.Request != nil {
			t.Errorf("%+v", p.Spec)
		}
	}
	if err := w.EndTether(t.Context(), caller(bob)); err != nil {
		t.Errorf("of a stranger: %v", err)
	}
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 0 {
		t.Errorf("rights stay: %v", got)
	}
	if _, err := w.BeginTether(t.Context(), caller(alice)); !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		t.Errorf("%v", err)
	}
}

// An accepted wish begins one tether: what was left of it begins none after the company's owner ended that.
func TestAnAcceptedRequestIsUsedOnce(t *testing.T) {
	w := newWorld(t, policy("staff"), laptop("alice", alice, tethered), accepted(alice, "owner"))
	if _, err := w.BeginTether(t.Context(), caller(alice)); err != nil {
		t.Fatal(err)
	}
	p := w.peer("alice")
	w.change(p, func() { p.Spec.Tethered = nil })
	if _, err := w.BeginTether(t.Context(), caller(alice)); !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		t.Errorf("%v", err)
	}
}

// One that says itself that it is over may come again, before this side has cleared that away.
func TestATetherAfterARefusal(t *testing.T) {
	w := newWorld(t, policy("staff"), accepted(alice, "owner"), laptop("alice", alice, tethered, step(v1alpha1.TetherStepRefused), outgoing(v1alpha1.StateDeclined, 1)))
	got, err := w.BeginTether(t.Context(), caller(alice))
	if err != nil || !got.Runs {
		t.Fatalf("%+v, %v", got, err)
	}
	w.reconcile("alice")
	if p := w.peer("alice"); p.Spec.Tethered == nil || p.Spec.Request.Attempt != 2 || p.Status.Tether.Step != v1alpha1.TetherStepAccepted {
		t.Errorf("%+v %+v", p.Spec, p.Status.Tether)
	}
}

func TestWhoIsToldWhat(t *testing.T) {
	auto := func(s *v1alpha1.TetherPolicySpec) { s.AutoAccept = true }
	listed := func(s *v1alpha1.TetherPolicySpec) { s.Peers = []string{alice.String()} }
	byName := func(s *v1alpha1.TetherPolicySpec) { s.Peers = []string{"alice"} }
	stranger := laptop("alice", alice, func(p *v1alpha1.Peer) { p.Status.Conditions = nil })
	for name, c := range map[string]struct {
		policy *v1alpha1.TetherPolicy
		peer   *v1alpha1.Peer
		want   peering.TetherAnswer
		grant  bool
	}{
		"no policy":                            {nil, laptop("alice", alice), peering.TetherNo, false},
		"somebody else's":                      {policy("p", func(s *v1alpha1.TetherPolicySpec) { s.Peers = []string{"bob"} }), laptop("alice", alice), peering.TetherNo, false},
		"by a name whose key was not accepted": {policy("p", byName, auto), stranger, peering.TetherNo, false},
		"by a name":                            {policy("p", byName, auto), laptop("alice", alice), peering.TetherYes, true},
		"asked":                                {policy("p", in("secret-project", "edit")), laptop("alice", alice), peering.TetherAsks, true},
		"asked of a stranger, who learns no names": {policy("p", in("secret-project", "edit")), nil, peering.TetherAsks, false},
		"yes to everybody does not mean strangers": {policy("p", auto), nil, peering.TetherAsks, false},
		"yes to a stranger by his ID":              {policy("p", auto, listed), nil, peering.TetherYes, true},
	} {
		var objects []client.Object
		if c.policy != nil {
			objects = append(objects, c.policy)
		}
		if c.peer != nil {
			objects = append(objects, c.peer.DeepCopy())
		}
		got, err := newWorld(t, objects...).Tether(t.Context(), caller(alice))
		if err != nil || got.Answer != c.want || got.Runs || (got.Grant != nil) != c.grant || (got.Why != "") != (c.want == peering.TetherNo) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

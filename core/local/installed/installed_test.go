package installed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func role() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "kith:tenant", Labels: map[string]string{"kith.dev/managed-by": "kith"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}
}

func policy() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "tenants.kith.dev"},
		Spec:       admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{{Expression: "false"}}},
	}
}

func class(handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: "kith-guest"}, Handler: handler}
}

type desk struct {
	*testing.T
	client client.WithWatch
	keeper *Keeper
	told   []string
}

// newDesk has everything installed. What cannot be changed is refused as an API server does.
func newDesk(t *testing.T) *desk {
	refuse := func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
		if obj.GetObjectKind().GroupVersionKind().Kind == "RuntimeClass" {
			var live nodev1.RuntimeClass
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), &live); err == nil && live.Handler != "kith-guest" {
				return apierrors.NewInvalid(schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}, obj.GetName(), nil)
			}
		}
		if obj.GetObjectKind().GroupVersionKind().Kind == "PriorityClass" {
			return apierrors.NewInvalid(schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}, obj.GetName(), nil)
		}
		return c.Update(ctx, obj, opts...)
	}
	d := &desk{T: t}
	d.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(role(), policy(), class("kith-guest")).Build(), interceptor.Funcs{Update: refuse})
	var mu sync.Mutex
	d.keeper = New(d.client, func(what string) {
		mu.Lock()
		defer mu.Unlock()
		d.told = append(d.told, what)
	}, slog.New(slog.DiscardHandler))
	d.must(d.keeper.Keep(role(), policy(), class("kith-guest")))
	return d
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) reconcile(kind, name string) ctrl.Result {
	d.Helper()
	r, err := d.keeper.Reconcile(d.Context(), ctrl.Request{NamespacedName: keyOf(kind, name)})
	d.must(err)
	return r
}

func TestWhatIsAsItShouldBeIsLeftAlone(t *testing.T) {
	d := newDesk(t)
	for _, one := range [][2]string{{"ClusterRole", "kith:tenant"}, {"ValidatingAdmissionPolicy", "tenants.kith.dev"}, {"RuntimeClass", "kith-guest"}, {"ClusterRole", "another"}} {
		if d.reconcile(one[0], one[1]); len(d.told) != 0 {
			t.Errorf("mended: %v", d.told)
		}
	}
}

func TestWhatSomebodyChangedIsMended(t *testing.T) {
	d := newDesk(t)
	var r rbacv1.ClusterRole
	key := client.ObjectKey{Name: "kith:tenant"}
	d.must(d.client.Get(t.Context(), key, &r))
	r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	r.Labels = map[string]string{"mine": "too"}
	d.must(d.client.Update(t.Context(), &r))
	d.reconcile("ClusterRole", "kith:tenant")
	r = rbacv1.ClusterRole{}
	d.must(d.client.Get(t.Context(), key, &r))
	if len(r.Rules) != 1 || r.AggregationRule != nil || r.Labels["kith.dev/managed-by"] != "kith" || r.Labels["mine"] != "too" {
		t.Errorf("%+v", r)
	}

	// A condition that somebody added: the policy is there, and holds for nobody.
	var p admissionv1.ValidatingAdmissionPolicy
	key.Name = "tenants.kith.dev"
	d.must(d.client.Get(t.Context(), key, &p))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "never", Expression: "false"}}
	d.must(d.client.Update(t.Context(), &p))
	d.reconcile("ValidatingAdmissionPolicy", "tenants.kith.dev")
	p = admissionv1.ValidatingAdmissionPolicy{}
	d.must(d.client.Get(t.Context(), key, &p))
	if len(p.Spec.MatchConditions) != 0 || len(p.Spec.Validations) != 1 {
		t.Errorf("%+v", p.Spec)
	}
	if want := []string{"ClusterRole kith:tenant", "ValidatingAdmissionPolicy tenants.kith.dev"}; !slices.Equal(d.told, want) {
		t.Errorf("told of %v, want %v", d.told, want)
	}
}

func TestWhatSomebodyDeletedIsBack(t *testing.T) {
	d := newDesk(t)
	d.must(d.client.Delete(t.Context(), policy()))
	d.reconcile("ValidatingAdmissionPolicy", "tenants.kith.dev")
	var p admissionv1.ValidatingAdmissionPolicy
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "tenants.kith.dev"}, &p))
	if len(p.Spec.Validations) != 1 || len(d.told) != 1 {
		t.Errorf("%+v, told %v", p.Spec, d.told)
	}
	d.must(d.client.Delete(t.Context(), policy())) // and again: in a moment, not at once
	if r := d.reconcile("ValidatingAdmissionPolicy", "tenants.kith.dev"); r.RequeueAfter <= 0 || r.RequeueAfter > again {
		t.Errorf("looked at again after %s", r.RequeueAfter)
	}
	d.keeper.mended[keyOf("ValidatingAdmissionPolicy", "tenants.kith.dev")] = time.Now().Add(-again)
	d.reconcile("ValidatingAdmissionPolicy", "tenants.kith.dev")
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "tenants.kith.dev"}, &p))
}

func TestARuntimeClassThatCannotBeChangedIsReplaced(t *testing.T) {
	d := newDesk(t)
	d.must(d.client.Delete(t.Context(), class("")))
	d.must(d.client.Create(t.Context(), class("runc")))
	d.reconcile("RuntimeClass", "kith-guest") // takes it away
	d.reconcile("RuntimeClass", "kith-guest") // its end brought us back
	var c nodev1.RuntimeClass
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "kith-guest"}, &c))
	if c.Handler != "kith-guest" || len(d.told) != 1 {
		t.Errorf("handler %q, told %v", c.Handler, d.told)
	}
}

func priority(value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}, ObjectMeta: metav1.ObjectMeta{Name: "kith-guest"}, Value: value}
}

// With a value of somebody else's guests could push the owner's pods out.
func TestAPriorityClassThatCannotBeChangedIsReplaced(t *testing.T) {
	d := newDesk(t)
	d.must(d.keeper.Keep(priority(-1000)))
	d.must(d.client.Create(t.Context(), priority(1_000_000)))
	d.reconcile("PriorityClass", "kith-guest")
	d.reconcile("PriorityClass", "kith-guest")
	var c schedulingv1.PriorityClass
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "kith-guest"}, &c))
	if c.Value != -1000 || len(d.told) != 1 {
		t.Errorf("value %d, told %v", c.Value, d.told)
	}
}

func TestOnlyNamedClusterObjectsAreKept(t *testing.T) {
	d := newDesk(t)
	for _, odd := range []client.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, class("kith-guest").DeepCopy()} {
		if odd.GetName() == "kith-guest" {
			odd.SetNamespace("shop")
		}
		if d.keeper.Keep(odd) == nil {
			t.Errorf("%T %s/%s was taken", odd, odd.GetNamespace(), odd.GetName())
		}
	}
}

// Somebody changed a policy while no Keeper ran; the digest by which Apply leaves it alone stayed. Look mends it without an event, and says so.
func TestALookMendsWhatWasChangedWhileNobodyKeptIt(t *testing.T) {
	d := newDesk(t)
	var p admissionv1.ValidatingAdmissionPolicy
	key := client.ObjectKey{Name: "tenants.kith.dev"}
	d.must(Apply(t.Context(), d.client, policy()))
	d.must(d.client.Get(t.Context(), key, &p))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "never", Expression: "false"}}
	d.must(d.client.Update(t.Context(), &p))
	d.must(d.client.Delete(t.Context(), role()))
	d.must(Apply(t.Context(), d.client, policy()))
	d.must(d.client.Get(t.Context(), key, &p))
	if len(p.Spec.MatchConditions) != 1 {
		t.Fatal("Apply mended it: nothing is left to be tried here")
	}
	d.must(d.keeper.Look(t.Context()))
	p = admissionv1.ValidatingAdmissionPolicy{}
	d.must(d.client.Get(t.Context(), key, &p))
	if len(p.Spec.MatchConditions) != 0 {
		t.Errorf("%+v", p.Spec)
	}
	d.must(d.client.Get(t.Context(), client.ObjectKeyFromObject(role()), &rbacv1.ClusterRole{}))
	if slices.Sort(d.told); !slices.Equal(d.told, []string{"ClusterRole kith:tenant", "ValidatingAdmissionPolicy tenants.kith.dev"}) {
		t.Errorf("told: %v", d.told)
	}
}

// The API server fills in defaults, so what stands there differs from what is wanted for ever. One that is not known here is written once to see
// that it is right, and not again.
func TestWhatIsRightWithItsDefaultsIsWrittenOnce(t *testing.T) {
	d := newDesk(t)
	writes := 0
	d.keeper.client = interceptor.NewClient(d.client, interceptor.Funcs{Update: func(_ context.Context, c client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
		writes++
		return c.Get(t.Context(), client.ObjectKeyFromObject(o), o) // as an API server answers where nothing changes
	}})
	var p admissionv1.ValidatingAdmissionPolicy
	key := client.ObjectKey{Name: "tenants.kith.dev"}
	d.must(d.client.Get(t.Context(), key, &p))
	p.Spec.Validations[0].Reason = new(metav1.StatusReasonInvalid)
	d.must(d.client.Update(t.Context(), &p))
	for range 3 {
		d.must(d.keeper.Look(t.Context()))
	}
	if writes != 1 || len(d.told) != 0 {
		t.Errorf("%d writes, told %v", writes, d.told)
	}
}

// At each start everything is looked at, and each write would have the API server compile what is in it.
func TestWhatHasTheDefaultsThatAreKnownIsNotWritten(t *testing.T) {
	scope, equivalent := admissionv1.AllScopes, admissionv1.Equivalent
	want, live := policy(), policy()
	rules := func(scope *admissionv1.ScopeType) *admissionv1.MatchResources {
		return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: scope},
		}}}}
	}
	want.Spec.MatchConstraints, live.Spec.MatchConstraints, live.Spec.FailurePolicy = rules(nil), rules(&scope), new(admissionv1.Fail)
	live.Spec.MatchConstraints.MatchPolicy = &equivalent
	live.Spec.MatchConstraints.NamespaceSelector, live.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	writes := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(live).Build(), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, o, opts...)
		}})
	look := func() {
		k := New(c, func(string) {}, slog.New(slog.DiscardHandler))
		if err := errors.Join(k.Keep(want), k.Look(t.Context())); err != nil {
			t.Fatal(err)
		}

	}
	if look(); writes != 0 {
		t.Errorf("%d writes", writes)
	}
	var p admissionv1.ValidatingAdmissionPolicy
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(live), &p); err != nil {
		t.Fatal(err)
	}
	p.Spec.FailurePolicy = new(admissionv1.Ignore)
	if err := c.Update(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	if look(); writes != 2 {
		t.Errorf("%d writes: another's and ours", writes)
	}
}

// A list that is read anew, as after each start of the API server, shows all that is right already.
func TestWhatIsRightAlreadyIsNotLookedAtAgain(t *testing.T) {
	d := newDesk(t)
	d.must(d.keeper.Look(t.Context()))
	var r rbacv1.ClusterRole
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "kith:tenant"}, &r))
	if d.keeper.mayDiffer("ClusterRole", &r) {
		t.Error("it is looked at again")
	}
	r.Rules = nil
	d.must(d.client.Update(t.Context(), &r))
	if !d.keeper.mayDiffer("ClusterRole", &r) {
		t.Error("what somebody changed is not looked at")
	}
	r.Name = "another"
	if d.keeper.mayDiffer("ClusterRole", &r) {
		t.Error("another's is looked at")
	}
}

// Doors are opened after Look: it must not say that all is there while one is yet to be made.
func TestALookFailsUntilWhatWasDeletedIsMade(t *testing.T) {
	d := newDesk(t)
	d.must(d.client.Delete(t.Context(), class("kith-guest")))
	d.must(d.client.Create(t.Context(), class("runc")))
	if err := d.keeper.Look(t.Context()); err == nil {
		t.Error("all is said to be there")
	}
	d.must(d.keeper.Look(t.Context()))
	var live nodev1.RuntimeClass
	d.must(d.client.Get(t.Context(), client.ObjectKey{Name: "kith-guest"}, &live))
	if live.Handler != "kith-guest" {
		t.Errorf("%+v", live)
	}
}

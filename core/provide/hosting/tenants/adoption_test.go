package tenants

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/test/hostingtest"
)

// formerly is such a namespace as Kith made it.
func formerly(name, home, contract string, consumer grants.Consumer) *corev1.Namespace {
	ns := hostingtest.Twin(name, home, contract, consumer.Compact)
	ns.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: v1alpha1.ManagedBy, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kith.dev/consumer":{},"f:kith.dev/contract":{},"f:kith.dev/home-namespace":{},"f:kith.dev/managed-by":{}}}}`),
	}}
	return ns
}

func (d *provider) opened(namespace string) bool {
	d.Helper()
	var binding rbacv1.RoleBinding
	err := d.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: tenantRole}, &binding)
	if err != nil && !apierrors.IsNotFound(err) {
		d.Fatal(err)
	}
	return err == nil
}

func TestATwinNeverTakesABareName(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, cb)
	for _, home := range []string{"shop", "cert-manager", "argocd", "monitoring", "mine", "default", "kube-system"} {
		if got, err := d.ensure(cb, bob, home, ""); err != nil || got != home+"-"+bob.Compact[:7] {
			t.Errorf("the twin of %s is %q, %v", home, got, err)
		}
	}
}

func TestAnExistingTwinKeepsItsNameUntilItEnds(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb, next := contractWith("bob", "contractb"), contractWith("bob", "contractn")
	d := newProvider(t, peer, cb, next, formerly("shop", "shop", "contractb", bob))
	for _, contract := range []*v1alpha1.Contract{cb, next} { // the next contract takes it over as it is
		if got, err := d.ensure(contract, bob, "shop", ""); err != nil || got != "shop" || !d.opened("shop") {
			t.Errorf("under %s: %q, %v", contract.Spec.ID, got, err)
		}
	}
	var ns corev1.Namespace
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil {
		t.Fatal(err)
	}
	if there, err := d.tenants.ReleaseNamespace(t.Context(), next.Spec.ID, "shop"); err != nil || !there {
		t.Fatal(there, err)
	}
	d.contracts.NamespaceChanged(&ns, true)
	if got, err := d.ensure(next, bob, "shop", ""); err != nil || got != "shop-"+bob.Compact[:7] {
		t.Errorf("made anew: %q, %v", got, err)
	}
}

// TestATwinThatWasRelabelledIsShutAtTheEnd: it stays, as somebody took it for his own, and nothing of the consumer's does.
func TestATwinThatWasRelabelledIsShutAtTheEnd(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, cb)
	if _, err := d.ensure(cb, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "own"}}
	asked := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "guest"}}
	var ns corev1.Namespace
	if err := errors.Join(d.client.Create(t.Context(), own), d.client.Create(t.Context(), asked), d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns)); err != nil {
		t.Fatal(err)
	}
	ns.Labels[v1alpha1.LabelHomeNamespace] = "vault"
	if err := d.client.Update(t.Context(), &ns); err != nil {
		t.Fatal(err)
	}
	if err := d.tenants.EndContract(t.Context(), contractWith("bob", "contractb")); err != nil {
		t.Fatal(err)
	}
	if d.opened(bobsShop) {
		t.Error("it is still open to the consumer")
	}
	for o, there := range map[client.Object]bool{&ns: true, own: true, asked: false} {
		if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); (err == nil) != there {
			t.Errorf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

// TestCopiedOrEditedLabelsMakeNoTwin: the labels alone say nothing; a manifest that is copied, and controllers that hand
// labels down, carry them to namespaces of the owner.
func TestCopiedOrEditedLabelsMakeNoTwin(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	cb, cc := contractWith("bob", "contractb"), contractWith("carol", "contractc")
	short := "-" + bob.Compact[:7]
	for name, c := range map[string]struct {
		there *corev1.Namespace
		home  string
		want  string
	}{
		"a copy under another name":         {hostingtest.Twin("monitoring", "shop", "contractb", bob.Compact), "shop", "shop" + short},
		"another home":                      {hostingtest.Twin("vault"+short, "shop", "contractb", bob.Compact), "shop", "shop" + short},
		"another consumer":                  {hostingtest.Twin("shop-"+carol.Compact[:7], "shop", "contractb", bob.Compact), "shop", "shop" + short},
		"the same name and no labels":       {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop" + short}}, "shop", "shop-" + bob.Compact[:14]},
		"labels that are no ID":             {hostingtest.Twin("shop-x", "shop", "contractb", "x"), "shop", "shop" + short},
		"a bare name, labelled by others":   {hostingtest.Twin("shop", "shop", "contractb", bob.Compact), "shop", "shop" + short},
		"a twin that lost the first letter": {hostingtest.Twin("hop"+short, "shop", "contractb", bob.Compact), "shop", "shop" + short},
	} {
		t.Run(name, func(t *testing.T) {
			d := newProvider(t, peer, other, cb, cc, c.there.DeepCopy())
			before := maps.Clone(c.there.Labels)
			if got, err := d.ensure(cb, bob, c.home, ""); err != nil || got != c.want {
				t.Errorf("the twin is %q, %v", got, err)
			}
			if err := d.tenants.Reapply(t.Context(), d.contracts.Of("contractb")); err != nil {
				t.Fatal(err)
			}
			if d.opened(c.there.Name) {
				t.Errorf("namespace %s is open to a consumer", c.there.Name)
			}
			for _, contract := range []string{"contractb", "contractc"} {
				if err := d.tenants.EndContract(t.Context(), contractWith("bob", contract)); err != nil {
					t.Fatal(err)
				}
			}
			var after corev1.Namespace
			if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(c.there), &after); err != nil || !maps.Equal(after.Labels, before) {
				t.Errorf("after the contract's end: %v, %v", after.Labels, err)
			}
		})
	}
}

// TestATwinThatLosesItsLabelIsNoneAnyMore: what it was before would be believed else.
func TestATwinThatLosesItsLabelIsNoneAnyMore(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, cb)
	if _, err := d.ensure(cb, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	var ns corev1.Namespace
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil {
		t.Fatal(err)
	}
	contracts := d.contracts
	if _, known, is := contracts.NamespaceChanged(&ns, false); !known || !is || contracts.TermsIn(bobsShop) == nil {
		t.Error("it is none although nothing changed")
	}
	bare := ns.DeepCopy()
	bare.Labels = nil
	if tw, known, is := contracts.NamespaceChanged(bare, false); !known || is || tw.Home != "shop" || contracts.TermsIn(bobsShop) != nil {
		t.Error("it is one still")
	}
	contracts.NamespaceChanged(&ns, false)
	former := ns.DeepCopy()
	former.UID = "another"
	if contracts.NamespaceChanged(former, true); contracts.TermsIn(bobsShop) == nil {
		t.Error("that another of its name was deleted before it was made is taken for its own end")
	}
	if contracts.NamespaceChanged(&ns, true); contracts.TermsIn(bobsShop) != nil {
		t.Error("it is one although it is gone")
	}
}

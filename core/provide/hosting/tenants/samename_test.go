package tenants

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

func sharingWith(name string, namespaces *v1alpha1.GuestNamespaces) *v1alpha1.SharingPolicy {
	return &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SharingPolicySpec{
		Amounts: map[string]v1alpha1.Amount{"cpu": "1"}, Namespaces: namespaces,
	}}
}

// refusedName wants an answer a person can read.
func refusedName(t *testing.T, err error, home, why string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeForbidden || !strings.Contains(e.Message, fmt.Sprintf("%q cannot keep its name", home)) || !strings.Contains(e.Reason, why) || e.Do == "" {
		t.Errorf("%s: %v, want %q", home, err, why)
	}
}

func TestSameNameNeedsThePolicy(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	for name, namespaces := range map[string]*v1alpha1.GuestNamespaces{"silent": nil, "no word": {}, "no": {SameName: v1alpha1.AccessDeny}} {
		d := newProvider(t, peer, cb, sharingWith(name, namespaces))
		_, err := d.ensure(cb, bob, "shop", v1alpha1.MappingSameName)
		refusedName(t, err, "shop", "its owner does not allow that")
		var all corev1.NamespaceList
		if err := d.client.List(t.Context(), &all); err != nil || len(all.Items) != 0 {
			t.Errorf("%s: namespaces %v, %v", name, all.Items, err)
		}
	}
}

func TestSameNameWhereItIsAllowed(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	cb, cc := contractWith("bob", "contractb"), contractWith("carol", "contractc")
	d := newProvider(t, peer, other, cb, cc,
		sharingWith("friends", &v1alpha1.GuestNamespaces{SameName: v1alpha1.AccessAllow, Reserved: []string{"prod-*"}}),
		sharingWith("others", &v1alpha1.GuestNamespaces{Reserved: []string{"books"}}),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
	same := func(home string) error {
		got, err := d.ensure(cb, bob, home, v1alpha1.MappingSameName)
		if err == nil && got != home {
			t.Errorf("%s is %s", home, got)
		}
		return err
	}
	for _, home := range []string{"shop", "backend", "shop"} {
		if err := same(home); err != nil {
			t.Errorf("%s: %v", home, err)
		}
	}
	refusedName(t, same("mine"), "mine", "taken")
	for home, pattern := range map[string]string{
		"default": "default", "kube-public": "kube-*", "kith-bob": "kith-*", "openshift-dns": "openshift-*", "cert-manager": "cert-manager", "argocd": "argocd",
		"monitoring": "monitoring", "istio-system": "*-system", "ingress-nginx": "ingress-*", "flux-system": "*-system", "prod-1": "prod-*", "books": "books",
	} {
		refusedName(t, same(home), home, pattern)
	}
	// Names that others' twins would have.
	for _, who := range []grants.Consumer{bob, carol} {
		for _, n := range []int{7, 14} {
			refusedName(t, same("web-"+who.Compact[:n]), "web-"+who.Compact[:n], who.Name)
		}
	}
	if _, err := d.ensure(cb, bob, "Shop", v1alpha1.MappingSameName); !errors.Is(err, &api.Error{Code: api.CodeInvalid}) {
		t.Error(err)
	}
	// One that has another name here already is told what to do.
	if _, err := d.ensure(cb, bob, "late", ""); err != nil {
		t.Fatal(err)
	}
	refusedName(t, same("late"), "late", "late-"+bob.Compact[:7])

	// The owner changes his mind: what has the bare name keeps it, nothing new gets one.
	var policy v1alpha1.SharingPolicy
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: "friends"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Namespaces.SameName = v1alpha1.AccessDeny
	if err := d.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	if _, err := d.contracts.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := same("shop"); err != nil {
		t.Error("a twin that is there:", err)
	}
	refusedName(t, same("new"), "new", "does not allow")
}

// TestARefusedNameIsAProblemForThePeer: the consumer's daemon shows what is in code, message and do.
func TestARefusedNameIsAProblemForThePeer(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	d := newProvider(t, peer, contract)
	h := d.tenants
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/kith/v2/namespaces/shop?contract=contractb&mapping=SameName", nil)
	r.SetPathValue("home", "shop")
	w := httptest.NewRecorder()
	h.PutNamespace(w, r, bob.ID)
	var said peering.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 403 || said.Validate() != nil || said.Code != peering.CodeForbidden ||
		!strings.Contains(said.Error(), `namespace "shop" cannot keep its name at the provider: its owner does not allow that (leave out --same-name`) {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
}

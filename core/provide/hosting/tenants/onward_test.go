package tenants

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// TestATwinIsOffloadedWhileItsGuestsMayGoOn: to those, and no longer.
func TestATwinIsOffloadedWhileItsGuestsMayGoOn(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	name, err := p.ensure(contract, bob, "shop", v1alpha1.MappingDefault)
	if err != nil {
		t.Fatal(err)
	}
	peers := func() []string {
		var nso v1alpha1.NamespaceOffloading
		err := p.client.Get(t.Context(), client.ObjectKey{Namespace: name, Name: v1alpha1.NamespaceOffloadingName}, &nso)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || nso.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || nso.Spec.Strategy != v1alpha1.StrategyLocalAndRemote || nso.Spec.Volumes != v1alpha1.VolumesHome {
			t.Fatalf("%+v, %v", nso, err)
		}
		return nso.Spec.Peers
	}
	for _, to := range [][]string{nil, {"dave", "carol"}, {"carol", "dave"}, {"dave"}, nil, nil} {
		terms := &grants.Terms{Consumer: bob, Contract: "contractb"}
		for _, one := range to {
			terms.Onward = append(terms.Onward, grants.OnwardTo{Peer: one})
		}
		terms.Onward = append(terms.Onward, grants.OnwardTo{Peer: "erin", Withdrawn: true})
		if err := p.tenants.letGoOn(t.Context(), p.contracts.Twin(name), terms); err != nil {
			t.Fatal(err)
		}
		if want := slices.Sorted(slices.Values(to)); !slices.Equal(peers(), want) {
			t.Errorf("%q, want %q", peers(), want)
		}
	}
}

// TestANamespaceOfAnotherCluster: it is made where the contract lets it, says whose it is, and is nobody else's after.
func TestANamespaceOfAnotherCluster(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	alice, ann := identity.ID{7}, identity.ID{8}
	terms := &grants.Terms{Contract: "contractb", Consumer: bob, Reoffer: true, Provider: identity.ID{9}.String()}
	for what, c := range map[string]struct {
		id, namespace string
		code          api.Code
	}{
		"its own": {"", "", ""}, "another's": {alice.String(), "shop", ""}, "nobody's": {"alice", "shop", api.CodeInvalid}, "of no name": {alice.String(), "", api.CodeInvalid},
		"a name of no namespace": {alice.String(), "../shop", api.CodeInvalid}, "of no cluster": {"", "shop", api.CodeInvalid},
		"the consumer's": {bob.ID, "shop", api.CodeForbidden}, "this cluster's": {identity.ID{9}.String(), "shop", api.CodeForbidden},
	} {
		_, err := originOf(terms, c.id, c.namespace)
		var no *api.Error
		if (err == nil) != (c.code == "") || err != nil && (!errors.As(err, &no) || no.Code != c.code) {
			t.Errorf("%s: %v, want %q", what, err, c.code)
		}
	}
	if _, err := originOf(&grants.Terms{Contract: "contractb", Consumer: bob}, alice.String(), "shop"); err == nil {
		t.Error("without the term it is taken")
	}
	signed, err := p.contracts.TermsOf(t.Context(), "contractb", bob.ID)
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(of Origin) (string, error) {
		return p.tenants.EnsureNamespace(context.Background(), signed, "shop-alice", v1alpha1.MappingDefault, of)
	}
	of, _ := originOf(terms, alice.String(), "shop")
	name, err := ensure(of)
	if err != nil {
		t.Fatal(err)
	}
	var ns corev1.Namespace
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: name}, &ns); err != nil || ns.Labels[v1alpha1.LabelOrigin] != alice.Compact() || ns.Labels[v1alpha1.LabelOriginNamespace] != "shop" {
		t.Errorf("%v, %v", ns.Labels, err)
	}
	if again, err := ensure(of); err != nil || again != name {
		t.Errorf("%s, %v", again, err)
	}
	for _, other := range []Origin{{}, {ann.Compact(), "shop"}, {alice.Compact(), "bank"}} {
		var no *api.Error
		if name, err := ensure(other); !errors.As(err, &no) || no.Code != api.CodeConflict {
			t.Errorf("%+v: %s, %v", other, name, err)
		}
	}
}

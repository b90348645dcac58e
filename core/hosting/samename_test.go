package hosting

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/peering"
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
		d := newDesk(t, peer, cb, sharingWith(name, namespaces))
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
	d := newDesk(t, peer, other, cb, cc,
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
	for _, who := range []Consumer{bob, carol} {
		for _, n := range shortIDs {
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
	if _, err := d.tenants.contracts.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := same("shop"); err != nil {
		t.Error("a twin that is there:", err)
	}
	refusedName(t, same("new"), "new", "does not allow")
}

// TestTwoHomesNeverShareATwin has two consumers, whose IDs begin alike as far as somebody could search for, ask for names
// that are made to collide: those of each other's twins, and long ones that are cut.
func TestTwoHomesNeverShareATwin(t *testing.T) {
	alike := func(name, tail string) Consumer {
		return Consumer{ID: name, Compact: "aaaaaaa" + strings.Repeat(tail, 49), Name: name}
	}
	bob, mallory := alike("bob", "b"), alike("mallory", "m")
	random := rand.New(rand.NewPCG(1, 2))
	homes := []string{"a", "b", "shop", strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"}
	taken := map[string]string{} // name here → consumer and home
	for range 20_000 {
		who := []Consumer{bob, mallory}[random.IntN(2)]
		home := homes[random.IntN(len(homes))]
		switch random.IntN(5) {
		case 0:
			home = suffix(home, who.Compact[:shortIDs[random.IntN(2)]])
		case 1:
			home = strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(63))
		case 2: // what is left of a long name without the ID is a name too
			long := suffix(strings.Repeat("a", 63), who.Compact[:7])
			home = strings.TrimSuffix(long, "-"+who.Compact[:7])
		case 3:
			home = home[:len(home)-random.IntN(len(home))]
		}
		if len(validation.IsDNS1123Label(home)) > 0 {
			continue
		}
		homes = append(homes, home)
		for _, name := range twinNames(home, who) {
			if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
				t.Fatalf("%s gives %s: %v", home, name, msgs)
			}
			if name == home || !isTwinName(name, home, who.Compact) {
				t.Fatalf("%s may be called %s", home, name)
			}
			// The first that comes has the name; whoever else could have it must see by the labels that it is not its own.
			mine := who.Name + "/" + home
			if taken[name] == "" {
				taken[name] = mine
			}
			owner, ownerHome, _ := strings.Cut(taken[name], "/")
			labels := labelled(name, ownerHome, "c", map[string]Consumer{"bob": bob, "mallory": mallory}[owner])
			tw, ok := twinOf(labels)
			if !ok || !genuine(labels, tw) {
				t.Fatalf("%s of %s is not known as its twin", name, taken[name])
			}
			if (tw.home == home && tw.consumer == who.Compact) != (taken[name] == mine) {
				t.Fatalf("%s belongs to %s and to %s", name, taken[name], mine)
			}
			if taken[name] == mine {
				break
			}
		}
	}
	if len(taken) < 1000 {
		t.Fatalf("only %d names were tried", len(taken))
	}
}

// TestARefusedNameIsAProblemForThePeer: the consumer's daemon shows what is in code, message and do.
func TestARefusedNameIsAProblemForThePeer(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	d := newDesk(t, peer, contract)
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

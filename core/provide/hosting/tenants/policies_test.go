package tenants

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/provide/hosting/grants"
)

// policed is a provider with the consumers bob, who has twins of shop and bank, and carol, who has one of shop.
type policed struct {
	*provider
	bob, carol grants.Consumer
	twins      map[string]string
}

func newPoliced(t *testing.T) *policed {
	t.Helper()
	peer, bob := peerOf("bob", 1)
	peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16"}}
	other, carol := peerOf("carol", 2)
	p := &policed{provider: newProvider(t, peer, other, contractWith("bob", "contractb"), contractWith("carol", "contractc")), bob: bob, carol: carol, twins: map[string]string{}}
	p.tenants.Fenced = true
	for _, of := range []struct {
		contract string
		who      grants.Consumer
		home     string
	}{{"contractb", bob, "shop"}, {"contractb", bob, "bank"}, {"contractc", carol, "shop"}} {
		name, err := p.ensure(contractWith(of.who.Name, of.contract), of.who, of.home, "")
		if err != nil {
			t.Fatal(err)
		}
		p.twins[of.who.Name+"'s "+of.home] = name
	}
	return p
}

func (p *policed) put(who grants.Consumer, contract, body string) (*httptest.ResponseRecorder, netpolicy.Answer) {
	p.Helper()
	w := httptest.NewRecorder()
	p.tenants.PutPolicies(w, httptest.NewRequestWithContext(p.Context(), http.MethodPut, netpolicy.Path+"?contract="+contract, strings.NewReader(body)), who.ID)
	var a netpolicy.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		p.Fatal(err)
	}
	return w, a
}

// held are the policies in a namespace, as far as they are Kith's.
func (p *policed) held(namespace string) map[string]networkingv1.NetworkPolicySpec {
	p.Helper()
	var list networkingv1.NetworkPolicyList
	if err := p.client.List(p.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		p.Fatal(err)
	}
	out := map[string]networkingv1.NetworkPolicySpec{}
	for _, one := range list.Items {
		out[one.Name] = one.Spec
	}
	return out
}

const (
	denyShop = `{"namespace":"shop","name":"deny","pods":{},"ingress":{}}`
	openBank = `{"namespace":"bank","name":"open","pods":{"matchLabels":{"app":"web"}},"ingress":{"rules":[{"peers":[{"pods":{},"namespaces":["shop","elsewhere"]}],"ports":[{"protocol":"TCP","port":80}]}]}}`
)

func TestPoliciesOfAConsumerAreThoseOfItsLastWord(t *testing.T) {
	p := newPoliced(t)
	shop, bank := p.twins["bob's shop"], p.twins["bob's bank"]
	owners := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "mine"}}
	if err := p.client.Create(t.Context(), owners); err != nil {
		t.Fatal(err)
	}
	if w, _ := p.put(p.carol, "contractc", `{"policies":[`+denyShop+`]}`); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for range 2 { // the second time nothing changes
		w, a := p.put(p.bob, "contractb", `{"policies":[`+denyShop+`,`+openBank+`,{"namespace":"shop","name":"mine","ingress":{}},{"namespace":"den","name":"x","ingress":{}}]}`)
		if w.Code != http.StatusOK || len(a.Refused) != 1 || a.Refused[0].Name != "mine" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if got := p.held(shop); len(got) != 1 || len(got["deny"].Ingress) != 1 || got["deny"].Ingress[0].From[0].IPBlock.CIDR != "10.42.0.0/16" {
		t.Errorf("in shop: %+v", got)
	}
	if got := p.held(bank)["open"]; len(got.Ingress) != 2 || strings.Join(got.Ingress[0].From[0].NamespaceSelector.MatchExpressions[0].Values, " ") != shop {
		t.Errorf("in bank: %+v", got)
	}
	if _, a := p.put(p.bob, "contractb", `{"policies":[`+openBank+`]}`); len(a.Refused) != 0 || len(p.held(shop)) != 0 || len(p.held(bank)) != 1 {
		t.Errorf("after another word: %+v, %+v", p.held(shop), p.held(bank))
	}
	if got := p.held(p.twins["carol's shop"]); len(got) != 1 {
		t.Errorf("carol's are %+v", got)
	}
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(owners), owners); err != nil || len(owners.Spec.Ingress) != 0 {
		t.Errorf("the owner's own: %+v, %v", owners.Spec, err)
	}
}

func TestWhosePoliciesAreTaken(t *testing.T) {
	p := newPoliced(t)
	const body = `{"policies":[` + denyShop + `]}`
	for name, c := range map[string]struct {
		who            grants.Consumer
		contract, body string
		want           int
	}{
		"another's contract": {p.carol, "contractb", body, http.StatusForbidden},
		"no contract":        {p.bob, "contractx", body, http.StatusForbidden},
		"no JSON":            {p.bob, "contractb", "{", http.StatusBadRequest},
		"too long":           {p.bob, "contractb", `{"x":"` + strings.Repeat("x", netpolicy.MaxMessage) + `"}`, http.StatusBadRequest},
		"too much":           {p.bob, "contractb", `{"policies":[` + strings.TrimSuffix(strings.Repeat("{},", 101), ",") + `]}`, http.StatusBadRequest},
	} {
		if w, _ := p.put(c.who, c.contract, c.body); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
	p.tenants.Fenced = false
	if w, _ := p.put(p.bob, "contractb", body); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "network plugin of its own") {
		t.Errorf("with another engine: %d %s", w.Code, w.Body)
	}
	for _, name := range p.twins {
		if got := p.held(name); len(got) != 0 {
			t.Errorf("in %s: %+v", name, got)
		}
	}
}

func TestPoliciesAreSentWithinARate(t *testing.T) {
	p := newPoliced(t)
	for range policiesAtOnce {
		if w, _ := p.put(p.bob, "contractb", `{}`); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w, _ := p.put(p.bob, "contractb", `{}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w, _ := p.put(p.carol, "contractc", `{}`); w.Code != http.StatusOK {
		t.Errorf("carol: %d %s", w.Code, w.Body)
	}
}

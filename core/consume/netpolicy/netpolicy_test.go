package netpolicy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// world: shop and bank have twins at the peer, den has none. Home is 10.42/16.
func world(t *testing.T, manifests ...string) home {
	t.Helper()
	h := home{
		namespaces: map[string]labels.Set{
			"shop": {"team": "a"}, "bank": {"team": "b"}, "den": {"team": "b"}, "kube-system": {"kubernetes.io/metadata.name": "kube-system"},
		},
		abroad: map[string]bool{"shop": true, "bank": true},
	}
	for _, m := range manifests {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(m), &p); err != nil {
			t.Fatal(err)
		}
		if p.Name == "" {
			p.Name = "p"
		}
		if p.Namespace == "" {
			p.Namespace = "shop"
		}
		h.policies = append(h.policies, p)
	}
	return h
}

func twins(home string) (string, bool) {
	if home == "shop" || home == "bank" {
		return home + "-q4zkx2a", true
	}
	return "", false
}

// carried is a policy's way: to a message, over the wire, and to what stands in the twin.
func carried(t *testing.T, spec string) string {
	t.Helper()
	m := world(t, `{spec: `+spec+`}`).message()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	p := got.Policies[0].At("shop-q4zkx2a", twins, []string{"10.42.0.0/16"})
	if p == nil {
		return ""
	}
	out, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	flow, err := yaml.YAMLToJSON(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(flow), `"`, "")
}

const (
	homeFrom = "{from:[{ipBlock:{cidr:10.42.0.0/16}}]}"
	homeTo   = "{to:[{ipBlock:{cidr:10.42.0.0/16}}]}"
)

func in(namespaces string) string {
	return "namespaceSelector:{matchExpressions:[{key:kubernetes.io/metadata.name,operator:In,values:[" + namespaces + "]}]}"
}

func TestWhatAPolicyIsInATwin(t *testing.T) {
	for spec, want := range map[string]string{
		`{podSelector: {}}`: "{ingress:[" + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		`{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}`:               "{egress:[" + homeTo + "],ingress:[" + homeFrom + "],podSelector:{matchLabels:{app:db}},policyTypes:[Ingress,Egress]}",
		`{podSelector: {}, ingress: [{}]}`:                                                      "{ingress:[{}," + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {a: b}}}]}]}`:          "{ingress:[{from:[{" + in("shop-q4zkx2a") + ",podSelector:{matchLabels:{a:b}}}]}," + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`: "{ingress:[{from:[{" + in("bank-q4zkx2a") + ",podSelector:{}}]}," + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		// Nobody of these is there: that is not everybody.
		`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: c}}}], ports: [{port: 80}]}]}`: "{ingress:[" + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "fd00::/8"}}]}]}`:                                      "{ingress:[{from:[{ipBlock:{cidr:fd00::/8}}]}," + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{protocol: UDP, port: 53}]}]}`: "{egress:[{ports:[{port:53,protocol:UDP}],to:[{" + in("kube-system") + ",podSelector:{matchLabels:{k8s-app:kube-dns}}}]}," + homeTo + "],podSelector:{},policyTypes:[Egress]}",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.42.0.0/16, 192.168.0.0/16]}}], ports: [{port: 8000, endPort: 9000}, {port: http}, {protocol: SCTP}]}]}`:                          "{egress:[{ports:[{endPort:9000,port:8000,protocol:TCP},{port:http,protocol:TCP},{protocol:SCTP}],to:[{ipBlock:{cidr:0.0.0.0/0,except:[10.42.0.0/16,192.168.0.0/16]}}]}," + homeTo + "],podSelector:{},policyTypes:[Egress]}",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.76.255.130/32}}]}]}`: "{ingress:[{from:[{ipBlock:{cidr:10.76.255.130/32}}]}," + homeFrom + "],podSelector:{},policyTypes:[Ingress]}",
	} {
		if got := carried(t, spec); got != want {
			t.Errorf("%s\n got %s\nwant %s", spec, got, want)
		}
	}
}

func TestOnlyPoliciesOfNamespacesThatAreThereTravel(t *testing.T) {
	m := world(t, `{metadata: {namespace: den}, spec: {podSelector: {}}}`, `{metadata: {namespace: shop, name: b}, spec: {podSelector: {}}}`, `{metadata: {namespace: shop, name: a}, spec: {podSelector: {}}}`).message()
	var names []string
	for _, p := range m.Policies {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	if got := fmt.Sprint(names); got != "[shop/a shop/b]" {
		t.Errorf("sent: %s", got)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	many := func(what string, n int) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	for name, text := range map[string]string{
		"policies":   `{"policies":[` + many(`{}`, maxPolicies+1) + `]}`,
		"rules":      `{"policies":[{"ingress":{"rules":[` + many(`{}`, maxRules+1) + `]}}]}`,
		"peers":      `{"policies":[{"egress":{"rules":[{"peers":[` + many(`{}`, maxParts+1) + `]}]}}]}`,
		"ports":      `{"policies":[{"egress":{"rules":[{"ports":[` + many(`{}`, maxParts+1) + `]}]}}]}`,
		"names":      `{"policies":[{"egress":{"rules":[{"ports":[` + many(`{"name":"a"}`, maxNamed+1) + `]}]}}]}`,
		"namespaces": `{"policies":[{"egress":{"rules":[{"peers":[{"namespaces":[` + many(`"a"`, maxParts) + `]}]}]}}]}`,
		"exceptions": `{"policies":[{"egress":{"rules":[{"peers":[{"block":{"except":[` + many(`"a"`, maxParts) + `]}}]}]}}]}`,
		"length":     `{"policies":[],"x":"` + strings.Repeat("a", MaxMessage) + `"}`,
		"a list":     `[]`, "nothing": ``, "another type": `{"policies":{}}`, "half": `{"policies":[`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := Read(strings.NewReader(`{"policies":[` + many(`{"ingress":{"rules":[{},{}]}}`, maxPolicies) + `],"later":{}}`)); err != nil {
		t.Errorf("refused: %v", err)
	}
}

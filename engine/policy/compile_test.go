package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
)

// policies reads what an owner would write; each needs a name and a spec only, the namespace is shop.
func policies(t testing.TB, manifests ...string) (list []*networkingv1.NetworkPolicy) {
	t.Helper()
	for i, m := range manifests {
		p := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(m), p); err != nil {
			t.Fatalf("%v: %s", err, m)
		}
		if p.Namespace == "" {
			p.Namespace = "shop"
		}
		if p.Name == "" {
			p.Name = fmt.Sprintf("p%d", i)
		}
		list = append(list, p)
	}
	return list
}

func pod(namespace, address string, labels ...string) Pod {
	p := Pod{Namespace: namespace, Address: netip.MustParseAddr(address), Labels: map[string]string{}, Ports: []corev1.ContainerPort{
		{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "ask", ContainerPort: 5353, Protocol: corev1.ProtocolUDP},
	}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		p.Labels[key] = value
	}
	return p
}

func state(list []*networkingv1.NetworkPolicy, pods ...Pod) State {
	return State{
		Policies: list, Pods: pods,
		Namespaces: map[string]map[string]string{
			"shop": {"kubernetes.io/metadata.name": "shop", "team": "a"}, "bank": {"kubernetes.io/metadata.name": "bank", "team": "b"},
			"kube-system": {"kubernetes.io/metadata.name": "kube-system"}, "shop-q4zkx2a": {v1alpha1.LabelConsumer: "q4z"}, // guests'
		},
		DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}, Node: []netip.Addr{netip.MustParseAddr("10.42.255.1")},
	}
}

func keys(s set) string { return strings.Join(slices.Sorted(maps.Keys(s.elements)), " ") }

func TestRangesLoseWhatTheyExcept(t *testing.T) {
	for _, c := range []struct {
		family family
		cidr   string
		except []string
		want   string
	}{
		{ipv4, "10.0.0.0/8", nil, "10.0.0.0-10.255.255.255"},
		{ipv4, "10.0.0.7/32", nil, "10.0.0.7"},
		{ipv4, "0.0.0.0/0", []string{"10.0.0.0/8", "192.168.0.0/16"}, "0.0.0.0-9.255.255.255 11.0.0.0-192.167.255.255 192.169.0.0-255.255.255.255"},
		{ipv4, "0.0.0.0/0", []string{"0.0.0.0/1", "128.0.0.0/1"}, ""},
		{ipv4, "10.0.0.0/24", []string{"10.0.0.0/25", "10.0.0.0/26", "10.0.0.128/32"}, "10.0.0.129-10.0.0.255"},
		{ipv4, "10.0.0.0/24", []string{"10.0.1.0/24", "10.0.0.255/32"}, "10.0.0.0-10.0.0.254"},
		{ipv4, "fd00::/8", nil, ""},
		{ipv4, "nonsense", nil, ""},
		{ipv4, "10.0.0.0/24", []string{"nonsense"}, "10.0.0.0-10.0.0.255"},
		{ipv6, "10.0.0.0/8", nil, ""},
		{ipv6, "::ffff:10.0.0.0/104", nil, "::ffff:10.0.0.0-::ffff:10.255.255.255"},
		{ipv6, "fd00::/8", nil, "fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{ipv6, "fd00::7/128", nil, "fd00::7"},
		{ipv6, "::/0", []string{"::/1", "8000::/1"}, ""},
		{ipv6, "::/0", []string{"fd00::/8", "10.0.0.0/8"}, "::-fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{ipv6, "fd00::/120", []string{"fd00::/121", "fd00::80/128"}, "fd00::81-fd00::ff"},
	} {
		var got []string
		for _, s := range c.family.blockSpans(&networkingv1.IPBlock{CIDR: c.cidr, Except: c.except}) {
			got = append(got, s.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s except %v: %v, want %s", c.cidr, c.except, got, c.want)
		}
	}
}

// What one policy excepts another may allow: upstream's test of the same name.
func TestABlockThatOneExceptsAnotherAllows(t *testing.T) {
	table := compile(ipv4, state(policies(t, `{spec: {podSelector: {}, ingress: [{from: [
		{ipBlock: {cidr: 10.9.0.0/24, except: [10.9.0.7/32]}}, {ipBlock: {cidr: 10.9.0.7/32}}]}]}}`), pod("shop", "10.42.0.5")))
	if got := keys(table.sets["ingress/shop/p0/0/blocks"]); got != "10.9.0.0-10.9.0.255" {
		t.Errorf("blocks: %s", got)
	}
}

func TestPortsThatOverlapAreOneRange(t *testing.T) {
	table := compile(ipv4, state(policies(t, `{spec: {podSelector: {}, ingress: [{ports: [
		{port: 80}, {port: 79, endPort: 90}, {port: 91}, {protocol: UDP, port: 53}, {protocol: SCTP}, {protocol: UDP, port: ask}]}]}}`), pod("shop", "10.42.0.5")))
	if got := keys(table.sets["ingress/shop/p0/0/ports"]); got != "sctp . 0-65535 tcp . 79-91 udp . 53" {
		t.Errorf("ports: %s", got)
	}
	if got := keys(table.sets["ingress/shop/p0/0/named"]); got != "10.42.0.5 . udp . 5353" {
		t.Errorf("named: %s", got)
	}
}

func TestPoliciesOfBeforeEgressLimitIngress(t *testing.T) {
	for spec, want := range map[string][2]bool{
		`{podSelector: {}}`:                                                   {true, false},
		`{podSelector: {}, egress: [{}]}`:                                     {true, true},
		`{podSelector: {}, policyTypes: [Egress]}`:                            {false, true},
		`{podSelector: {}, policyTypes: [Ingress], egress: [{}]}`:             {true, false},
		`{podSelector: {}, policyTypes: [Ingress, Egress]}`:                   {true, true},
		`{podSelector: {matchLabels: {app: x}}, policyTypes: [Ingress]}`:      {false, false},
		`{podSelector: {matchLabels: {"a/b/c": "?"}}, policyTypes: [Egress]}`: {false, false},
	} {
		table := compile(ipv4, state(policies(t, `{spec: `+spec+`}`), pod("shop", "10.42.0.5"), pod("bank", "10.42.0.6")))
		for i, name := range []string{ingressMap, egressMap} {
			if got := keys(table.sets[name]); (got == "10.42.0.5") != want[i] || (got == "") == want[i] {
				t.Errorf("%s: %s holds %q", spec, name, got)
			}
		}
	}
}

func TestSelectorsOfPeers(t *testing.T) {
	pods := []Pod{
		pod("shop", "10.42.0.1", "app=web"), pod("shop", "10.42.0.2", "app=db"), pod("bank", "10.42.0.3", "app=web"), pod("bank", "10.42.0.4", "app=db"),
		pod("unheard", "10.42.0.5", "app=web"),
	}
	for from, want := range map[string]string{
		`{podSelector: {}}`:                             "10.42.0.1 10.42.0.2",
		`{podSelector: {matchLabels: {app: web}}}`:      "10.42.0.1",
		`{namespaceSelector: {}}`:                       "10.42.0.1 10.42.0.2 10.42.0.3 10.42.0.4",
		`{namespaceSelector: {matchLabels: {team: b}}}`: "10.42.0.3 10.42.0.4",
		`{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: db}}}`:    "10.42.0.4",
		`{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a]}]}}`:    "10.42.0.3 10.42.0.4",
		`{podSelector: {matchLabels: {app: web}}}, {namespaceSelector: {matchLabels: {team: b}}}`: "10.42.0.1 10.42.0.3 10.42.0.4",
		`{podSelector: {matchLabels: {app: none}}}`:                                               "",
		`{podSelector: {matchExpressions: [{key: app, operator: Wrong}]}}`:                        "",
	} {
		table := compile(ipv4, state(policies(t, `{spec: {podSelector: {}, ingress: [{from: [`+from+`]}]}}`), pods...))
		s, there := table.sets["ingress/shop/p0/0/pods"]
		if got := keys(s); got != want || !there {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
		if got := table.chains["ingress/shop/p0"]; !slices.Equal(got, []string{"ip saddr @ingress/shop/p0/0/pods accept"}) {
			t.Errorf("from %s: %q", from, got)
		}
	}
}

func TestDNSIsThePodThatItIsElsewhere(t *testing.T) {
	const both = "10.42.0.5 . tcp 10.42.0.5 . udp"
	for egress, want := range map[string]string{
		``:                                      "",
		`{}`:                                    both,
		`{ports: [{protocol: UDP, port: 53}]}`:  "10.42.0.5 . udp",
		`{ports: [{protocol: UDP, port: dns}]}`: "10.42.0.5 . udp",
		`{ports: [{port: 50, endPort: 60}]}`:    "10.42.0.5 . tcp",
		`{ports: [{port: 54, endPort: 60}, {port: 80}]}`: "",
		`{to: [{namespaceSelector: {}}]}`:                both,
		`{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]}`: both,
		`{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: other}}}]}`:    "",
		`{to: [{podSelector: {}}]}`:                                  "",
		`{to: [{ipBlock: {cidr: 10.43.0.0/16}}]}`:                    both,
		`{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}`: "",
	} {
		table := compile(ipv4, state(policies(t, `{spec: {podSelector: {}, policyTypes: [Egress], egress: [`+egress+`]}}`), pod("shop", "10.42.0.5")))
		if got := keys(table.sets[dnsSet]); got != want {
			t.Errorf("egress %s: may ask by %q, want %q", egress, got, want)
		}
	}
}

func TestPodsThatTheSamePoliciesSelectShareAChain(t *testing.T) {
	list := policies(t, `{spec: {podSelector: {}}}`, `{spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}}`)
	table := compile(ipv4, state(list, pod("shop", "10.42.0.1", "app=web"), pod("shop", "10.42.0.2", "app=web"), pod("shop", "10.42.0.3")))
	to := table.sets[ingressMap].elements
	if to["10.42.0.1"] != to["10.42.0.2"] || to["10.42.0.1"] == to["10.42.0.3"] || len(table.chains) != 3 {
		t.Errorf("%v, chains %v", to, slices.Sorted(maps.Keys(table.chains)))
	}
}

// What a consumer has said of its guests is about its own pods.
func TestAGuestsPolicyNamesPodsOfItsTenant(t *testing.T) {
	list := policies(t, `{metadata: {namespace: shop-q4zkx2a}, spec: {podSelector: {}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{namespaceSelector: {}}]}], egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]}}`)
	s := state(list, pod("shop-q4zkx2a", "10.65.1.130"), pod("bank-q4zkx2a", "10.65.1.131"), pod("shop-other", "10.65.1.132"), pod("shop", "10.42.0.5"), pod("kube-system", "10.42.0.6"))
	for name, tenant := range map[string]string{"bank-q4zkx2a": "q4z", "shop-other": "oth"} {
		s.Namespaces[name] = map[string]string{v1alpha1.LabelConsumer: tenant}
	}
	table := compile(ipv4, s)
	for _, name := range []string{"ingress/shop-q4zkx2a/p0/0/pods", "egress/shop-q4zkx2a/p0/0/pods"} {
		if got := keys(table.sets[name]); got != "10.65.1.130 10.65.1.131" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := keys(table.sets["egress/shop-q4zkx2a/p0/0/named"]); got != "10.65.1.130 . tcp . 8080 10.65.1.131 . tcp . 8080" {
		t.Errorf("named: %s", got)
	}
	s.Policies[0].Spec.Egress[0].Ports = nil
	if got := keys(compile(ipv4, s).sets[dnsSet]); got != "10.65.1.130 . tcp 10.65.1.130 . udp" {
		t.Errorf("DNS: %s", got)
	}
}

// The ranges of a guest's policy are of its home's address space, and so may be those of the owner's pods and node.
func TestARangeOfAGuestsPolicyMeansNoPodOfTheOwners(t *testing.T) {
	const spec = `, spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16}}]}], egress: [{to: [{ipBlock: {cidr: 10.42.0.0/16}}]}]}}`
	for namespace, want := range map[string]struct{ ingress, egress, dns string }{
		"shop":         {"ip saddr @ingress/shop/p0/0/blocks accept", "", "10.65.1.4 . tcp 10.65.1.4 . udp"},
		"shop-q4zkx2a": {`iifname != "cni0" ip saddr @ingress/shop-q4zkx2a/p0/0/blocks accept`, "meta oiftype != loopback ", ""},
	} {
		table := compile(ipv4, state(policies(t, `{metadata: {namespace: `+namespace+`}`+spec), pod(namespace, "10.65.1.4")))
		if got := table.chains["ingress/"+namespace+"/p0"]; !slices.Equal(got, []string{want.ingress}) {
			t.Errorf("%s: %q", namespace, got)
		}
		if got := table.chains["egress/"+namespace+"/p0"]; !slices.Equal(got, []string{want.egress + "ip daddr @egress/" + namespace + "/p0/0/blocks accept"}) {
			t.Errorf("%s: %q", namespace, got)
		}
		if got := keys(table.sets[dnsSet]); got != want.dns {
			t.Errorf("%s asks DNS: %q", namespace, got)
		}
	}
}

// As much as a consumer may say of its guests (kith.dev/core/consume/netpolicy), in its costliest form, is what docs/security.md has.
func TestTheMostThatAConsumerMaySay(t *testing.T) {
	const guests, count, rules, parts, names = 55, 100, 256, 1024, 64
	var ports, list []string
	var pods []Pod
	for i := range parts/rules - 2 {
		ports = append(ports, fmt.Sprintf("{port: %d}", 1000+2*i))
	}
	for i := range guests {
		pods = append(pods, pod("shop-q4zkx2a", fmt.Sprintf("10.65.1.%d", 130+i)))
	}
	for i := range count {
		n := rules / count
		if i < rules%count {
			n++
		}
		// Each policy has a rule for home besides.
		named := ports
		if i < names {
			named = append([]string{"{port: http}"}, ports...)
		}
		one := fmt.Sprintf("{from: [{podSelector: {}}, {ipBlock: {cidr: 10.9.0.0/16}}], ports: [%s]}", strings.Join(named, ", "))
		list = append(list, fmt.Sprintf("{metadata: {namespace: shop-q4zkx2a}, spec: {podSelector: {}, ingress: [%s, {from: [{ipBlock: {cidr: 10.42.0.0/16}}]}]}}",
			one+strings.Repeat(", "+strings.ReplaceAll(one, "{port: http}, ", ""), n-1)))
	}
	s := state(policies(t, list...), pods...)
	table := compile(ipv4, s)
	elements, lines := 0, 0
	for _, set := range table.sets {
		elements += len(set.elements)
	}
	for _, chain := range table.chains {
		lines += len(chain)
	}
	t.Logf("%d elements, %d rules", elements, lines)
	if elements > 400*guests || lines > 1000 {
		t.Errorf("%d elements, %d rules", elements, lines)
	}
}

package guestnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestGuestsAreToldOfTheClustersDNSOnly(t *testing.T) {
	builtin := Resolver{Server: netip.MustParseAddr("10.43.0.10"), Domain: "cluster.local"}
	long := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("%02d.%s.example", i, strings.Repeat("a", 50)))
		}
		return list
	}
	searches := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for name, c := range map[string]struct {
		by       Resolver
		policy   corev1.DNSPolicy
		own      *corev1.PodDNSConfig
		want     corev1.DNSPolicy
		servers  []string
		searches []string
		options  string
	}{
		"silent":              {builtin, "", nil, corev1.DNSNone, []string{"10.43.0.10"}, searches, "ndots=5"},
		"ClusterFirst":        {builtin, corev1.DNSClusterFirst, nil, corev1.DNSNone, []string{"10.43.0.10"}, searches, "ndots=5"},
		"with the host's":     {builtin, corev1.DNSClusterFirstWithHostNet, nil, corev1.DNSNone, []string{"10.43.0.10"}, searches, "ndots=5"},
		"Default":             {builtin, corev1.DNSDefault, nil, corev1.DNSNone, []string{"10.43.0.10"}, nil, ""},
		"None":                {builtin, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}}, corev1.DNSNone, []string{"9.9.9.9"}, nil, ""},
		"more of its own":     {builtin, "", &corev1.PodDNSConfig{Nameservers: []string{"9.9.9.9", "10.43.0.10"}, Searches: []string{"example.org", "svc.cluster.local"}, Options: options("ndots", "2", "edns0", "")}, corev1.DNSNone, []string{"10.43.0.10", "9.9.9.9"}, append(slices.Clone(searches), "example.org"), "ndots=2 edns0="},
		"Default and its own": {builtin, corev1.DNSDefault, &corev1.PodDNSConfig{Searches: []string{"example.org"}}, corev1.DNSNone, []string{"10.43.0.10"}, []string{"example.org"}, ""},
		"too many servers":    {builtin, "", &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "8.8.8.8", "9.9.9.9"}}, corev1.DNSNone, []string{"10.43.0.10", "1.1.1.1", "8.8.8.8"}, searches, "ndots=5"},
		"too many searches":   {builtin, "", &corev1.PodDNSConfig{Searches: long(32)}, corev1.DNSNone, []string{"10.43.0.10"}, append(slices.Clone(searches), long(29)...), "ndots=5"},
		"another engine":      {Resolver{}, "", nil, corev1.DNSClusterFirst, nil, nil, ""},
		"its Default":         {Resolver{}, corev1.DNSDefault, nil, corev1.DNSClusterFirst, nil, nil, ""},
	} {
		spec := corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.own}
		c.by.Resolve(&spec, "shop")
		var got corev1.PodDNSConfig
		if spec.DNSConfig != nil {
			got = *spec.DNSConfig
		}
		var opts []string
		for _, o := range got.Options {
			opts = append(opts, o.Name+"="+*o.Value)
		}
		if spec.DNSPolicy != c.want || !slices.Equal(got.Nameservers, c.servers) || !slices.Equal(got.Searches, c.searches) || strings.Join(opts, " ") != c.options {
			t.Errorf("%s: %s %+v", name, spec.DNSPolicy, got)
		}
	}
	spec := corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{Searches: slices.Repeat([]string{strings.Repeat("a.", 120) + "example"}, 1)}}
	for i := range 20 {
		spec.DNSConfig.Searches = append(spec.DNSConfig.Searches, fmt.Sprintf("%d.%sexample", i, strings.Repeat("b.", 110)))
	}
	builtin.Resolve(&spec, "shop")
	if length := len(strings.Join(spec.DNSConfig.Searches, " ")); length > maxSearchLength || length < maxSearchLength-300 {
		t.Errorf("the search list is %d long", length)
	}
}

func options(pairs ...string) (out []corev1.PodDNSConfigOption) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, corev1.PodDNSConfigOption{Name: pairs[i], Value: &pairs[i+1]})
	}
	return out
}

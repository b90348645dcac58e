package policy

import (
	"fmt"
	"net/netip"
	"testing"
)

// crowd is 500 pods in 10 namespaces and 100 policies, each of which names pods of its own namespace, of another, and a range.
func crowd(t testing.TB) State {
	s := state(nil)
	for i := range 10 {
		s.Namespaces[fmt.Sprintf("n%d", i)] = map[string]string{"n": fmt.Sprint(i)}
	}
	for i := range 500 {
		s.Pods = append(s.Pods, pod(fmt.Sprintf("n%d", i%10), netip.AddrFrom4([4]byte{10, 42, byte(i / 250), byte(i%250 + 2)}).String(), fmt.Sprintf("app=a%d", i/10%10)))
	}
	var list []string
	for i := range 100 {
		list = append(list, fmt.Sprintf(`{metadata: {namespace: n%d, name: p%d}, spec: {podSelector: {matchLabels: {app: a%d}}, policyTypes: [Ingress, Egress],
			ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {n: "%d"}}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}], ports: [{port: http}, {port: 9090}]}],
			egress: [{to: [{podSelector: {}}]}, {ports: [{protocol: UDP, port: 53}]}]}}`, i%10, i, i/10, (i+1)%10))
	}
	s.Policies = policies(t, list...)
	return s
}

func BenchmarkCompile(b *testing.B) {
	s := crowd(b)
	for b.Loop() {
		compile(s)
	}
}

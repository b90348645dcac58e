package policy

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
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
		compile(ipv4, s)
	}
}

// inKernel gives a writer to a network namespace of this benchmark's own, and the crowd's table with one pod less and with all.
func inKernel(b *testing.B) (write func(table), w *writer, less, all table) {
	if os.Geteuid() != 0 {
		b.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the benchmark, and its namespace with it
	if _, err := netns.New(); err != nil {
		b.Fatal(err)
	}
	s := crowd(b)
	all = compile(ipv4, s)
	s.Pods = s.Pods[:len(s.Pods)-1]
	w = &writer{family: ipv4, dns: s.DNS[0], pods: netip.MustParsePrefix("10.42.0.0/16")}
	return func(t table) {
		if err := w.put(b.Context(), t); err != nil {
			b.Fatal(err)
		}
	}, w, compile(ipv4, s), all
}

func BenchmarkWriteAll(b *testing.B) {
	write, w, _, all := inKernel(b)
	for b.Loop() {
		w.written = nil
		write(all)
	}
}

func BenchmarkWriteOnePodMoreAndLess(b *testing.B) {
	write, _, less, all := inKernel(b)
	for b.Loop() {
		write(less)
		write(all)
	}
}

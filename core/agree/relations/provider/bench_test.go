package provider

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// BenchmarkOffer makes one offer where a thousand peers have contracts under twenty policies.
func BenchmarkOffer(b *testing.B) {
	var objects []client.Object
	for i := range 20 {
		p := sharing.Default(50)
		p.Name = fmt.Sprintf("policy-%d", i)
		p.Spec.Priority = int32(i)
		for k := i; k < 1000; k += 20 {
			p.Spec.Peers = append(p.Spec.Peers, fmt.Sprintf("peer-%d", k))
		}
		objects = append(objects, p)
	}
	for i := range 1000 {
		id := identity.ID{0xbe, byte(i >> 8), byte(i), 1}
		objects = append(objects, acceptedPeer(fmt.Sprintf("peer-%d", i), id), &v1alpha1.Contract{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("contract-%d", i)},
			Spec:       v1alpha1.ContractSpec{Peer: fmt.Sprintf("peer-%d", i), Role: v1alpha1.RoleProvider, ID: fmt.Sprintf("%016d", i), Resources: list("cpu", "1m", "memory", "1Mi", "pods", "1")},
		})
	}
	d := newWorld(b, objects...)
	asks := identity.ID{0xbe, 1, 4, 1}
	if w, err := d.would(b.Context(), asks); err != nil || w.In.Policy == nil {
		b.Fatal(w.In.Policy, err)
	}
	began, n := time.Now(), 0
	for b.Loop() {
		if _, err := d.would(b.Context(), asks); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/1000/float64(n), "ms/offer")
}

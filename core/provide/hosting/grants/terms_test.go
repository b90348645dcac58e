package grants

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

func TestInForce(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Contract)
		want   bool
	}{
		{"signed", func(*v1alpha1.Contract) {}, true},
		{"contracted", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateContracted }, true},
		{"connected", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateConnected }, true},
		{"unreachable", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateUnreachable }, true},
		{"ending", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateEnding }, false},
		{"none", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateNone }, false},
		{"expired", func(c *v1alpha1.Contract) { c.Status.State = v1alpha1.StateExpired }, false},
		{"deleted", func(c *v1alpha1.Contract) { c.DeletionTimestamp = &metav1.Time{Time: now} }, false},
		{"as consumer", func(c *v1alpha1.Contract) { c.Spec.Role = v1alpha1.RoleConsumer }, false},
		{"not countersigned", func(c *v1alpha1.Contract) { c.Spec.ProviderSignature = nil }, false},
		{"ends later", func(c *v1alpha1.Contract) { c.Spec.NotAfter = &metav1.Time{Time: now.Add(time.Second)} }, true},
		{"ended now", func(c *v1alpha1.Contract) { c.Spec.NotAfter = &metav1.Time{Time: now} }, false},
	} {
		contract := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{
			Role: v1alpha1.RoleProvider, ConsumerSignature: []byte{1}, ProviderSignature: []byte{1},
		}}
		c.change(contract)
		if got := whyNot(contract, now) == ""; got != c.want {
			t.Errorf("%s: %v (%s)", c.name, got, whyNot(contract, now))
		}
	}
}

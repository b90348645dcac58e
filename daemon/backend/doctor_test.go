package backend

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
)

// One machine that is suspended says nothing for the others that guests run on.
func TestWhereGuestsRunOnSeveralNodesPeersAreNotToldOfASuspend(t *testing.T) {
	for name, c := range map[string]struct {
		nodes   []map[string]string
		several bool
	}{
		"none":                   {nil, false},
		"this one":               {[]map[string]string{{v1alpha1.LabelFenced: "true"}}, false},
		"this one and a peer's":  {[]map[string]string{{v1alpha1.LabelFenced: "true"}, {v1alpha1.LabelFenced: "true", v1alpha1.LabelPeer: "bob"}}, false},
		"one without guests":     {[]map[string]string{{v1alpha1.LabelFenced: "true"}, {}}, false},
		"another one for guests": {[]map[string]string{{v1alpha1.LabelFenced: "true"}, {v1alpha1.LabelFenced: "true"}}, true},
	} {
		b := fake.NewClientBuilder().WithScheme(newScheme())
		for i, labels := range c.nodes {
			b = b.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: labels}})
		}
		if got := (&Cluster{Client: ledgertest.Over(t, b.Build())}).Several(t.Context()); got != c.several {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (*Cluster)(nil).Several(t.Context()) {
		t.Error("no cluster has several nodes")
	}
}

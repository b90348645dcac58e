package backend

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/base/notify"
	"kith.dev/core/local/cluster"
	"kith.dev/daemon/config"
)

// The node of an engine that was just started says for a moment that it is not ready: nobody is told, unless that lasts.
func TestANodeThatIsNotReadyForAMomentIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alice"}}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "PLEG is not healthy", LastTransitionTime: metav1.NewTime(time.Now().Add(-5 * time.Second)),
		}}
		c := &Cluster{Client: ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(node).Build())}
		b := &Backend{Engine: called{node: "alice"}, Cluster: func() *Cluster { return c }, News: &notify.Broadcast{}, Settings: config.Config{DataDir: t.TempDir()}}
		news := b.News.Wait()
		if why := b.degraded(t.Context()); why != "" {
			t.Errorf("after 5 s: %s", why)
		}
		select {
		case <-news:
			t.Error("told at once")
		default:
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case <-news:
		default:
			t.Error("nobody looks again")
		}
		if why := b.degraded(t.Context()); why != "node alice: PLEG is not healthy" {
			t.Errorf("after 15 s: %q", why)
		}
	})
}

// called is an engine whose node has a name.
type called struct {
	cluster.Engine

	node string
}

func (c called) Facts() cluster.Facts { return cluster.Facts{NodeName: c.node} }

func TestNodeSaysWhatItLacks(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Message: message}
	}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		ready      bool
		why        string
	}{
		"well":     {[]corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "enough"), condition(corev1.NodeReady, corev1.ConditionTrue, "posting")}, true, ""},
		"new":      {nil, false, "not said yet"},
		"not well": {[]corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, "no network plugin")}, false, "no network plugin"},
		"pressed":  {[]corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionTrue, "disk is full"), condition(corev1.NodeReady, corev1.ConditionTrue, "")}, true, "disk is full"},
	} {
		n := nodeOf(&corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}})
		if n.Ready != tc.ready || !strings.Contains(n.Why, tc.why) || (tc.why == "") != (n.Why == "") {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

package daemon

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
	"kith.dev/core/relations/link"
)

func TestPeerProblemsSayWhatIsWrong(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	related := func(since time.Duration) *v1alpha1.Peer {
		return &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateConnected, Contract: "c", Since: ago(since)}}}
	}
	contact := func(reachable bool, since time.Duration, why string) link.Contact {
		return link.Contact{Reachable: reachable, Since: now.Add(-since), Why: why}
	}
	up := gateway.Stats{Up: true, LastHandshake: now.Add(-time.Minute)}
	for name, tc := range map[string]struct {
		peer   known
		tunnel gateway.Stats
		has    bool
		want   string // part of the problem; "" for none
	}{
		"all well":             {known{peer: related(time.Hour), contact: contact(true, time.Hour, "")}, up, true, ""},
		"no relation":          {known{peer: &v1alpha1.Peer{}, contact: contact(false, time.Hour, "no answer")}, up, false, ""},
		"unreachable":          {known{peer: related(time.Hour), contact: contact(false, 40*time.Second, "no answer")}, up, true, "warning bob cannot be reached no answer, for 40 s"},
		"another key":          {known{peer: &v1alpha1.Peer{}, mismatch: true, contact: contact(false, 0, "want A, got B")}, up, true, "error bob was refused: another key answers where it was want A, got B"},
		"handshake long ago":   {known{peer: related(time.Hour), contact: contact(true, time.Hour, "")}, gateway.Stats{LastHandshake: now.Add(-5 * time.Minute)}, true, "warning the tunnel to bob is down no handshake for 5 min"},
		"never a handshake":    {known{peer: related(time.Minute), contact: contact(true, time.Hour, "")}, gateway.Stats{}, true, "no handshake since kithd started"},
		"no answer":            {known{peer: related(time.Hour), contact: contact(true, time.Hour, "")}, gateway.Stats{LastHandshake: now.Add(-time.Minute), Heard: now.Add(-48 * time.Second)}, true, "the tunnel to bob is down no answer for 48 s"},
		"Kubernetes away":      {known{peer: related(time.Hour), contact: link.Contact{Reachable: true, Since: now.Add(-time.Hour), Ailing: "its Kubernetes does not answer"}}, up, true, "warning bob answers, and cannot do its work its Kubernetes does not answer"},
		"no tunnel":            {known{peer: related(time.Minute), contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, "not set up yet"},
		"just signed":          {known{peer: related(2 * time.Second), contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, ""},
		"only just back":       {known{peer: related(time.Hour), contact: contact(true, 3*time.Second, "")}, gateway.Stats{}, true, ""},
		"ending, tunnel taken": {known{peer: &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateEnding, Contract: "c", Since: ago(time.Hour)}}}, contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, ""},
	} {
		tc.peer.name = "bob"
		text := ""
		for _, p := range peerProblems(tc.peer, tc.tunnel, tc.has, now) {
			text += strings.Join([]string{string(p.Severity), p.What, p.Why}, " ")
			if p.Do == "" {
				t.Errorf("%s: nobody is told what to do", name)
			}
		}
		if tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %q, want %q", name, text, tc.want)
		}
	}
}

func TestClocksOfManyTellWhoseIsWrong(t *testing.T) {
	peer := func(name string, ahead time.Duration) known {
		return known{name: name, peer: &v1alpha1.Peer{}, contact: link.Contact{Reachable: true}, clock: ahead}
	}
	for name, tc := range map[string]struct {
		all  []known
		want []string
	}{
		"all agree":         {[]known{peer("bob", 400*time.Millisecond), peer("carol", -time.Second)}, nil},
		"one of two differ": {[]known{peer("bob", 7*time.Minute), peer("carol", 0)}, []string{"the clock of bob is 7 min ahead of this one"}},
		"only one there":    {[]known{peer("bob", -7*time.Minute)}, []string{"the clock of bob is 7 min behind this one"}},
		"it is this one":    {[]known{peer("bob", 7*time.Minute), peer("carol", 7*time.Minute), peer("dave", 0)}, []string{"this machine's clock is behind those of 2 of the 3"}},
		"not a peer":        {[]known{{name: "eve", contact: link.Contact{Reachable: true}, clock: time.Hour}}, nil},
		"not reachable now": {[]known{{name: "bob", peer: &v1alpha1.Peer{}, clock: time.Hour}}, nil},
	} {
		got := clockProblems(tc.all)
		if len(got) != len(tc.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range tc.want {
			if !strings.Contains(got[i].What, want) {
				t.Errorf("%s: %q, want %q", name, got[i].What, want)
			}
		}
	}
}

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

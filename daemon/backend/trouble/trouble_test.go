package trouble

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
)

func TestPeerProblemsSayWhatIsWrong(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	related := func(since time.Duration) *v1alpha1.Peer {
		return &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateConnected, Contract: "c", Since: ago(since)}}}
	}
	contact := func(reachable bool, since time.Duration, why string) peering.Contact {
		state := presence.Unreachable
		if reachable {
			state = presence.Reachable
		}
		return peering.Contact{Presence: presence.Presence{State: state, Since: now.Add(-since), Why: why}}
	}
	impostor := contact(false, 0, "want A, got B")
	impostor.Cause = presence.OtherKey
	refused, overlapped := related(time.Minute), related(time.Hour)
	refused.Status.Outgoing.Why = "link with bob: one of the two runs an older Kith"
	overlapped.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAddressesFree, Status: metav1.ConditionFalse, Message: "10.64.3.0/24: pods go on"}}
	up := gateway.Stats{Up: true, LastHandshake: now.Add(-time.Minute)}
	for name, tc := range map[string]struct {
		peer   directory.Known
		tunnel gateway.Stats
		has    bool
		want   string // part of the problem; "" for none
	}{
		"all well":             {directory.Known{Peer: related(time.Hour), Contact: contact(true, time.Hour, "")}, up, true, ""},
		"no relation":          {directory.Known{Peer: &v1alpha1.Peer{}, Contact: contact(false, time.Hour, "no answer")}, up, false, ""},
		"unreachable":          {directory.Known{Peer: related(time.Hour), Contact: contact(false, 40*time.Second, "no answer")}, up, true, "warning bob cannot be reached no answer, for 40 s"},
		"another key":          {directory.Known{Peer: &v1alpha1.Peer{}, Contact: impostor}, up, true, "error bob was refused: another key answers where it was want A, got B"},
		"handshake long ago":   {directory.Known{Peer: related(time.Hour), Contact: contact(true, time.Hour, "")}, gateway.Stats{LastHandshake: now.Add(-5 * time.Minute)}, true, "warning the tunnel to bob is down no handshake for 5 min"},
		"never a handshake":    {directory.Known{Peer: related(time.Minute), Contact: contact(true, time.Hour, "")}, gateway.Stats{}, true, "no handshake since kithd started"},
		"no answer":            {directory.Known{Peer: related(time.Hour), Contact: contact(true, time.Hour, "")}, gateway.Stats{LastHandshake: now.Add(-time.Minute), Heard: now.Add(-48 * time.Second)}, true, "the tunnel to bob is down no answer for 48 s"},
		"Kubernetes away":      {directory.Known{Peer: related(time.Hour), Contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: now.Add(-time.Hour), Cause: presence.Ailing, Why: "its Kubernetes does not answer"}}}, up, true, "warning bob answers, and cannot do its work its Kubernetes does not answer"},
		"no tunnel":            {directory.Known{Peer: related(time.Minute), Contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, "not set up yet"},
		"no addresses":         {directory.Known{Peer: refused, Contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, "warning the tunnel to bob is down link with bob: one of the two runs an older Kith"},
		"addresses of the LAN": {directory.Known{Peer: overlapped, Contact: contact(true, time.Hour, "")}, up, true, "info guests of or at bob have addresses of the network around this laptop 10.64.3.0/24: pods go on"},
		"of it no more":        {directory.Known{Peer: related(time.Hour), Contact: contact(true, time.Hour, "")}, up, true, ""},
		"just signed":          {directory.Known{Peer: related(2 * time.Second), Contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, ""},
		"only just back":       {directory.Known{Peer: related(time.Hour), Contact: contact(true, 3*time.Second, "")}, gateway.Stats{}, true, ""},
		"ending, tunnel taken": {directory.Known{Peer: &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateEnding, Contract: "c", Since: ago(time.Hour)}}}, Contact: contact(true, time.Hour, "")}, gateway.Stats{}, false, ""},
	} {
		tc.peer.Name = "bob"
		text := ""
		for _, p := range OfPeer(tc.peer, tc.tunnel, tc.has, now) {
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
	peer := func(name string, ahead time.Duration) directory.Known {
		return directory.Known{Name: name, Peer: &v1alpha1.Peer{}, Contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable}, Clock: ahead}}
	}
	for name, tc := range map[string]struct {
		all  []directory.Known
		want []string
	}{
		"all agree":         {[]directory.Known{peer("bob", 400*time.Millisecond), peer("carol", -time.Second)}, nil},
		"one of two differ": {[]directory.Known{peer("bob", 7*time.Minute), peer("carol", 0)}, []string{"the clock of bob is 7 min ahead of this one"}},
		"only one there":    {[]directory.Known{peer("bob", -7*time.Minute)}, []string{"the clock of bob is 7 min behind this one"}},
		"it is this one":    {[]directory.Known{peer("bob", 7*time.Minute), peer("carol", 7*time.Minute), peer("dave", 0)}, []string{"this machine's clock is behind those of 2 of the 3"}},
		"not a peer":        {[]directory.Known{{Name: "eve", Contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable}, Clock: time.Hour}}}, nil},
		"not reachable now": {[]directory.Known{{Name: "bob", Peer: &v1alpha1.Peer{}, Contact: peering.Contact{Clock: time.Hour}}}, nil},
	} {
		got := OfClocks(tc.all)
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

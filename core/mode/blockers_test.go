package mode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

func someFacts() facts {
	corp := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "corp"}, Spec: v1alpha1.PeerSpec{ID: corpID}}
	return facts{self: aliceID, peer: &corp, ours: true, door: true, ready: true, Snapshot: ledger.Snapshot{Peers: []*v1alpha1.Peer{&corp}}, contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable}},
		answer: peering.Tether{Answer: peering.TetherYes}, now: time.Now()}
}

func contractOf(peer string, role v1alpha1.Role, left time.Duration) *v1alpha1.Contract {
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer + string(role)},
		Spec: v1alpha1.ContractSpec{Peer: peer, Role: role, NotAfter: &metav1.Time{Time: time.Now().Add(left)}}}
}

func abroad(peer string) corev1.Pod {
	p := pod("away", "ReplicaSet")
	p.Spec.NodeName = v1alpha1.VirtualNodePrefix + peer
	return *p
}

func TestWhatIsInTheWay(t *testing.T) {
	bob := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: aliceID[:1] + corpID[1:]}}
	for name, c := range map[string]struct {
		change func(*facts)
		want   []string // each in one blocker, what, why and do put together
	}{
		"nothing":   {func(*facts) {}, nil},
		"not ours":  {func(f *facts) { f.ours, f.ready = false, false }, []string{"the Kubernetes here is not Kith's own"}},
		"no door":   {func(f *facts) { f.door = false }, []string{"the front door is off"}},
		"not ready": {func(f *facts) { f.ready = false }, []string{"the Kubernetes of this laptop is not ready"}},
		"itself":    {func(f *facts) { f.self = corpID }, []string{"corp is this laptop itself"}},
		"tethered":  {func(f *facts) { f.mode = &journal{Step: tethered, Peer: "acme"} }, []string{"this laptop is tethered to acme| |`kith untether` first"}},
		"under way": {func(f *facts) { f.mode = &journal{Step: joining, Peer: "acme"} }, []string{"a switch is under way: joining the cluster of acme"}},
		"offers to corp": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("corp", v1alpha1.RoleProvider, time.Hour)}
		}, nil},
		"offers to bob": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("bob", v1alpha1.RoleProvider, time.Hour)}
		}, []string{"this laptop offers resources to bob|a tethered laptop is corp's alone|`kith unpeer bob`"}},
		"offered to bob": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("bob", v1alpha1.RoleProvider, -time.Minute)}
		}, nil},
		"consumed of bob": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("bob", v1alpha1.RoleConsumer, -time.Minute)}
		}, nil},
		"offers to two": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("corp", v1alpha1.RoleProvider, time.Hour), contractOf("bob", v1alpha1.RoleProvider, time.Hour), contractOf("carol", v1alpha1.RoleProvider, time.Hour)}
		}, []string{"offers resources to bob", "offers resources to carol"}},
		"consumes": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("bob", v1alpha1.RoleConsumer, time.Hour)}
			f.pods = []corev1.Pod{abroad("bob"), abroad("bob"), abroad("carol")}
		}, []string{"this laptop uses resources of bob|2 pods of this laptop run there|`kith unpeer bob` brings home"}},
		"consumes of corp": {func(f *facts) {
			f.Contracts = []*v1alpha1.Contract{contractOf("corp", v1alpha1.RoleConsumer, time.Hour)}
		}, []string{"this laptop uses resources of corp"}},
		"runs a laptop": {func(f *facts) { p := bob; p.Spec.Tethered = &v1alpha1.Tethered{}; f.Peers = append(f.Peers, &p) }, []string{"the laptop bob is tethered to this one"}},
		"asks": {func(f *facts) {
			p := bob
			p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1}
			f.Peers = append(f.Peers, &p)
		}, []string{"a request to bob is pending|"}},
		"asked, declined": {func(f *facts) {
			p := bob
			p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1}
			p.Status.Outgoing = v1alpha1.DirectionStatus{State: v1alpha1.StateDeclined, Attempt: 1}
			f.Peers = append(f.Peers, &p)
		}, nil},
		"is asked": {func(f *facts) {
			f.Requests = []*v1alpha1.PeeringRequest{{ObjectMeta: metav1.ObjectMeta{Name: "bob-7f3a"}, Spec: v1alpha1.PeeringRequestSpec{PeerName: "bob", Expires: metav1.NewTime(f.now.Add(time.Minute))}}}
		}, []string{"a request of bob waits for your answer| |`kith decline bob-7f3a`"}},
		"was asked": {func(f *facts) {
			f.Requests = []*v1alpha1.PeeringRequest{{Spec: v1alpha1.PeeringRequestSpec{PeerName: "bob", Expires: metav1.NewTime(f.now.Add(-time.Minute))}}}
		}, nil},
		"away": {func(f *facts) { f.contact = peering.Contact{Presence: presence.Presence{Why: "no route to host"}} }, []string{"corp cannot be reached|no route to host"}},
		"older": {func(f *facts) {
			f.err = &peering.Problem{Code: peering.CodeVersion, Message: "its Kith is older than this one and runs no laptops", Do: "update Kith there"}
		}, []string{"corp cannot run laptops|its Kith is older than this one and runs no laptops|update Kith there"}},
		"hoarse":    {func(f *facts) { f.err = errors.New("no answer in time") }, []string{"corp did not say whether it would run this laptop|no answer in time"}},
		"unwilling": {func(f *facts) { f.answer = peering.Tether{Answer: peering.TetherNo, Why: "no TetherPolicy selects it"} }, []string{"corp does not run this laptop|no TetherPolicy selects it"}},
		"would lose pods": {func(f *facts) {
			f.workloads = api.DrainWorkloads
			for i := range 6 {
				f.pods = append(f.pods, *pod(fmt.Sprint("p", i), ""))
			}
		}, []string{"a drain would lose default/p0, default/p1, default/p2, default/p3 and 2 more|no controller makes them again"}},
		"keeps pods": {func(f *facts) { f.pods = []corev1.Pod{*pod("p", "")} }, nil},
		"drains what may be": {func(f *facts) {
			f.workloads = api.DrainWorkloads
			f.pods = []corev1.Pod{*pod("p", "ReplicaSet"), *pod("q", "DaemonSet"), *pod("r", "Node"), *guest("g")}
		}, nil},
		"all at once": {func(f *facts) {
			f.door, f.contact = false, peering.Contact{Presence: presence.Presence{Why: "away"}}
			f.Contracts = []*v1alpha1.Contract{contractOf("bob", v1alpha1.RoleProvider, time.Hour), contractOf("carol", v1alpha1.RoleConsumer, time.Hour)}
		}, []string{"front door", "offers resources to bob", "uses resources of carol", "cannot be reached"}},
	} {
		f := someFacts()
		c.change(&f)
		got := f.blockers()
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			text := strings.ReplaceAll(got[i].What+"|"+got[i].Why+"|"+got[i].Do, "||", "| |")
			ok = ok && strings.Contains(text, c.want[i])
		}
		if !ok {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

func TestTheRefusalSaysAllOfIt(t *testing.T) {
	err := error(&BlockedError{"corp", []api.Problem{{What: "a", Why: "b", Do: "c"}, {What: "d", Do: "e"}}})
	var problem *api.Error
	if !errors.As(err, &problem) || problem.Code != api.CodeConflict || err.Error() != "not tethered to corp: a: b; d (c; e)" {
		t.Errorf("%v", err)
	}
}

func TestWhatTheOwnerReadsBefore(t *testing.T) {
	f := someFacts()
	f.pods = []corev1.Pod{*pod("p", "ReplicaSet"), *pod("q", ""), *pod("r", "DaemonSet"), *guest("g")}
	f.answer = peering.Tether{Answer: peering.TetherAsks, Grant: &peering.TetherGrant{User: "kith:laptop:x", Namespaces: []peering.TetherNamespace{{Name: "team-a", Role: "edit"}}}}
	f.Contracts = []*v1alpha1.Contract{contractOf("corp", v1alpha1.RoleProvider, time.Hour)}
	text := strings.Join(f.effects(), "\n")
	for _, want := range []string{"as kith:laptop:x, in team-a (edit)", "2 pods of yours run on", "The owner of corp is asked first.", "becomes that of the tether", "`kith untether` takes this laptop back"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

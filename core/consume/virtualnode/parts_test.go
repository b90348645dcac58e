package virtualnode

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/identity"
)

var bobsID, carolsID, davesID = identity.ID{2}.String(), identity.ID{3}.String(), identity.ID{4}.String()

func partsLine(t *testing.T, parts ...remote.Part) string {
	t.Helper()
	text, err := json.Marshal(remote.Line{Kind: remote.KindParts, Object: remote.Parts{Parts: parts}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func cpuOf(id, name, cpu string) remote.Part {
	return remote.Part{ID: id, Name: name, Resources: map[string]string{"cpu": cpu}}
}

// dividing is standing, with a node whose parts are kept; stop ends that.
func dividing(t *testing.T, story func(s *stand, stop func())) {
	dividingAt(t, func(string, HomePods) (int32, func(), error) { return 10261, func() {}, nil }, story)
}

// dividingAt is the same with endpoints of their own.
func dividingAt(t *testing.T, endpoint func(string, HomePods) (int32, func(), error), story func(s *stand, stop func())) {
	standing(t, func(s *stand) {
		s.node.cfg.PeerID = bobsID
		s.node.cfg.Endpoint = endpoint
		s.node.Set(corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("2")}, map[string]string{"kith.dev/virtual": "true", corev1.LabelTopologyZone: "bob"})
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan struct{})
		run := func() {
			if err := s.node.adoptParts(ctx); err != nil {
				t.Error(err)
			}
			s.node.keepParts(ctx, "v1")
			close(done)
		}
		go run()
		story(s, func() { cancel(); <-done })
		cancel()
		<-done
	})
}

// shown are the nodes of those behind the peer, with their cpu and, where they are not ready, the reason.
func (s *stand) shown() string {
	s.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	list, err := s.home.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelBroker + "=bob"})
	if err != nil {
		s.Fatal(err)
	}
	var words []string
	for _, n := range list.Items {
		word := n.Name + " " + n.Status.Allocatable.Cpu().String()
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				word += " " + c.Reason
			}
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func (s *stand) shows(want string) {
	s.Helper()
	if got := s.shown(); got != want {
		s.Errorf("shown: %q, want %q", got, want)
	}
}

func (s *stand) own() string {
	synctest.Wait()
	return s.node.node("v1").Status.Allocatable.Cpu().String()
}

// TestEachProviderBehindAPeerIsANode: as long as the peer tells of it, with what it says is there, and no more than the contract grants.
func TestEachProviderBehindAPeerIsANode(t *testing.T) {
	dividing(t, func(s *stand, _ func()) {
		s.say(partsLine(t, cpuOf(bobsID, "", "1500m"), cpuOf(carolsID, "Carol's", "500m")))
		s.shows("") // more may be told that matters
		s.say(synced)
		s.shows("kith-bob.carol-s 500m")
		if own := s.own(); own != "1500m" {
			t.Errorf("the peer's own node has %s", own)
		}
		node, err := s.home.CoreV1().Nodes().Get(s.Context(), "kith-bob.carol-s", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{v1alpha1.LabelPeer: "bob", v1alpha1.LabelBroker: "bob", v1alpha1.LabelBehind: "carol-s", corev1.LabelTopologyZone: "bob.carol-s",
			corev1.LabelHostname: node.Name, "kith.dev/virtual": "true"}
		for key, value := range want {
			if node.Labels[key] != value {
				t.Errorf("label %s is %q", key, node.Labels[key])
			}
		}
		if !slices.Equal(node.Spec.Taints, s.node.taints()) || node.Annotations[v1alpha1.AnnotationBehind] != carolsID {
			t.Errorf("%v, %v", node.Spec.Taints, node.Annotations)
		}
		away := cpuOf(carolsID, "Carol's", "500m")
		away.Why = "no sign of life"
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), away, cpuOf(davesID, "carol-s", "1k")))
		s.shows("kith-bob.carol-s 500m ProviderAway, kith-bob.carol-s-" + strings.ToLower(identity.ID{4}.Short()) + " 2")
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "another name", "1")))
		time.Sleep(partBlinks)
		s.shows("kith-bob.carol-s 1")
		s.say(partsLine(t))
		time.Sleep(partBlinks)
		s.shows("")
		if own := s.own(); own != "2" || len(s.node.allParts()) > 0 {
			t.Errorf("the peer's own node has %s, and these are left: %v", own, s.node.allParts())
		}
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1")))
		s.shows("kith-bob.carol 1")
	})
}

// TestByWhomAPodIsRun follows from its node: from one that is no more nothing goes anywhere.
func TestByWhomAPodIsRun(t *testing.T) {
	dividing(t, func(s *stand, _ func()) {
		on := func(node, want string) {
			t.Helper()
			via, err := s.node.via(&corev1.Pod{Spec: corev1.PodSpec{NodeName: node}})
			if err != nil {
				via = "no"
			}
			if via != want {
				t.Errorf("on %s: %q, want %q", node, via, want)
			}
		}
		s.say(synced)
		on("kith-bob", "")
		on("kith-bob.carol", "no")
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1")))
		on("kith-bob", bobsID)
		on("kith-bob.carol", carolsID)
		on("kith-bob.dave", "no")
		claim := corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}
		if via, err := s.node.via(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "kith-bob.carol", Volumes: []corev1.Volume{claim}}}); via != bobsID || err != nil {
			t.Errorf("what claims stand for is the peer's own: %q, %v", via, err)
		}
		s.say(partsLine(t, cpuOf(bobsID, "", "1")))
		on("kith-bob.carol", "no")
	})
}

// TestAnEarlierRunsNodesAreKept: until the peer says otherwise, and none is made by a node that leaves.
func TestAnEarlierRunsNodesAreKept(t *testing.T) {
	var left *corev1.NodeList
	dividing(t, func(s *stand, stop func()) {
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1")), synced)
		s.shows("kith-bob.carol 1")
		stop()
		var err error
		if left, err = s.home.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 1 {
			t.Fatalf("%v, %v", left, err)
		}
	})
	standing(t, func(s *stand) {
		s.node.cfg.PeerID, s.node.cfg.Endpoint = bobsID, func(string, HomePods) (int32, func(), error) { return 10261, func() {}, nil }
		s.node.Set(corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("2")}, nil)
		if err := s.home.Tracker().Add(&left.Items[0]); err != nil {
			t.Fatal(err)
		}
		if err := s.node.adoptParts(s.Context()); err != nil {
			t.Fatal(err)
		}
		if s.node.seesPods() || len(s.node.allParts()) != 1 {
			t.Errorf("its pods count as seen: %v", s.node.allParts())
		}
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan struct{})
		go func() { s.node.keepParts(ctx, "v1"); close(done) }()
		s.shows("kith-bob.carol 1")
		if !s.node.seesPods() {
			t.Error("its pods are not seen")
		}
		s.node.Leave()
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1"), cpuOf(davesID, "dave", "1")), synced)
		s.shows("kith-bob.carol 1")
		s.say(partsLine(t))
		time.Sleep(partBlinks)
		s.shows("")
		cancel()
		<-done
	})
}

// TestTheLaterOfTwoPodsOfAName: that the earlier was deleted is not seen yet on its node.
func TestTheLaterOfTwoPodsOfAName(t *testing.T) {
	standing(t, func(s *stand) {
		p := s.node.newPart(carolsID, "carol")
		p.cancel = func() {}
		p.pods.hasSynced.Store(true)
		s.node.setPart(carolsID, p)
		pod := func(node, version string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", ResourceVersion: version}, Spec: corev1.PodSpec{NodeName: node}}
		}
		for _, versions := range []map[string]string{{"kith-bob": "9", "kith-bob.carol": "10"}, {"kith-bob": "11", "kith-bob.carol": "10"}} {
			for node, version := range versions {
				pods := s.node.pods
				if node != "kith-bob" {
					pods = p.pods
				}
				if err := pods.Put(pod(node, version)); err != nil {
					t.Fatal(err)
				}
			}
			newest := slices.MaxFunc(slices.Collect(maps.Values(versions)), func(a, b string) int { return len(a)*100 - len(b)*100 + strings.Compare(a, b) })
			if got := s.node.Pod("shop", "db-0"); got.ResourceVersion != newest {
				t.Errorf("%v: %s", versions, got.ResourceVersion)
			}
		}
	})
}

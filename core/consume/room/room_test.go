package room

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/consume/why"
)

func noSnapshots() ([]volumes.HeldSnapshot, bool) { return nil, true }

// TestWhatIsNotKnownYetIsNotNone: what a peer lends for snapshots would be given back.
func TestWhatIsNotKnownYetIsNotNone(t *testing.T) {
	unknown := func() ([]volumes.HeldSnapshot, bool) { return nil, false }
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if needs, _, err := New(fake.NewClientBuilder().WithScheme(scheme).Build(), unknown).Needs(t.Context(), twoPlaces()); err == nil || !strings.Contains(err.Error(), "snapshots") {
		t.Errorf("%+v, %v", needs, err)
	}
}

func list(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

// pod is one of a namespace that is offloaded, and waits.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Unix(1000, 0)}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Unix(1010, 0),
	}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func at(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName, p.Status = node, corev1.PodStatus{Phase: corev1.PodRunning} }
}

func in(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }

func asks(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
}

// bob is the node of a peer that grants one processor.
func bob() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}}
	n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPeer, Value: "bob", Effect: corev1.TaintEffectNoSchedule}}
	n.Status.Allocatable = list("1", "10")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func offloaded(namespace string, peers ...string) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote, Peers: peers}}
}

func TestNeeds(t *testing.T) {
	claim := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	for name, tt := range map[string]struct {
		objects               []client.Object
		bob                   string // pods, waits, beyond, processors
		carol                 string // with whom there is no contract
		waiting               int
		bobIsGone, carolApart bool
		bobSleeps             bool // and what would be there if he were woken is asked
	}{
		"nothing":                       {bob: "0 0 0 0", carol: "0 0 0 0"},
		"some run, some wait":           {objects: []client.Object{pod("a", at("kith-bob")), pod("b"), pod("c")}, bob: "1 2 0 3", carol: "0 2 0 2", waiting: 2},
		"more than there may be":        {objects: []client.Object{pod("a"), pod("b", asks("9")), pod("c", asks("4"))}, bob: "0 1 2 1", carol: "0 1 2 1", waiting: 3},
		"a namespace that stays":        {objects: []client.Object{pod("a", in("home"))}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"for bob alone":                 {objects: []client.Object{pod("a", in("bobs"))}, bob: "0 1 0 1", carol: "0 0 0 0", waiting: 1},
		"what waits for something else": {objects: []client.Object{pod("a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} })}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"what tolerates no peer":        {objects: []client.Object{pod("a", func(p *corev1.Pod) { p.Spec.Tolerations = nil })}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"not seen by the scheduler yet": {objects: []client.Object{pod("a", func(p *corev1.Pod) { p.Status.Conditions = nil })}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"what is being deleted": {objects: []client.Object{pod("a", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1020, 0)}, []string{"test/kept"}
		})}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"what has ended there": {objects: []client.Object{pod("a", at("kith-bob"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"what has no room there, though it was given to it": {objects: []client.Object{pod("a", at("kith-bob")), pod("b", at("kith-bob"), func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: why.RefusedContract, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1010, 0)},
			}}
		})}, bob: "2 1 0 2", carol: "0 0 0 0", waiting: 1},
		"what runs elsewhere":        {objects: []client.Object{pod("a", at("alice")), pod("b", at("kith-dave"))}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"a volume that is not there": {objects: []client.Object{pod("a", claim)}, bob: "0 0 0 0", carol: "0 0 0 0"},
		"where there is no network":  {objects: []client.Object{pod("a", at("kith-bob")), pod("b")}, bobIsGone: true, carolApart: true, bob: "1 0 0 1", carol: "0 0 0 0"},
		"what would fit if he were woken": {objects: []client.Object{pod("a", at("kith-bob")), pod("b"), pod("c", asks("9")), pod("d", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} })},
			bobSleeps: true, bob: "1 1 1 2", carol: "0 1 1 1", waiting: 2},
		"a peer that is gone": {objects: []client.Object{pod("a", at("kith-bob")), pod("b")}, bobIsGone: true, bob: "1 0 0 1", carol: "0 1 0 1", waiting: 1},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			node := bob()
			if tt.bobSleeps {
				node.Status.Conditions[0].Status = corev1.ConditionFalse
				for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
					for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
						node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
					}
				}
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(tt.objects, node, offloaded("shop"), offloaded("bobs", "bob"))...).Build()
			place := func(name string, most corev1.ResourceList) seeking.Place {
				return seeking.Place{Peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}, There: presence.Presence{State: presence.Reachable}, Most: most}
			}
			places := []seeking.Place{place("bob", list("4", "10")), place("carol", list("4", "10"))}
			if tt.carolApart {
				places[1].Peer.Spec.Request = &v1alpha1.ResourceRequest{Network: v1alpha1.NetworkNone}
			}
			if tt.bobIsGone {
				places[0].There = presence.Presence{State: presence.Unreachable}
			}
			if tt.bobSleeps {
				places[0].There, places[0].Asleep = presence.Presence{State: presence.Suspended}, true
			}
			needs, waiting, err := New(c, noSnapshots).Needs(t.Context(), places)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{tt.bob, tt.carol} {
				n := needs[i]
				if got := fmt.Sprintf("%d %d %d %s", n.Pods, n.Waits, n.Beyond, n.All.Cpu()); got != want {
					t.Errorf("%s: %s, want %s", places[i].Peer.Name, got, want)
				}
				if len(n.Who) != n.Waits && tt.bobSleeps {
					t.Errorf("%s: %d wait, of which %d are named", places[i].Peer.Name, n.Waits, len(n.Who))
				}
				if n.Waits > 0 && !n.Since.Equal(time.Unix(1010, 0)) {
					t.Errorf("%s: since %s", places[i].Peer.Name, n.Since)
				}
			}
			if waiting != tt.waiting {
				t.Errorf("%d wait, want %d", waiting, tt.waiting)
			}
		})
	}
}

// stored is a volume at a peer, with the claim that has it.
func stored(name, peer string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name}}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.StorageProvisioner, VolumeHandle: name, VolumeAttributes: map[string]string{"peer": peer}}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: []string{peer}}},
	}}}}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Spec.VolumeName, c.Status.Phase = v.Name, corev1.ClaimBound
	return v, c
}

func has(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

// What is stored at a peer, or on its way, is told; and pods of what is stored there need that peer alone, whether there is a contract or not.
func TestVolumesAreHeldWhereTheyAre(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	moves := func(phase, from, to string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationMove: fmt.Sprintf(`{"phase":%q,"from":%q,"to":%q}`, phase, from, to)}
		}
	}
	for name, tt := range map[string]struct {
		at     string // a peer, "": at home
		change func(*corev1.PersistentVolumeClaim)
		gone   bool // the volume, for a moment
		want   string
	}{
		"at home":                {want: "0 0"},
		"at a peer":              {at: "carol", want: "0 1"},
		"at another peer":        {at: "dave", want: "0 0"},
		"on its way to a peer":   {change: moves("Copying", "alice", "kith-carol"), want: "0 1"},
		"at neither, on its way": {change: moves("Stopped", "kith-carol", "kith-bob"), gone: true, want: "1 1"},
		"a move that failed":     {change: moves("Failed", "alice", "kith-carol"), want: "0 0"},
		"made at a peer this moment": {change: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations = "", map[string]string{"volume.kubernetes.io/selected-node": "kith-carol"}
		}, gone: true, want: "0 1"},
		"made there long ago": {change: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "kith-carol"}
		}, want: "0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			v, c := stored("data", tt.at)
			if tt.at == "" {
				v.Spec.CSI, v.Spec.NodeAffinity = nil, nil
				v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
			}
			if tt.change != nil {
				tt.change(c)
			}
			objects := []client.Object{bob(), c}
			if !tt.gone {
				objects = append(objects, v)
			}
			needs, _, err := New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), noSnapshots).Needs(t.Context(), twoPlaces())
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(needs[0].Held, needs[1].Held); got != tt.want {
				t.Errorf("held at bob and carol: %s, want %s", got, tt.want)
			}
		})
	}

	v, c := stored("data", "carol")
	home := fake.NewClientBuilder().WithScheme(scheme).WithObjects(bob(), offloaded("shop"), v, c, pod("a", has("data"))).Build()
	needs, waiting, err := New(home, noSnapshots).Needs(t.Context(), twoPlaces())
	if err != nil || needs[0].Waits != 0 || needs[1].Waits != 1 || waiting != 1 {
		t.Errorf("%+v, %d wait, %v", needs, waiting, err)
	}
}

// twoPlaces are bob's, with whom there is a contract, and carol's.
func twoPlaces() (places []seeking.Place) {
	for _, name := range []string{"bob", "carol"} {
		places = append(places, seeking.Place{Peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}},
			There: presence.Presence{State: presence.Reachable}, Most: list("4", "10")})
	}
	return places
}

// A pod that lacks storage at a peer lacks no cpu there: nothing is asked for it that would not help.
func TestPodsThatLackStorageNeedNothingElse(t *testing.T) {
	const fast = "fast.storageclass.storage.k8s.io/requests.storage"
	unbound := func(name, class, size string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
		c.Spec.StorageClassName, c.Spec.Resources.Requests = &class, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return c
	}
	grants := func(names ...string) corev1.ResourceList {
		l := list("1", "10")
		for _, name := range names {
			l[corev1.ResourceName(name)] = resource.MustParse("5Gi")
		}
		return l
	}
	full, fullClaim := stored("full", "bob")
	full.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
	for name, tt := range map[string]struct {
		bob, carol corev1.ResourceList // what they grant
		objects    []client.Object
		want       string // waits and beyond at bob, then at carol
	}{
		"one has it":              {grants("storage"), grants(), []client.Object{unbound("a", "kith", "3Gi"), pod("a", has("a"))}, "1 0, 0 0"},
		"none has it":             {grants(), grants(), []client.Object{unbound("a", "kith", "3Gi"), pod("a", has("a"))}, "0 0, 0 0"},
		"of another class":        {grants("storage"), grants(fast), []client.Object{unbound("a", "kith-fast", "3Gi"), pod("a", has("a"))}, "0 0, 1 0"},
		"more than is granted":    {grants("storage"), grants("storage"), []client.Object{unbound("a", "kith", "6Gi"), pod("a", has("a"))}, "0 1, 0 1"},
		"volumes have it":         {grants("storage"), grants("storage"), []client.Object{full, fullClaim, unbound("a", "kith", "3Gi"), pod("a", has("a"))}, "0 1, 1 0"},
		"a pod before it took it": {grants("storage"), grants(), []client.Object{unbound("a", "kith", "3Gi"), pod("a", has("a")), unbound("b", "kith", "3Gi"), pod("b", has("b"))}, "1 1, 0 0"},
		"two pods of one claim":   {grants("storage"), grants(), []client.Object{unbound("a", "kith", "3Gi"), pod("a", has("a")), pod("b", has("a"))}, "2 0, 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			kith := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith"}, Provisioner: v1alpha1.StorageProvisioner}
			kithFast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith-fast"}, Provisioner: v1alpha1.StorageProvisioner,
				Parameters: map[string]string{v1alpha1.ParameterClass: "fast"}}
			places := twoPlaces()
			places[0].Grants, places[1].Grants = tt.bob, tt.carol
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(tt.objects, bob(), offloaded("shop"), kith, kithFast)...).Build()
			needs, _, err := New(c, noSnapshots).Needs(t.Context(), places)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%d %d, %d %d", needs[0].Waits, needs[0].Beyond, needs[1].Waits, needs[1].Beyond); got != tt.want {
				t.Errorf("bob, carol: %s, want %s", got, tt.want)
			}
			if cpu := needs[0].All[corev1.ResourceCPU]; cpu.Value() != int64(needs[0].Waits) {
				t.Errorf("%s processors are needed of bob", &cpu)
			}
		})
	}
}

func BenchmarkNeeds(b *testing.B) {
	scheme := runtime.NewScheme()
	_, _, _ = corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)
	var objects []client.Object
	for i := range 400 {
		objects = append(objects, pod(fmt.Sprintf("pod-%03d", i)))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, offloaded("shop"))...).Build()
	var places []seeking.Place
	for i := range 50 {
		places = append(places, seeking.Place{Peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("peer-", i)}},
			There: presence.Presence{State: presence.Reachable}, Most: list("64", "100")})
	}
	for b.Loop() {
		if _, _, err := New(c, noSnapshots).Needs(b.Context(), places); err != nil {
			b.Fatal(err)
		}
	}
}

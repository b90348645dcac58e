package guests

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

func matters(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationHomePriority: value} }
}

func at(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func of(consumer string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[v1alpha1.LabelConsumer] = consumer }
}

func TestWhoMakesRoom(t *testing.T) {
	second := func(n *corev1.Node) { n.Name = "b-second" }
	owners := func(name string) *corev1.Pod {
		p := guest(name, at("alice"))
		p.Labels, p.OwnerReferences = nil, nil
		return p
	}
	kept := func(p *corev1.Pod) { p.Status.NominatedNodeName = "alice" }
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	claims := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	}
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		pods  []*corev1.Pod
		pod   *corev1.Pod // of 10 at home, unless it says otherwise
		want  string
	}{
		"one that matters less":           {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"))}, guest("z"), "alice a"},
		"one that says it matters less":   {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), matters("-5"))}, guest("z", matters("-4")), "alice a"},
		"one that matters as much":        {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), matters("10"))}, guest("z"), ""},
		"one that matters more":           {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), matters("11"))}, guest("z"), ""},
		"one that matters beyond numbers": {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), matters("99999999999"))}, guest("z"), "alice a"},
		"another home's":                  {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), of("other"))}, guest("z"), ""},
		"the owner's":                     {nil, []*corev1.Pod{owners("a"), owners("b"), owners("c")}, guest("z"), ""},
		"what the owner left of the room": {nil, []*corev1.Pod{owners("a"), guest("b", at("alice"), asks("cpu", "1500m"))}, guest("z"), "alice b"},
		"not enough all together":         {nil, []*corev1.Pod{owners("a"), guest("b", at("alice"), asks("cpu", "1500m"))}, guest("z", asks("cpu", "1600m")), ""},
		"it fits":                         {nil, []*corev1.Pod{guest("a", at("alice"))}, guest("z"), "alice"},
		"it will fit":                     {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), leaving)}, guest("z"), "alice"},
		"one ended":                       {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"), ended)}, guest("z"), "alice"},
		"the least": {nil, []*corev1.Pod{
			guest("a", at("alice"), matters("5")), guest("b", at("alice"), asks("cpu", "700m"), matters("1")), guest("c", at("alice"), asks("cpu", "800m"), matters("7")),
		}, guest("z", asks("cpu", "700m")), "alice b"},
		"as few as will do": {nil, []*corev1.Pod{
			guest("a", at("alice"), asks("cpu", "100m"), matters("1")), guest("b", at("alice"), asks("cpu", "1500m"), matters("5")),
		}, guest("z", asks("cpu", "1900m")), "alice b"},
		"the youngest of equals":                {nil, []*corev1.Pod{guest("b", at("alice"), asks("cpu", "1")), guest("a", at("alice"), asks("cpu", "1"))}, guest("z"), "alice b"},
		"places for pods":                       {nil, []*corev1.Pod{guest("a", at("alice"), asks()), guest("b", at("alice"), asks(), matters("1")), guest("c", at("alice"), asks(), matters("2"))}, guest("z", asks()), "alice a"},
		"room was made for another":             {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "1")), guest("y", asks("cpu", "1500m"), of("other"), kept)}, guest("z", asks("cpu", "500m")), "alice a"},
		"room was made for another of its home": {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "1")), guest("y", asks("cpu", "2"), matters("10"), kept)}, guest("z"), ""},
		"another waits":                         {nil, []*corev1.Pod{guest("y", asks("cpu", "2"), matters("1"))}, guest("z"), "alice"},
		"no fence there":                        {[]*corev1.Node{laptop(func(n *corev1.Node) { delete(n.Labels, v1alpha1.LabelFenced) })}, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"))}, guest("z"), ""},
		"the node is closed":                    {[]*corev1.Node{laptop(func(n *corev1.Node) { n.Spec.Unschedulable = true })}, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"))}, guest("z"), ""},
		"where the least goes": {[]*corev1.Node{laptop(), laptop(second)}, []*corev1.Pod{
			guest("a", at("alice"), asks("cpu", "2"), matters("3")), guest("b", at("b-second"), asks("cpu", "1"), matters("2")), guest("c", at("b-second"), asks("cpu", "1"), matters("1")),
		}, guest("z", asks("cpu", "2")), "b-second b c"},
		"where the fewest go": {[]*corev1.Node{laptop(), laptop(second)}, []*corev1.Pod{
			guest("a", at("alice"), asks("cpu", "1")), guest("b", at("alice"), asks("cpu", "1")), guest("c", at("b-second"), asks("cpu", "2")),
		}, guest("z", asks("cpu", "2")), "b-second c"},
		"one node has room":               {[]*corev1.Node{laptop(), laptop(second)}, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"))}, guest("z"), "b-second"},
		"its volume is on one of several": {[]*corev1.Node{laptop(), laptop(second)}, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2")), guest("b", at("b-second"), asks("cpu", "2"))}, guest("z", claims), ""},
		"its volume is here":              {nil, []*corev1.Pod{guest("a", at("alice"), asks("cpu", "2"))}, guest("z", claims), "alice a"},
	} {
		r := newProvider(t).host(events.NewFakeRecorder(10))
		if c.nodes == nil {
			c.nodes = []*corev1.Node{laptop()}
		}
		var nodes []corev1.Node
		for _, n := range c.nodes {
			nodes = append(nodes, *n)
		}
		if c.pod.Annotations == nil {
			matters("10")(c.pod)
		}
		stayFenced(&c.pod.Spec)
		pods := []corev1.Pod{*c.pod}
		for _, p := range c.pods {
			pods = append(pods, *p)
		}
		node, who := yielding(c.pod, r.lookAround(c.pod, nodes, pods))
		got := []string{node}
		for _, p := range who {
			got = append(got, p.Name)
		}
		if slices.Sort(got[1:]); strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Bob's laptop is full of his guests, and of those of another home; one that matters more to him waits.
func TestAGuestThatMattersMoreTakesTheRoomOfOnesOfItsHome(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	unschedulable := func(p *corev1.Pod) {
		p.Status.Phase, p.Spec.NodeName = corev1.PodPending, ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	offloaded := func(name string, priority int32, policy corev1.PreemptionPolicy) *v1alpha1.OffloadedPod {
		o := mighty(name)
		o.Finalizers, o.Status.PodUID = []string{v1alpha1.FinalizerOffloadedPod}, "p-"+o.UID
		s := &o.Spec.Template.Spec
		s.HostNetwork, s.Priority, s.Containers[0].Resources.Requests = false, ptr.To(priority), list("cpu", "900m")
		if policy != "" {
			s.PreemptionPolicy = &policy
		}
		return o
	}
	for name, c := range map[string]struct {
		policy corev1.PreemptionPolicy
		waits  func(*corev1.Pod)
		goes   string
	}{
		"it waits":                 {"", unschedulable, "low"},
		"it evicts nobody":         {corev1.PreemptNever, unschedulable, ""},
		"nobody looked for a node": {"", func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodPending, "" }, ""},
		"it runs":                  {"", func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "alice" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newProvider(t, peer.DeepCopy(), contract.DeepCopy())
			if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
				t.Fatal(err)
			}
			terms := d.contracts.TermsIn(bobsShop)
			objects := []client.Object{peer.DeepCopy(), contract.DeepCopy(), laptop()}
			for _, o := range []*v1alpha1.OffloadedPod{offloaded("high", 1000, c.policy), offloaded("low", 0, ""), offloaded("middle", 5, "")} {
				pod := podFor(o, terms)
				pod.UID, pod.Status.Phase, pod.Spec.NodeName = "p-"+o.UID, corev1.PodRunning, "alice"
				if o.Name == "high" {
					c.waits(pod)
				}
				objects = append(objects, o, pod)
			}
			stranger := guest("stranger", at("alice"), of("other"), matters("-9"), asks("cpu", "100m"))
			stranger.Namespace = "of-another"
			w := newProvider(t, append(objects, stranger)...)
			r, now := d.host(events.NewFakeRecorder(10)), time.Now()
			r.client, r.cached, r.live, r.started, r.now = w.client, w.client, w.client, true, func() time.Time { return now }
			k := key(bobsShop, "high")
			look := func() string {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k}); err != nil {
					t.Fatal(err)
				}
				var left corev1.PodList
				if err := w.client.List(t.Context(), &left); err != nil {
					t.Fatal(err)
				}
				gone := map[string]bool{"high": true, "low": true, "middle": true, "stranger": true}
				for i := range left.Items {
					delete(gone, left.Items[i].Name)
				}
				return strings.Join(slices.Sorted(maps.Keys(gone)), " ")
			}
			if got := look(); got != c.goes {
				t.Errorf("%q goes, want %q", got, c.goes)
			}
			var high corev1.Pod
			if err := w.client.Get(t.Context(), k, &high); err != nil {
				t.Fatal(err)
			}
			if c.goes != "" && high.Status.NominatedNodeName != "alice" {
				t.Errorf("the room is not kept: %q", high.Status.NominatedNodeName)
			}
			back := r.seekers(t.Context(), &corev1.Pod{})
			if seeks := len(back) == 1 && back[0].NamespacedName == k; seeks != unplaced(&high) || seeks != r.sought().Create(event.CreateEvent{Object: &high}) {
				t.Errorf("what becomes of others would bring it back: %v", back)
			}
			// Asked again it takes nobody else's: its room is being made.
			now = now.Add(time.Hour)
			if got := look(); got != c.goes {
				t.Errorf("then %q goes, want %q", got, c.goes)
			}
		})
	}
}

package guests

import (
	"fmt"
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

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

func made(minute int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(int64(60*minute), 0)) }
}

func TestWhoNoLongerFits(t *testing.T) {
	for name, c := range map[string]struct {
		limit corev1.ResourceList
		pods  []*corev1.Pod
		want  string
	}{
		"all fit":                        {list("cpu", "2", "pods", "2"), []*corev1.Pod{guest("a", asks("cpu", "1")), guest("b", asks("cpu", "1"))}, ""},
		"the newest goes":                {list("cpu", "1", "pods", "9"), []*corev1.Pod{guest("b", asks("cpu", "1"), made(1)), guest("a", asks("cpu", "1"), made(2))}, "a"},
		"who matters less goes":          {list("cpu", "1", "pods", "9"), []*corev1.Pod{guest("a", asks("cpu", "1"), made(1)), guest("b", asks("cpu", "1"), made(2), matters("5"))}, "a"},
		"a lesser one that fits stays":   {list("cpu", "2", "pods", "9"), []*corev1.Pod{guest("a", asks("cpu", "1500m"), matters("9")), guest("b", asks("cpu", "1"), matters("5")), guest("c", asks("cpu", "500m"))}, "b"},
		"places for pods":                {list("cpu", "9", "pods", "1"), []*corev1.Pod{guest("a", asks(), made(2)), guest("b", asks(), made(1))}, "a"},
		"of what is granted no more":     {list("cpu", "9", "pods", "9"), []*corev1.Pod{guest("a", asks("a.com/gpu", "1")), guest("b", asks("cpu", "1"))}, "a"},
		"who asks for none of it stays":  {list("cpu", "0", "pods", "9"), []*corev1.Pod{guest("a", asks("memory", "0")), guest("b", asks("cpu", "1"))}, "b"},
		"nobody fits":                    {corev1.ResourceList{}, []*corev1.Pod{guest("a", asks()), guest("b", asks())}, "a b"},
		"what is beyond all by itself":   {list("cpu", "1", "pods", "9"), []*corev1.Pod{guest("a", asks("cpu", "2"), matters("9")), guest("b", asks("cpu", "1"))}, "a"},
		"names tell those of one moment": {list("cpu", "1", "pods", "9"), []*corev1.Pod{guest("b", asks("cpu", "1")), guest("a", asks("cpu", "1"))}, "b"},
	} {
		leave := noLongerFit(c.pods, c.limit)
		var names []string
		for _, p := range leave {
			names = append(names, p.Name)
		}
		if slices.Sort(names); strings.Join(names, " ") != c.want {
			t.Errorf("%s: %v, want %q", name, names, c.want)
		}
		// Each finds the same, whoever has gone already.
		for _, gone := range leave {
			rest := slices.DeleteFunc(slices.Clone(c.pods), func(p *corev1.Pod) bool { return p == gone })
			if again := noLongerFit(rest, c.limit); len(again) != len(leave)-1 {
				t.Errorf("%s: without %s it is %d who leave", name, gone.Name, len(again))
			}
		}
	}
}

// A contract that may be lowered, and was, has those of its guests evicted that no longer fit, with their grace, and their home told; in others what runs stays.
func TestGuestsBeyondALoweredContractAreEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		document string
		signed   bool          // as a lowering
		from     time.Duration // when it is lowered, by a notice; 0: by none that stands
		want     string        // who is evicted
	}{
		"it was signed":             {`{"notice":60}`, true, 0, "b"},
		"its home asked for less":   {`{"notice":60}`, false, 0, ""},
		"its time has come":         {`{"notice":60}`, false, -time.Second, "b"},
		"its time has not come yet": {`{"notice":60}`, false, time.Hour, ""},
		"it has no notice":          {`{}`, true, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			peer, bob := peerOf("bob", 1)
			contract := contractWith("bob", "contractb")
			contract.Spec.Document, contract.Spec.Resources = []byte(c.document), list("cpu", "1", "memory", "1Gi", "pods", "9")
			if c.signed {
				contract.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAsSigned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNowSigned, ObservedGeneration: contract.Generation}}
			}
			if c.from != 0 {
				contract.Status.Lowering = &v1alpha1.Lowering{Resources: contract.Spec.Resources, From: metav1.NewTime(time.Now().Add(c.from))}
				contract.Spec.Resources = list("cpu", "2", "memory", "1Gi", "pods", "9")
			}
			objects := []client.Object{peer, contract}
			for i, name := range []string{"a", "b"} {
				o := mighty(name)
				o.Spec.Template.Spec.HostNetwork = false
				o.Finalizers, o.Status.PodUID = []string{v1alpha1.FinalizerOffloadedPod}, o.UID+"-pod"
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: bobsShop, Name: name, UID: o.UID + "-pod", CreationTimestamp: metav1.NewTime(time.Unix(int64(1000+i), 0)), Finalizers: []string{"test/ends"},
						Labels:          map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: bob.Compact},
						OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OffloadedPod", Name: name, UID: o.UID, Controller: ptr.To(true)}},
					},
					Spec: o.Spec.Template.Spec, Status: corev1.PodStatus{Phase: corev1.PodRunning},
				}
				objects = append(objects, o, p)
			}
			d := newProvider(t, objects...)
			if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
				t.Fatal(err)
			}
			told := events.NewFakeRecorder(20)
			r := d.host(told)
			for range 2 {
				for _, name := range []string{"a", "b"} {
					if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(bobsShop, name)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			var evicted []string
			for _, name := range []string{"a", "b"} {
				var pod corev1.Pod
				if err := d.client.Get(t.Context(), key(bobsShop, name), &pod); err != nil {
					t.Fatal(err)
				}
				if pod.DeletionTimestamp == nil {
					continue
				}
				evicted = append(evicted, name)
				if c := disruption(&pod); c == nil || c.Reason != grants.ReasonNoLonger || !strings.Contains(c.Message, "lowered to cpu 1, memory 1Gi, pods 9") {
					t.Errorf("%s is evicted for %+v", name, c)
				}
				// It ends, and home hears why.
				pod.Status.Phase = corev1.PodSucceeded
				if err := d.client.Status().Update(t.Context(), &pod); err != nil {
					t.Fatal(err)
				}
				r.noteEviction(&pod, false)
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(bobsShop, name)}); err != nil {
					t.Fatal(err)
				}
				var o v1alpha1.OffloadedPod
				if err := d.client.Get(t.Context(), key(bobsShop, name), &o); err != nil || o.Status.Phase != v1alpha1.OffloadedPodFailed || o.Status.Reason != grants.ReasonNoLonger ||
					o.Status.Final == nil || o.Status.Final.Phase != corev1.PodFailed || o.Status.Final.Reason != reasonEvicted {
					t.Errorf("%s: %+v, %v", name, o.Status, err)
				}
				if used := r.allocations.Used("contractb"); used.Cpu().String() != "1" {
					t.Errorf("%v are in use", used)
				}
			}
			if strings.Join(evicted, " ") != c.want {
				t.Errorf("%v are evicted, want %q", evicted, c.want)
			}
			if said := len(told.Events) > 0; said != (c.want != "") {
				t.Errorf("%d events", len(told.Events))
			}
		})
	}
}

// A grace period is what the home chose: it does not keep for a year what is granted no more.
func TestAGraceDoesNotKeepWhatIsGrantedNoMore(t *testing.T) {
	year, now := int64(365*24*3600), metav1.Now()
	for name, c := range map[string]struct {
		grace   int64 // in which it ends; 0: it runs
		deleted bool  // its home takes it back
		beyond  bool
		want    string
	}{
		"it ends, and all fit":          {year, false, false, ""},
		"it ends, and they do not":      {year, false, true, "remove 30s"},
		"it ends soon":                  {20, false, true, ""},
		"taken back, and all fit":       {0, true, false, "remove"},
		"taken back, and they do not":   {0, true, true, "remove 30s"},
		"taken back before, and do not": {year, true, true, "remove 30s"},
	} {
		p, o := guest("a", asks("cpu", "1")), mighty("a")
		p.Spec.TerminationGracePeriodSeconds, p.UID, p.OwnerReferences[0].UID = &year, "p-1", o.UID
		if c.grace != 0 {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &c.grace
		}
		if o.Status.PodUID = p.UID; c.deleted {
			o.DeletionTimestamp = &now
		}
		steps := (&rules{}).decide(&observed{now: now.Time, raw: NewOffloaded(), opod: o, pod: p, beyond: c.beyond, terms: &grants.Terms{}})
		got := ""
		for _, s := range steps {
			if got += string(s.do); s.grace != nil {
				got += fmt.Sprintf(" %ds", *s.grace)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if in := endsIn(p); *in != 30 {
			t.Errorf("evicted in %d s", *in)
		}
	}
}

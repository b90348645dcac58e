package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// look is one look at an OffloadedPod of bob's: what is there, and what is known of it.
type look struct {
	opod     *v1alpha1.OffloadedPod // nil: gone
	template any                    // instead of the OffloadedPod's, as the cache has it
	pod      *corev1.Pod            // nil: gone
	live     *corev1.Pod            // of which the cache does not know yet
	last     *corev1.Pod            // evicted, and gone
	record   record
	class    string
	unlinked bool // no addresses are agreed on, and guests get theirs by that
	moved    bool // no addresses are agreed on, and guests' own are moved to those
	ended    bool // the contract
	open     bool // no node here has a fence that is alive
	stranger bool // its namespace is no twin
}

// The decisions about guests, each with what is done for it, in order, and what the guest holds of its contract then.
func TestWhatBecomesOfAGuest(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	gone := func(l *look) { l.pod = nil }
	leaving := func(grace int64) func(*look) {
		return func(l *look) {
			l.pod.DeletionTimestamp, l.pod.DeletionGracePeriodSeconds, l.pod.Finalizers = &metav1.Time{Time: now}, &grace, []string{"test/ends"}
		}
	}
	phase := func(is corev1.PodPhase) func(*look) { return func(l *look) { l.pod.Status.Phase = is } }
	of := func(owner string) func(*look) {
		return func(l *look) {
			l.pod.OwnerReferences = []metav1.OwnerReference{{Kind: owner, UID: "other", Controller: ptr.To(true)}}
		}
	}
	deleted := func(grace string) func(*look) {
		return func(l *look) {
			l.opod.DeletionTimestamp = &metav1.Time{Time: now}
			if grace != "" {
				l.opod.Annotations = map[string]string{v1alpha1.AnnotationGrace: grace}
			}
		}
	}
	container := func(l *look) *corev1.Container { return &l.opod.Spec.Template.Spec.Containers[0] }
	noRoom := func(l *look) {
		l.opod.Status.Phase = v1alpha1.OffloadedPodAccepted
		l.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	synced := func(l *look) { l.record.uid, l.record.synced = "p-1", 1 }

	for name, c := range map[string]struct {
		look []func(*look)
		want string // what is decided
		does string
		used string        // cpu of the contract
		next time.Duration // until it is looked at again
		memo string        // what must be remembered, as far as it says
	}{
		"new":                      {[]func(*look){gone, func(l *look) { l.opod.Status = v1alpha1.OffloadedPodStatus{} }}, "admit, create", "create pod; status Accepted", "500m", 0, "remakes 0, synced"},
		"new, without a finalizer": {[]func(*look){gone, func(l *look) { l.opod.Finalizers, l.opod.Status = nil, v1alpha1.OffloadedPodStatus{} }}, "admit, hold, create", "patch opod finalizers [kith.dev/pod]; create pod; status Accepted", "500m", 0, ""},
		"new, with a debugger": {[]func(*look){gone, func(l *look) {
			l.opod.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"}}}
		}}, "admit, create", "create pod; event Remade; status Accepted", "500m", 0, "not synced"},
		"lost before":                {[]func(*look){gone}, "admit, create", "create pod; event Remade; status Accepted", "500m", 0, "remakes 1"},
		"lost a moment ago":          {[]func(*look){gone, func(l *look) { l.record = record{made: ago(time.Second), remakes: 3} }}, "again 3s", "", "0", 3 * time.Second, "remakes 3"},
		"lost at once":               {[]func(*look){gone, func(l *look) { l.record = record{made: ago(50 * time.Millisecond)} }}, "again 200ms", "", "0", 200 * time.Millisecond, ""},
		"lost after it held out":     {[]func(*look){gone, func(l *look) { l.record = record{made: ago(11 * time.Minute), remakes: 12} }}, "admit, create", "create pod; event Remade; status Accepted", "500m", 0, "remakes 1"},
		"no twin":                    {[]func(*look){gone, func(l *look) { l.stranger = true }}, "refuse NoContract", "status Refused NoContract; event Refused", "0", 0, ""},
		"before there are addresses": {[]func(*look){gone, func(l *look) { l.unlinked = true }}, "refuse NoNetwork", "status Refused NoNetwork; event Refused", "0", 0, ""},
		"after the contract":         {[]func(*look){gone, func(l *look) { l.ended = true }}, "refuse NoContract", "status Refused NoContract; event Refused", "0", 0, ""},
		"before there are others":    {[]func(*look){gone, func(l *look) { l.moved = true }}, "refuse NoNetwork", "status Refused NoNetwork; event Refused", "0", 0, ""},
		"with power over the host":   {[]func(*look){gone, func(l *look) { l.opod.Spec.Template.Spec.HostNetwork = true }}, "refuse PodSecurity", "status Refused PodSecurity; event Refused", "0", 0, ""},
		"refused before": {[]func(*look){gone, func(l *look) {
			l.opod.Spec.Template.Spec.HostNetwork = true
			l.opod.Status = v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused, Reason: grants.ReasonPodSecurity, Message: "spec.hostNetwork is not allowed at this provider's pod security level baseline"}
		}}, "refuse PodSecurity", "", "0", 0, ""},
		"an image of the provider's network": {[]func(*look){gone, func(l *look) { container(l).Image = "printer.local/a" }}, "refuse ImageNotAllowed", "status Refused ImageNotAllowed; event Refused", "0", 0, ""},
		"more than the contract":             {[]func(*look){gone, func(l *look) { container(l).Resources.Requests = list("cpu", "2") }}, "admit, create", "status Refused ContractExceeded; event Refused", "0", 0, ""},
		"malformed":                          {[]func(*look){gone, func(l *look) { l.template = `{"spec":7}` }}, "refuse Invalid", "status Refused Invalid; event Refused", "0", 0, ""},
		"malformed, while it runs":           {[]func(*look){func(l *look) { l.template = `{"spec":7}` }}, "refuse Invalid", "status Refused Invalid; event Refused", "500m", 0, ""},
		"somebody's pod":                     {[]func(*look){of("ReplicaSet")}, "refuse NameTaken", "status Refused NameTaken; event Refused", "500m", retryLater, ""},
		"somebody's pod, not in the cache":   {[]func(*look){gone, func(l *look) { l.live = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "p"}} }}, "admit, create", "create pod; status Refused NameTaken; event Refused", "0", retryLater, ""},

		"in step":                  {[]func(*look){synced}, "count", "", "500m", 0, ""},
		"in step, less counted":    {[]func(*look){synced, func(l *look) { l.pod.Spec.Containers[0].Resources.Requests = list("cpu", "200m") }}, "count", "", "200m", 0, ""},
		"after a restart":          {nil, "count, adjust", "", "500m", 0, "synced"},
		"not told yet":             {[]func(*look){func(l *look) { l.opod.Status = v1alpha1.OffloadedPodStatus{} }}, "count, adjust", "status Accepted", "500m", 0, "synced"},
		"another label":            {[]func(*look){func(l *look) { l.opod.Spec.Template.Labels = map[string]string{"app": "web"} }}, "count, adjust fields", "patch pod", "500m", 0, "synced"},
		"another image":            {[]func(*look){func(l *look) { container(l).Image = "j" }}, "count, adjust fields", "patch pod", "500m", 0, "synced"},
		"an image it may not have": {[]func(*look){func(l *look) { container(l).Image = "printer.local/a" }}, "count, adjust", "event NotChanged", "500m", 0, "synced"},
		"another container":        {[]func(*look){func(l *look) { container(l).Name = "d" }}, "count, adjust", "event NotChanged", "500m", 0, "synced"},
		"less cpu":                 {[]func(*look){func(l *look) { container(l).Resources.Requests = list("cpu", "100m") }}, "count, adjust sized", "patch pod/resize", "100m", 0, "synced"},
		"more cpu":                 {[]func(*look){func(l *look) { container(l).Resources.Requests = list("cpu", "900m") }}, "count, adjust sized", "patch pod/resize", "900m", 0, "synced"},
		"more cpu than there is":   {[]func(*look){func(l *look) { container(l).Resources.Requests = list("cpu", "3") }}, "count, adjust sized", "status Accepted PodResizePending=Infeasible", "500m", 0, "not synced"},
		"less than nothing":        {[]func(*look){func(l *look) { container(l).Resources.Requests = list("cpu", "-1") }}, "count, adjust sized", "status Accepted PodResizePending=Infeasible", "500m", 0, "not synced"},
		"a debugger": {[]func(*look){func(l *look) {
			l.opod.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"}}}
		}}, "count, adjust debug", "patch pod/ephemeralcontainers", "500m", 0, "synced"},
		"a debugger with power": {[]func(*look){func(l *look) {
			l.opod.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}}
		}}, "count, adjust", "status Accepted EphemeralContainersRefused=PodSecurity", "500m", 0, "not synced"},
		"a debugger that traces": {[]func(*look){func(l *look) {
			l.opod.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i",
				SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{ptrace}}}}}}
		}}, "count, adjust debug", "event Debugger; patch pod/ephemeralcontainers", "500m", 0, "synced"},
		"all at once": {[]func(*look){func(l *look) {
			container(l).Image, container(l).Resources.Requests = "j", list("cpu", "600m")
			l.opod.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"}}}
		}}, "count, adjust debug fields sized", "patch pod; patch pod/resize; patch pod/ephemeralcontainers", "600m", 0, "synced"},
		"the cache lags behind a change": {[]func(*look){func(l *look) { l.record.podVersion = "99999" }}, "again 20ms", "", "500m", 20 * time.Millisecond, ""},
		"the cache lags behind a write":  {[]func(*look){func(l *look) { l.record.written = "99999" }}, "again 20ms", "", "500m", 20 * time.Millisecond, ""},
		"outside the fence":              {[]func(*look){func(l *look) { l.class = "kith-guest" }}, "expel", "event Unfenced; delete pod 1s", "500m", 0, "remakes 1"},
		"outside the fence, and leaving": {[]func(*look){func(l *look) { l.class = "kith-guest" }, leaving(9)}, "", "", "500m", 0, ""},

		"being deleted by somebody":   {[]func(*look){leaving(30)}, "", "", "500m", 0, ""},
		"lost with its node":          {[]func(*look){phase(corev1.PodFailed)}, "remove", "delete pod", "500m", 0, ""},
		"ended":                       {[]func(*look){func(l *look) { l.pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, phase(corev1.PodSucceeded)}, "finish ended", "status Succeeded", "0", 0, ""},
		"failed":                      {[]func(*look){func(l *look) { l.pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, phase(corev1.PodFailed)}, "finish ended", "status Failed", "0", 0, ""},
		"ended, and told":             {[]func(*look){phase(corev1.PodFailed), func(l *look) { l.opod.Status.Phase = v1alpha1.OffloadedPodFailed }}, "release", "", "0", 0, ""},
		"ended, and made again":       {[]func(*look){func(l *look) { l.opod.Status.Phase = v1alpha1.OffloadedPodFailed }}, "release", "", "500m", 0, ""},
		"evicted by the kubelet":      {[]func(*look){phase(corev1.PodFailed), func(l *look) { l.pod.Status.Reason = "Evicted" }}, "finish ended", "status Failed Evicted", "0", 0, ""},
		"evicted, without a word":     {[]func(*look){phase(corev1.PodSucceeded)}, "finish ended", "status Failed Evicted", "0", 0, ""},
		"drained, and at its end":     {[]func(*look){phase(corev1.PodSucceeded), leaving(30), func(l *look) { disrupted(l.pod, "EvictionByEvictionAPI") }}, "finish evicted", "status Failed Evicted; event Evicted", "0", 0, ""},
		"drained, and gone":           {[]func(*look){func(l *look) { disrupted(l.pod, "EvictionByEvictionAPI"); l.last, l.pod = l.pod, nil }}, "finish evicted", "status Failed Evicted; event Evicted", "0", 0, ""},
		"of an earlier one":           {[]func(*look){of("OffloadedPod")}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"of an earlier one, hurried":  {[]func(*look){of("OffloadedPod"), func(l *look) { l.pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](9) }}, "remove 9s", "delete pod 9s", "500m", 0, ""},
		"of an earlier one, too slow": {[]func(*look){of("OffloadedPod"), leaving(600)}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"of an earlier one, leaving":  {[]func(*look){of("OffloadedPod"), leaving(20)}, "", "", "500m", 0, ""},

		"taken home":                     {[]func(*look){deleted("")}, "remove", "delete pod", "500m", 0, ""},
		"taken home within 7 s":          {[]func(*look){deleted("7")}, "remove 7s", "delete pod 7s", "500m", 0, ""},
		"taken home, now sooner":         {[]func(*look){deleted("7"), leaving(30)}, "remove 7s", "delete pod 7s", "500m", 0, ""},
		"taken home, on its way":         {[]func(*look){deleted("30"), leaving(7)}, "", "", "500m", 0, ""},
		"taken home after the contract":  {[]func(*look){deleted("600"), func(l *look) { l.ended = true }}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"slow, after the contract":       {[]func(*look){deleted(""), func(l *look) { l.ended, l.pod.Spec.TerminationGracePeriodSeconds = true, ptr.To[int64](600) }}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"taken home, and gone":           {[]func(*look){deleted(""), gone}, "unhold, forget", "patch opod finalizers []", "0", 0, "forgotten"},
		"taken home, just made":          {[]func(*look){deleted(""), func(l *look) { l.live, l.pod, l.record.made = l.pod, nil, ago(time.Second) }}, "remove", "delete pod", "500m", 0, ""},
		"taken home, of an earlier one":  {[]func(*look){deleted(""), of("OffloadedPod")}, "remove 30s, unhold", "delete pod 30s; patch opod finalizers []", "500m", 0, ""},
		"taken home, somebody's pod":     {[]func(*look){deleted(""), of("ReplicaSet")}, "unhold, forget", "patch opod finalizers []", "0", 0, "forgotten"},
		"taken home, ended":              {[]func(*look){deleted(""), phase(corev1.PodSucceeded)}, "remove", "delete pod", "500m", 0, ""},
		"no fence is alive":              {[]func(*look){gone, func(l *look) { l.opod.Status.PodUID, l.open = "", true }}, "refuse NotFenced", "status Refused NotFenced; event Refused", "0", 0, ""},
		"waits for a node":               {[]func(*look){phase(corev1.PodPending), synced}, "count", "", "500m", 0, ""},
		"no node has room":               {[]func(*look){phase(corev1.PodPending), synced, noRoom}, "count, room", "", "500m", 0, ""},
		"no node has room, and it waits": {[]func(*look){phase(corev1.PodPending), synced, noRoom, func(l *look) { l.opod.Spec.Template.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }}, "count", "", "500m", 0, ""},
		"no node had room a moment ago":  {[]func(*look){phase(corev1.PodPending), synced, noRoom, func(l *look) { l.record.sought = ago(3 * time.Second) }}, "count, again 7s", "", "500m", 7 * time.Second, ""},
		"not started, fenced":            {[]func(*look){phase(corev1.PodPending), synced, func(l *look) { l.opod.Status.Phase, l.pod.Spec.NodeName = v1alpha1.OffloadedPodAccepted, "alice" }}, "count", "", "500m", 0, "synced"},
		"not started, the fence is gone": {[]func(*look){phase(corev1.PodPending), synced, func(l *look) { l.open, l.pod.Spec.NodeName = true, "alice" }}, "expel", "event Unfenced; delete pod 1s", "500m", 0, "remakes 1"},
		"not started, on another node":   {[]func(*look){phase(corev1.PodPending), synced, func(l *look) { l.pod.Spec.NodeName = "beside" }}, "expel", "event Unfenced; delete pod 1s", "500m", 0, "remakes 1"},
		"runs, the fence is gone": {[]func(*look){synced, func(l *look) {
			l.opod.Status.Phase, l.open, l.pod.Spec.NodeName = v1alpha1.OffloadedPodAccepted, true, "alice"
		}}, "count", "", "500m", 0, "synced"},
		"nobody's":                     {[]func(*look){func(l *look) { l.opod = nil }}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"nobody's, on its way":         {[]func(*look){func(l *look) { l.opod = nil }, leaving(20)}, "", "", "500m", 0, ""},
		"nobody's, just made":          {[]func(*look){func(l *look) { l.opod, l.live, l.pod, l.record.made = nil, l.pod, nil, ago(time.Second) }}, "remove 30s", "delete pod 30s", "500m", 0, ""},
		"nobody's, and somebody's pod": {[]func(*look){of("ReplicaSet"), func(l *look) { l.opod = nil }}, "forget", "", "0", 0, "forgotten"},
		"gone":                         {[]func(*look){gone, func(l *look) { l.opod = nil }}, "forget", "", "0", 0, "forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newProvider(t, peer.DeepCopy(), contract.DeepCopy())
			if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
				t.Fatal(err)
			}
			l := look{opod: mighty("p")}
			l.opod.Generation, l.opod.Finalizers, l.opod.Status.PodUID = 1, []string{v1alpha1.FinalizerOffloadedPod}, "p-1"
			l.opod.Spec.Template.Spec.HostNetwork = false
			l.opod.Spec.Template.Spec.Containers[0].Resources.Requests = list("cpu", "500m")
			l.pod = podFor(l.opod, d.contracts.TermsIn(bobsShop))
			l.pod.UID, l.pod.Status.Phase = "p-1", corev1.PodRunning
			for _, change := range c.look {
				change(&l)
			}
			if l.stranger {
				d.contracts.NamespaceChanged(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bobsShop}}, false)
				if err := d.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bobsShop}}); err != nil {
					t.Fatal(err)
				}
			}
			if l.ended {
				d.contracts.End("contractb")
			}
			there := []client.Object{peer.DeepCopy(), contract.DeepCopy()}
			for _, o := range []client.Object{l.opod, l.pod} {
				if !equalNil(o) {
					there = append(there, o)
				}
			}
			if l.open {
				there = append(there, laptop(func(n *corev1.Node) { delete(n.Labels, v1alpha1.LabelFenced) }))
			}
			w := newProvider(t, there...)
			told := events.NewFakeRecorder(10)
			r, k := d.host(told), key(bobsShop, "p")
			r.client, r.cached, r.started, r.Class, r.Addressed, r.Translated, r.now = w.client, w.client, true, l.class, l.unlinked, l.moved, func() time.Time { return now }
			if l.live != nil {
				l.live.ResourceVersion = ""
				r.live = newProvider(t, l.live).client
			}
			r.records[k] = l.record
			if l.pod != nil && l.opod != nil && l.opod.Status.Phase == v1alpha1.OffloadedPodAccepted || l.live != nil && !l.record.made.IsZero() {
				r.allocations.Enter(k, "contractb", "", list("cpu", "500m", "pods", "1"))
			}
			if l.last != nil {
				r.noteEviction(l.last, true)
			}
			var did []string
			saidBefore := func() {
				for len(told.Events) > 0 {
					did = append(did, "event "+strings.Fields(<-told.Events)[1])
				}
			}
			r.client = recorded(r.client, l.live != nil, func(what string) { saidBefore(); did = append(did, what) })
			if l.template != nil {
				r.cached = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, k, o, opts...)
					if u, ok := o.(*unstructured.Unstructured); ok && err == nil {
						u.Object["spec"].(map[string]any)["template"] = l.template
					}
					return err
				}})
			}
			o, err := r.observe(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			if got := inWords(r.decide(o)); got != c.want {
				t.Errorf("decides %q, want %q", got, c.want)
			}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k})
			if err != nil {
				t.Fatal(err)
			}
			saidBefore()
			if got := strings.Join(did, "; "); got != c.does {
				t.Errorf("does\n  %s, want\n  %s", got, c.does)
			}
			if used := r.allocations.Used("contractb"); used.Cpu().String() != c.used {
				t.Errorf("holds %s of the contract, want %s", used.Cpu(), c.used)
			}
			if result.RequeueAfter != c.next {
				t.Errorf("looked at again after %s, want %s", result.RequeueAfter, c.next)
			}
			m, known := r.records[k]
			for _, says := range strings.Split(c.memo, ", ") {
				ok := map[string]bool{
					"": true, "synced": m.synced == 1, "not synced": m.synced == 0, "forgotten": !known,
					"remakes " + fmt.Sprint(m.remakes): true,
				}[says]
				if !ok {
					t.Errorf("remembers %+v, want: %s", m, says)
				}
			}
		})
	}
}

func inWords(steps []step) string {
	var all []string
	for _, s := range steps {
		words := []string{string(s.do)}
		if s.grace != nil {
			words = append(words, fmt.Sprintf("%ds", *s.grace))
		}
		if s.after > 0 {
			words = append(words, s.after.String())
		}
		if s.no != nil {
			words = append(words, s.no.Reason)
		}
		if s.do == finish {
			words = append(words, string(s.how))
		}
		for part, is := range map[string]*corev1.Pod{"fields": s.change.fields, "sized": s.change.sized, "debug": s.change.debug} {
			if is != nil {
				words = append(words, part)
			}
		}
		slices.Sort(words[1:])
		all = append(all, strings.Join(words, " "))
	}
	return strings.Join(all, ", ")
}

func equalNil(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.OffloadedPod:
		return o == nil
	case *corev1.Pod:
		return o == nil
	}
	return false
}

// recorded tells of each write about guests. With taken the name of the Pod is taken, which reads do not show.
func recorded(c client.Client, taken bool, did func(what string)) client.Client {
	kind := func(o client.Object) string {
		if _, ok := o.(*corev1.Pod); ok {
			return "pod"
		}
		return "opod"
	}
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			did("create " + kind(o))
			if taken {
				return apierrors.NewAlreadyExists(corev1.Resource("pods"), o.GetName())
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var all client.DeleteOptions
			all.ApplyOptions(opts)
			what := "delete " + kind(o)
			if all.GracePeriodSeconds != nil {
				what += fmt.Sprintf(" %ds", *all.GracePeriodSeconds)
			}
			if all.Preconditions == nil || *all.Preconditions.UID != o.GetUID() {
				what += " whichever"
			}
			did(what)
			return nil
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			what := "patch " + kind(o)
			if data, err := patch.Data(o); err == nil && kind(o) == "opod" {
				var of struct{ Metadata struct{ Finalizers []string } }
				_ = json.Unmarshal(data, &of)
				what += fmt.Sprintf(" finalizers %v", of.Metadata.Finalizers)
			}
			did(what)
			return c.Patch(ctx, o, patch, opts...)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, of string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			did("patch " + kind(o) + "/" + of)
			return nil
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			u := o.(*unstructured.Unstructured)
			status, _ := u.Object["status"].(map[string]any)
			what := []string{of}
			for _, field := range []string{"phase", "reason"} {
				if text, _ := status[field].(string); text != "" {
					what = append(what, text)
				}
			}
			conditions, _ := status["conditions"].([]any)
			for _, one := range conditions {
				one := one.(map[string]any)
				what = append(what, fmt.Sprintf("%v=%v", one["type"], one["reason"]))
			}
			did(strings.Join(slices.Clip(what), " "))
			return c.SubResource(of).Update(ctx, o, opts...)
		},
	})
}

// TestNoGuestIsLetInWhileTheRangeIsWrong: what is known of addresses is not so. One that runs with an address out of it, ends.
func TestNoGuestIsLetInWhileTheRangeIsWrong(t *testing.T) {
	terms := &grants.Terms{Network: grants.Network{Guests: "198.18.5.0/24"}, Contract: "c"}
	closed := "podRange is wrong"
	r := &rules{Translated: true, Pods: netip.MustParsePrefix("10.42.0.0/16"), Closed: func() string { return closed }}
	opod := mighty("p")
	o := &observed{raw: &unstructured.Unstructured{}, opod: opod, terms: terms}
	if got := r.decide(o); got[0].do != refuse || got[0].no.Reason != grants.ReasonNoNetwork || got[0].no.Message != closed {
		t.Errorf("%+v", got[0].no)
	}
	closed = ""
	if got := r.decide(o); got[0].do == refuse && got[0].no.Reason == grants.ReasonNoNetwork {
		t.Errorf("the range holds: %+v", got[0].no)
	}
	opod.Generation, opod.Status = 1, v1alpha1.OffloadedPodStatus{PodUID: "p-1", Phase: v1alpha1.OffloadedPodAccepted}
	for ip, want := range map[string]verb{"10.42.0.7": count, "10.99.0.7": expel, "": count, "fd00::7": count} {
		pod := podFor(opod, terms)
		pod.UID, pod.Status.Phase, pod.Status.PodIP = "p-1", corev1.PodRunning, ip
		o := &observed{raw: &unstructured.Unstructured{}, opod: opod, pod: pod, terms: terms, record: record{uid: "p-1", synced: 1}}
		if got := r.decide(o); got[0].do != want {
			t.Errorf("%q: %v, want %v", ip, got[0].do, want)
		}
	}
}

// TestAGuestThatIsAstrayIsMadeAgain: it got its address out of a range in whose place another was agreed on at that moment.
func TestAGuestThatIsAstrayIsMadeAgain(t *testing.T) {
	terms := &grants.Terms{Network: grants.Network{Guests: "198.18.5.0/24"}}
	for _, c := range []struct {
		ip        string
		terms     *grants.Terms
		addressed bool
		want      verb
	}{
		{"198.18.5.7", terms, true, count}, {"198.18.4.7", terms, true, expel}, {"", terms, true, count}, {"fd00::7", terms, true, expel},
		{"198.18.4.7", &grants.Terms{}, true, count}, {"198.18.4.7", nil, true, count}, {"10.42.0.7", terms, false, count},
	} {
		opod := mighty("p")
		opod.Generation, opod.Status = 1, v1alpha1.OffloadedPodStatus{PodUID: "p-1", Phase: v1alpha1.OffloadedPodAccepted}
		pod := podFor(opod, terms)
		pod.UID, pod.Status.Phase, pod.Status.PodIP = "p-1", corev1.PodRunning, c.ip
		o := &observed{raw: &unstructured.Unstructured{}, opod: opod, pod: pod, terms: c.terms, record: record{uid: "p-1", synced: 1}}
		if got := (&rules{Addressed: c.addressed}).decide(o); got[0].do != c.want {
			t.Errorf("%q under %+v: %v", c.ip, c.terms, got)
		}
	}
}

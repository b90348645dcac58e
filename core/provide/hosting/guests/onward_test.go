package guests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// TestWhoGoesOn: guests of who has something of others here may be on those nodes, and no others; not those with claims, nor those that came by another
// cluster.
func TestWhoGoesOn(t *testing.T) {
	to := []grants.OnwardTo{{ID: "D", Peer: "dave"}, {ID: "C", Peer: "carol"}}
	for what, c := range map[string]struct {
		to     []grants.OnwardTo
		change func(*v1alpha1.OffloadedPod)
		goes   bool
	}{
		"it may":             {to, func(*v1alpha1.OffloadedPod) {}, true},
		"nothing is offered": {nil, func(*v1alpha1.OffloadedPod) {}, false},
		"no longer":          {[]grants.OnwardTo{{ID: "C", Peer: "carol", Withdrawn: true}}, func(*v1alpha1.OffloadedPod) {}, false},
		"a claim": {to, func(o *v1alpha1.OffloadedPod) {
			o.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}, false},
		"it came by another": {to, func(o *v1alpha1.OffloadedPod) { o.Spec.Chain = []v1alpha1.ChainLink{{Cluster: "A"}} }, false},
		"it says which nodes": {to, func(o *v1alpha1.OffloadedPod) {
			o.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpExists}}}}}}}
			o.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, true},
	} {
		o := mighty("p")
		c.change(o)
		spec := podFor(o, &grants.Terms{Onward: c.to}).Spec
		if !c.goes {
			if spec.NodeSelector[v1alpha1.LabelFenced] != "true" || spec.Affinity != nil || len(spec.Tolerations) != 0 {
				t.Errorf("%s: %v, %v", what, spec.NodeSelector, spec.Affinity)
			}
			continue
		}
		terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if len(terms) != 2 || terms[0].MatchExpressions[0].Key != v1alpha1.LabelFenced || terms[1].MatchExpressions[0].Key != v1alpha1.LabelPeer ||
			len(terms[1].MatchExpressions[0].Values) != 2 || terms[1].MatchExpressions[0].Values[0] != "carol" || spec.NodeSelector[v1alpha1.LabelFenced] != "" || len(spec.Tolerations) != 2 {
			t.Errorf("%s: %+v, %+v", what, terms, spec.Tolerations)
		}
	}
}

// TestAGuestForAnotherCluster: its OffloadedPod says for whom it is, which its namespace, the contract and its volumes must fit.
func TestAGuestForAnotherCluster(t *testing.T) {
	alice, ann := identity.ID{1}, identity.ID{4}
	for what, c := range map[string]struct {
		chain  []v1alpha1.ChainLink
		origin string
		with   func(*v1alpha1.OffloadedPod, *grants.Terms, *rules)
		want   string
	}{
		"as its namespace says":        {[]v1alpha1.ChainLink{{Cluster: alice.String()}}, alice.Compact(), nil, ""},
		"the consumer's own":           {nil, "", nil, ""},
		"in a namespace of another":    {[]v1alpha1.ChainLink{{Cluster: ann.String()}}, alice.Compact(), nil, grants.ReasonNotReoffered},
		"in the consumer's own":        {[]v1alpha1.ChainLink{{Cluster: alice.String()}}, "", nil, grants.ReasonNotReoffered},
		"a word less than it should":   {nil, alice.Compact(), nil, grants.ReasonNotReoffered},
		"without the term":             {[]v1alpha1.ChainLink{{Cluster: alice.String()}}, alice.Compact(), func(_ *v1alpha1.OffloadedPod, t *grants.Terms, _ *rules) { t.Reoffer = false }, grants.ReasonNotReoffered},
		"where a plugin has addresses": {[]v1alpha1.ChainLink{{Cluster: alice.String()}}, alice.Compact(), func(_ *v1alpha1.OffloadedPod, _ *grants.Terms, r *rules) { r.Addressed, r.Translated = false, true }, grants.ReasonNotSupported},
		"with a claim": {[]v1alpha1.ChainLink{{Cluster: alice.String()}}, alice.Compact(), func(o *v1alpha1.OffloadedPod, _ *grants.Terms, _ *rules) {
			o.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}, grants.ReasonNotSupported},
	} {
		opod, terms, r := mighty("p"), &grants.Terms{Reoffer: true, Network: grants.Network{Guests: "198.18.5.0/24", Part: "198.18.5.64/27"}}, &rules{Addressed: true}
		opod.Spec.Chain = c.chain
		if c.with != nil {
			c.with(opod, terms, r)
		}
		got := ""
		if steps := r.decide(&observed{raw: &unstructured.Unstructured{}, opod: opod, terms: terms, twin: grants.Twin{Name: "t", Origin: c.origin}}); steps[0].no != nil && steps[0].no.Reason != grants.ReasonNotFenced {
			got = steps[0].no.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if pod := podFor(opod, terms); c.chain != nil && pod.Annotations[v1alpha1.AnnotationFor] != c.chain[0].Cluster+"/" {
			t.Errorf("%s: it is shown as for %q", what, pod.Annotations[v1alpha1.AnnotationFor])
		}
	}
}

// TestWhoIsLeftBehind: a guest that went on to who is gone is given up when it is evicted for that; one that is here, or merely deleted, ends first.
func TestWhoIsLeftBehind(t *testing.T) {
	for what, c := range map[string]struct {
		node, reason string
		want         podState
	}{
		"its provider is gone": {"kith-carol", "DeletionByTaintManager", evicted}, "its own node is": {"bob", "DeletionByTaintManager", leaving},
		"it is taken home": {"kith-carol", "EvictionByEvictionAPI", leaving}, "it is deleted": {"kith-carol", "", leaving},
	} {
		opod := mighty("p")
		pod := podFor(opod, &grants.Terms{})
		pod.Spec.NodeName, pod.DeletionTimestamp, pod.Status.Phase = c.node, &metav1.Time{}, corev1.PodRunning
		if c.reason != "" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: c.reason}}
		}
		if got := stateOf(opod, pod); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// TestAGuestWithAnAddressOfAnothers: of the range of its home some addresses lead to who went on, and at the provider the others lead back.
func TestAGuestWithAnAddressOfAnothers(t *testing.T) {
	broker := &grants.Terms{Network: grants.Network{Guests: "198.18.5.0/24", Part: "198.18.5.0/26"}, Onward: []grants.OnwardTo{{Peer: "carol", Guests: "198.18.5.64/27"}}}
	provider := &grants.Terms{Network: grants.Network{Guests: "198.18.5.0/24", Part: "198.18.5.64/27"}}
	none := &grants.Terms{}
	for _, c := range []struct {
		terms    *grants.Terms
		node, ip string
		origin   string
		want     bool
	}{
		{broker, "bob", "198.18.5.7", "", false}, {broker, "bob", "198.18.5.70", "", true}, {broker, "kith-carol", "198.18.5.70", "", false},
		{broker, "bob", "198.18.5.100", "", false}, // from before there were parts, and nobody else's
		{broker, "kith-carol", "198.18.6.70", "", true},
		{provider, "carol", "198.18.5.70", "a", false}, {provider, "carol", "198.18.5.7", "a", true}, {provider, "carol", "", "a", false},
		{none, "carol", "198.18.5.70", "a", true}, {none, "carol", "", "a", false}, // its home comes no more by way of its consumer
		{none, "carol", "198.18.5.70", "", false}, // of the consumer itself another range is being agreed on
	} {
		pod := podFor(mighty("p"), c.terms)
		pod.Spec.NodeName, pod.Status.PodIP = c.node, c.ip
		r := &rules{Addressed: true}
		if got := r.astray(&observed{pod: pod, terms: c.terms, twin: grants.Twin{Origin: c.origin}}); got != c.want {
			t.Errorf("%s at %s: %t", c.ip, c.node, got)
		}
	}
}

// TestByWhomAGuestIsRun: it says one of the parts of its contract, and is kept to that one; nobody else's name is taken, nor more than the part.
func TestByWhomAGuestIsRun(t *testing.T) {
	bob, carol, dave := identity.ID{2}, identity.ID{3}, identity.ID{4}
	parts := []grants.Part{{ID: bob.String()}, {ID: carol.String(), Peer: "carol"}}
	to := []grants.OnwardTo{{ID: carol.String(), Peer: "carol"}, {ID: dave.String(), Peer: "dave"}}
	claim := []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	for what, c := range map[string]struct {
		via     string
		parts   []grants.Part
		volumes []corev1.Volume
		chain   []v1alpha1.ChainLink
		want    string // the reason of a refusal
		peer    string // to whose nodes it is kept; "" for those here
	}{
		"the provider itself":           {via: bob.String(), parts: parts},
		"itself, not divided any more":  {via: bob.String()},
		"one behind it":                 {via: carol.String(), parts: parts, peer: "carol"},
		"in another form of the ID":     {via: carol.Compact(), parts: parts, peer: "carol"},
		"one that was not told of":      {via: dave.String(), parts: parts, want: grants.ReasonNotBehind},
		"one that is not any more":      {via: carol.String(), want: grants.ReasonNotBehind},
		"nobody's ID":                   {via: "carol", parts: parts, want: grants.ReasonNotBehind},
		"with a claim, here":            {via: bob.String(), parts: parts, volumes: claim},
		"with a claim, there":           {via: carol.String(), parts: parts, volumes: claim, want: grants.ReasonNotBehind},
		"that came by another, further": {via: carol.String(), parts: parts, chain: []v1alpha1.ChainLink{{Cluster: identity.ID{9}.String()}}, want: grants.ReasonNotReoffered},
	} {
		opod, terms := mighty("p"), &grants.Terms{Provider: bob.String(), Onward: to, Parts: c.parts}
		opod.Spec.Via, opod.Spec.Template.Spec.Volumes, opod.Spec.Chain = c.via, c.volumes, c.chain
		got := ""
		if no := notVia(opod, terms); no != nil {
			got = no.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		pod := podFor(opod, terms)
		switch here := pod.Spec.NodeSelector[v1alpha1.LabelFenced] == "true"; {
		case here != (c.peer == ""):
			t.Errorf("%s: kept here: %t", what, here)
		case !here:
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if len(terms) != 1 || len(terms[0].MatchExpressions) != 2 || terms[0].MatchExpressions[0].Key != v1alpha1.LabelPeer || len(terms[0].MatchExpressions[0].Values) != 1 || terms[0].MatchExpressions[0].Values[0] != c.peer {
				t.Errorf("%s: kept to %+v", what, terms)
			}
			for broker, takes := range map[string]bool{"": true, c.peer: false} {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelPeer: c.peer}}}
				if broker != "" {
					node.Labels[v1alpha1.LabelBroker] = broker
				}
				o := &observed{terms: &grants.Terms{Provider: bob.String(), Onward: to, Parts: c.parts}}
				if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || match != takes || o.wentOn(node) != takes {
					t.Errorf("%s: a node with the broker %q: %t, %t, %v", what, broker, match, o.wentOn(node), err)
				}
			}
		}
	}
}

package offloading

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

func offloaded(spec v1alpha1.NamespaceOffloadingSpec) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName}, Spec: spec}
}

func TestWhatANamespaceMayDoAtAPeer(t *testing.T) {
	going := offloaded(v1alpha1.NamespaceOffloadingSpec{})
	going.DeletionTimestamp = new(metav1.Now())
	for name, c := range map[string]struct {
		nso  *v1alpha1.NamespaceOffloading
		want Permit
		why  string
	}{
		"never offloaded":         {nil, Withdrawn, "namespace shop is not offloaded"},
		"to all":                  {offloaded(v1alpha1.NamespaceOffloadingSpec{}), Granted, ""},
		"to it":                   {offloaded(v1alpha1.NamespaceOffloadingSpec{Peers: []string{"carol", "bob"}}), Granted, ""},
		"to others":               {offloaded(v1alpha1.NamespaceOffloadingSpec{Peers: []string{"carol", "dave"}}), Refused, "to carol, dave, not to bob"},
		"for services only":       {offloaded(v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal}), Reflected, "strategy Local"},
		"for services, of others": {offloaded(v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal, Peers: []string{"carol"}}), Refused, "to carol, not to bob"},
		"ending":                  {going, Ending, "brought home"},
	} {
		permit, why := PermitOf("shop", c.nso, "bob")
		if permit != c.want || !strings.Contains(why, c.why) || (why == "") != (permit == Granted) {
			t.Errorf("%s: %v %q, want %v …%s…", name, permit, why, c.want, c.why)
		}
	}
}

func TestADebuggerOfANodeIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		node string
		is   bool
	}{
		"node-debugger-kith-bob-mnfrn":   {"kith-bob", true},
		"node-debugger-kith-bob-2-mnfrn": {"kith-bob-2", true},
		"node-debugger-kith-bobby-mnfrn": {"kith-bob", false},
		"node-debugger-mnfrn":            {"", false},
		"debugger":                       {"kith-bob", false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: c.node}}
		if why, is := NodeDebugger(pod); is != c.is || is && !strings.HasPrefix(why, "node "+c.node+" is a peer") {
			t.Errorf("%s on %q: %t, %s", name, c.node, is, why)
		}
	}
}

// What a no does to a pod may be for good, so the cache is not enough for one; nor is it a no that the API server does not know the kind yet.
func TestAPermitIsRefusedByTheAPIServersOwnWord(t *testing.T) {
	failing := func(err error) client.Reader {
		return interceptor.NewClient(world(t), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		}})
	}
	kindMissing := apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{Group: "kith.dev", Resource: "namespaceoffloadings"}, "offloading", "404 page not found", 0, true)
	ending := offloaded(v1alpha1.NamespaceOffloadingSpec{})
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{v1alpha1.FinalizerOffloading}
	yes, no := world(t, offloaded(v1alpha1.NamespaceOffloadingSpec{})), world(t)
	for name, c := range map[string]struct {
		cached, fresh client.Reader
		want          Permit
		fails         bool
	}{
		"both say yes":                      {yes, yes, Granted, false},
		"yes, and nobody asks further":      {yes, failing(errors.New("must not be asked")), Granted, false},
		"its end has begun, which is known": {world(t, ending), failing(errors.New("must not be asked")), Ending, false},
		"the cache is behind":               {no, yes, Granted, false},
		"both say no":                       {no, no, Withdrawn, false},
		"no, and the API server is away":    {no, failing(errors.New("away")), Withdrawn, true},
		"the API server has no such kind":   {no, failing(kindMissing), Withdrawn, true},
		"the cache cannot be read, a fail":  {failing(errors.New("not started")), yes, Withdrawn, true},
	} {
		permit, _, err := NewPermits(c.cached, c.fresh).Of(t.Context(), "shop", "bob")
		if permit != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", name, permit, err)
		}
	}
}

func TestPodsThatWaitGetWhatTheyLackForBothTaints(t *testing.T) {
	own := func(effect corev1.TaintEffect) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "other"}, {Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: "bob", Effect: effect}}}}
	}
	claim := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}}}
	everywhere := corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}
	evicts := corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: "bob", Effect: corev1.TaintEffectNoExecute}
	toBob := v1alpha1.NamespaceOffloadingSpec{Peers: []string{"bob"}}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		spec  v1alpha1.NamespaceOffloadingSpec
		stuck bool
		want  []corev1.Toleration
	}{
		"has none":                              {&corev1.Pod{}, v1alpha1.NamespaceOffloadingSpec{}, true, []corev1.Toleration{everywhere}},
		"has none, named peers":                 {&corev1.Pod{}, toBob, true, []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: "bob"}}},
		"of a version with one taint":           {own(corev1.TaintEffectNoSchedule), v1alpha1.NamespaceOffloadingSpec{}, true, []corev1.Toleration{evicts}},
		"of its own, for all effects":           {own(""), v1alpha1.NamespaceOffloadingSpec{}, false, nil},
		"of its own, for the other":             {own(corev1.TaintEffectNoExecute), v1alpha1.NamespaceOffloadingSpec{}, false, nil},
		"strategy Local":                        {own(corev1.TaintEffectNoSchedule), v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal}, true, nil},
		"its volume is at home":                 {claim, v1alpha1.NamespaceOffloadingSpec{}, true, nil},
		"its volume may be anywhere":            {claim, v1alpha1.NamespaceOffloadingSpec{Volumes: v1alpha1.VolumesAnywhere}, true, []corev1.Toleration{everywhere}},
		"its volume is at home, but it must go": {claim, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}, true, []corev1.Toleration{everywhere}},
	} {
		if stuck := stuckAtHome(c.pod); stuck != c.stuck {
			t.Errorf("%s: stuck at home: %v", name, stuck)
		} else if got := missing(c.pod, c.spec, wanted(c.spec)); stuck && !slices.Equal(got, c.want) {
			t.Errorf("%s: gets %v, want %v", name, got, c.want)
		}
	}
}

func TestDaemonSetsThatTolerateVirtualNodesRequireOthers(t *testing.T) {
	set := func(name string, tolerations []corev1.Toleration, affinity *corev1.Affinity) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "private", Name: name}, Spec: appsv1.DaemonSetSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Tolerations: tolerations, Affinity: affinity}},
		}}
	}
	all := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	linux := corev1.NodeSelectorRequirement{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}
	home := corev1.NodeSelectorRequirement{Key: LabelVirtual, Operator: corev1.NodeSelectorOpDoesNotExist}
	laptops := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelTethered, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}
	c := world(t,
		set("company", all, required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{home}}, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{laptops}})),
		set("plain", nil, nil), set("control-plane", []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane"}}, nil),
		set("agent", all, nil), set("asks", []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}, &corev1.Affinity{}),
		set("terms", all, required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{linux}}, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{home}})),
	)
	var versions []string
	for range 2 {
		if err := KeepDaemonSetsHome(t.Context(), c, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]corev1.NodeSelectorTerm{
			"plain": nil, "control-plane": nil,
			"company": {{MatchExpressions: []corev1.NodeSelectorRequirement{home}}, {MatchExpressions: []corev1.NodeSelectorRequirement{laptops}}},
			"agent":   {{MatchExpressions: []corev1.NodeSelectorRequirement{home}}}, "asks": {{MatchExpressions: []corev1.NodeSelectorRequirement{home}}},
			"terms": {{MatchExpressions: []corev1.NodeSelectorRequirement{linux, home}}, {MatchExpressions: []corev1.NodeSelectorRequirement{home}}},
		} {
			var ds appsv1.DaemonSet
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "private", Name: name}, &ds); err != nil {
				t.Fatal(err)
			}
			var got []corev1.NodeSelectorTerm
			if a := ds.Spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
				got = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			}
			if !slices.EqualFunc(got, want, func(a, b corev1.NodeSelectorTerm) bool {
				return slices.EqualFunc(a.MatchExpressions, b.MatchExpressions, func(a, b corev1.NodeSelectorRequirement) bool { return a.Key == b.Key && a.Operator == b.Operator })
			}) {
				t.Errorf("%s requires %v, want %v", name, got, want)
			}
			if name == "terms" {
				versions = append(versions, ds.ResourceVersion)
			}
		}
	}
	if versions[0] != versions[1] {
		t.Error("what is as it should be was written again")
	}
}

package component_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/openapi/openapitest"
)

// evaluator does with pods what this API server does with them by a MutatingAdmissionPolicy. That ignores what fails; here it fails the test.
func evaluator(t *testing.T, path string) func(*testing.T, *corev1.Pod, *corev1.Namespace) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionv1.MutatingAdmissionPolicy
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declares := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		if r := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declares, environment.NewExpressions); r.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, r.Error)
		}
	}
	declares.HasPatchTypes = true
	var patchers []patch.Patcher
	for _, m := range policy.Spec.Mutations {
		patchers = append(patchers, patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declares, environment.NewExpressions)))
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	types := patch.NewTypeConverterManager(nil, openapitest.NewEmbeddedFileClient())
	go types.Run(t.Context())
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return types.GetTypeConverter(kind) != nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, pod *corev1.Pod, namespace *corev1.Namespace) *corev1.Pod {
		t.Helper()
		pod.APIVersion, pod.Kind, pod.Namespace = "v1", "Pod", namespace.Name
		var now runtime.Object = pod
		for i, p := range patchers {
			now, err = p.Patch(compiler.CreateContext(t.Context()), patch.Request{
				MatchedResource: resource, Namespace: namespace, TypeConverter: types.GetTypeConverter(kind), ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme),
				VersionedAttributes: &admission.VersionedAttributes{
					Attributes:    admission.NewAttributesRecord(now, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create, &metav1.CreateOptions{}, false, nil),
					VersionedKind: kind, VersionedObject: now,
				},
			}, celconfig.RuntimeCELCostBudget)
			if err != nil {
				t.Fatalf("mutation %d: %v", i, err)
			}
		}
		return now.(*corev1.Pod)
	}
}

// made is a pod of a controller, and bare one without.
func made(by string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: by, UID: "u", Controller: new(true)}}}, Spec: spec}
}

func bare(spec corev1.PodSpec) *corev1.Pod { return &corev1.Pod{Spec: spec} }

func tolerating(tolerations ...corev1.Toleration) corev1.PodSpec {
	return corev1.PodSpec{Tolerations: tolerations}
}

// required are the nodes that a pod requires, each alternative in a word.
func required(pod *corev1.Pod) (words []string) {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			var all []string
			for _, e := range term.MatchExpressions {
				all = append(all, strings.TrimSuffix(fmt.Sprintf("%s:%s:%s", strings.TrimPrefix(e.Key, "kith.dev/"), e.Operator, strings.Join(e.Values, ",")), ":"))
			}
			words = append(words, strings.Join(all, "+"))
		}
	}
	return words
}

// tolerated is what a pod tolerates of peers, "*" for all.
func tolerated(pod *corev1.Pod) (peers []string) {
	for _, t := range pod.Spec.Tolerations {
		if t.Key == "kith.dev/peer" {
			peers = append(peers, map[bool]string{true: "*", false: t.Value}[t.Operator == corev1.TolerationOpExists])
		}
	}
	return peers
}

// What pods of an offloaded namespace get from the policy of core/consume/offloading.
func TestWherePodsOfAnOffloadedNamespaceMayGo(t *testing.T) {
	with := evaluator(t, "../../core/consume/offloading/testdata/policy.json")
	wide := tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})
	const home = "virtual:DoesNotExist"
	spread := corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule}}}
	linux := *wide.DeepCopy()
	linux.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}},
	}}}}
	own := func(peer string) corev1.PodSpec {
		return tolerating(corev1.Toleration{Key: "kith.dev/peer", Operator: corev1.TolerationOpEqual, Value: peer})
	}
	anyPeer := tolerating(corev1.Toleration{Key: "kith.dev/peer", Operator: corev1.TolerationOpExists})
	claim := *wide.DeepCopy()
	claim.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "v"}}}}
	there := *wide.DeepCopy()
	there.NodeName = "kith-dave"
	// A budget closes all peers, or leaves some open.
	none := map[string]string{"kith.dev/budget-open": "", "kith.dev/budget-closed": "bob/Spent"}
	some := map[string]string{"kith.dev/budget-open": "dave,erin", "kith.dev/budget-closed": "bob/Spent,carol/OtherCurrency"}
	someNamed := map[string]string{"kith.dev/peers": "bob,dave", "kith.dev/budget-open": "dave", "kith.dev/budget-closed": "bob/Spent"}
	opened, open := []string{"dave", "erin"}, "peer:In:dave,erin"
	narrowed, fencedNone, fenced := map[string]string{"kith.dev/budget-narrowed": "true"}, map[string]string{"kith.dev/budget-fenced": ""}, map[string]string{"kith.dev/budget-fenced": "dave,erin"}
	both := map[string]string{"kith.dev/budget-narrowed": "true", "kith.dev/budget-fenced": "dave,erin"}
	toPeers := map[string]string{"kith.dev/peers": "bob,dave"}
	for name, c := range map[string]struct {
		pod                 *corev1.Pod
		says                map[string]string // on the namespace
		tolerates, requires []string
		notes               map[string]string // on the pod
	}{
		"nothing special":                       {bare(corev1.PodSpec{}), nil, []string{"*"}, nil, nil},
		"to named peers":                        {bare(corev1.PodSpec{}), toPeers, []string{"bob", "dave"}, nil, nil},
		"tolerates everything":                  {bare(wide), nil, []string{"*"}, nil, nil},
		"tolerates everything, to named peers":  {bare(wide), toPeers, []string{"bob", "dave"}, []string{home, "peer:In:bob,dave"}, nil},
		"beside what it requires":               {bare(linux), toPeers, []string{"bob", "dave"}, []string{"os:In:linux+" + home, "os:In:linux+peer:In:bob,dave"}, nil},
		"spread, to named peers":                {bare(spread), toPeers, []string{"bob", "dave"}, []string{home, "peer:In:bob,dave"}, nil},
		"tolerates everything, strategy Local":  {bare(wide), map[string]string{"kith.dev/strategy": "Local"}, nil, []string{home}, nil},
		"of a controller that bob refuses pods": {made("ReplicaSet", corev1.PodSpec{}), map[string]string{"kith.dev/refused": "u/bob/1,v/dave/1"}, []string{"*"}, []string{"peer:NotIn:bob"}, nil},

		"a budget closes all":                            {made("ReplicaSet", corev1.PodSpec{}), none, nil, nil, nil},
		"a budget closes some":                           {made("ReplicaSet", corev1.PodSpec{}), some, opened, nil, narrowed},
		"tolerates everything, all are closed":           {made("ReplicaSet", wide), none, nil, []string{home}, fencedNone},
		"tolerates everything, some are closed":          {made("StatefulSet", wide), some, opened, []string{home, open}, both},
		"tolerates everything, one of two is closed":     {made("ReplicaSet", wide), someNamed, []string{"dave"}, []string{home, "peer:In:dave"}, map[string]string{"kith.dev/budget-narrowed": "true", "kith.dev/budget-fenced": "dave"}},
		"beside what it requires, some are closed":       {made("ReplicationController", linux), some, opened, []string{"os:In:linux+" + home, "os:In:linux+" + open}, both},
		"tolerates all peers, all are closed":            {made("ReplicaSet", anyPeer), none, []string{"*"}, []string{home}, fencedNone},
		"tolerates all peers, some are closed":           {made("ReplicaSet", anyPeer), some, []string{"*"}, []string{home, open}, fenced},
		"tolerates a closed peer":                        {made("ReplicaSet", own("carol")), some, []string{"carol"}, []string{home, open}, fenced},
		"tolerates an open peer":                         {made("ReplicaSet", own("dave")), some, []string{"dave"}, nil, nil},
		"tolerates one whose name begins a closed one's": {made("ReplicaSet", own("bo")), some, []string{"bo"}, nil, nil},
		"spread, some are closed":                        {made("ReplicaSet", spread), some, opened, []string{home, open}, both},
		"its volume is at home, some are closed":         {made("ReplicaSet", claim), some, nil, []string{home}, nil},
		"bound to an open one already":                   {made("ReplicaSet", there), some, opened, nil, narrowed},
		// Nobody would make these again when the budget is renewed, and what a pod requires stays.
		"bare, tolerates everything, some are closed":   {bare(wide), some, opened, nil, narrowed},
		"bare, tolerates all peers, some are closed":    {bare(anyPeer), some, []string{"*"}, nil, nil},
		"of a Job, tolerates all peers, all are closed": {made("Job", anyPeer), none, []string{"*"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"kith.dev/strategy": "LocalAndRemote"}}}
			maps.Copy(ns.Annotations, c.says)
			got := with(t, c.pod.DeepCopy(), ns)
			if !slices.Equal(tolerated(got), c.tolerates) || !slices.Equal(required(got), c.requires) || !maps.Equal(got.Annotations, c.notes) {
				t.Errorf("tolerates %q, want %q\nrequires %q, want %q\nnotes %q, want %q", tolerated(got), c.tolerates, required(got), c.requires, got.Annotations, c.notes)
			}
		})
	}
}

// Where there is no network go those that say so, by their namespace or by their node selector, and no others.
func TestWhoMayGoWhereThereIsNoNetwork(t *testing.T) {
	with := evaluator(t, "../../core/consume/offloading/testdata/policy.json")
	needsNone := map[string]string{"kith.dev/offload-network": "none"}
	own := corev1.Toleration{Key: "example.com/own", Operator: corev1.TolerationOpExists}
	selects := func(value string) corev1.PodSpec {
		return corev1.PodSpec{NodeSelector: map[string]string{"kith.dev/network": value}}
	}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		says map[string]string
		want bool
	}{
		"says nothing":                 {},
		"of such a namespace":          {says: needsNone, want: true},
		"with a toleration of its own": {spec: tolerating(own), says: needsNone, want: true},
		"selects such a node":          {spec: selects("none"), want: true},
		"selects another":              {spec: selects("some")},
		"stays at home":                {spec: selects("none"), says: map[string]string{"kith.dev/strategy": "Local"}},
		"not known yet":                {says: map[string]string{"kith.dev/strategy": "", "kith.dev/offload-network": "none"}},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch", Annotations: map[string]string{"kith.dev/strategy": "LocalAndRemote"}}}
		maps.Copy(ns.Annotations, c.says)
		got := with(t, bare(*c.spec.DeepCopy()), ns)
		taint := corev1.Toleration{Key: "kith.dev/network", Operator: corev1.TolerationOpEqual, Value: "none", Effect: corev1.TaintEffectNoSchedule}
		if slices.Contains(got.Spec.Tolerations, taint) != c.want || len(c.spec.Tolerations) > 0 && !slices.Contains(got.Spec.Tolerations, own) {
			t.Errorf("%s: tolerates %+v", name, got.Spec.Tolerations)
		}
	}
}

// How long pods wait at a node that is not ready: what counts is the first toleration of that taint.
func TestPodsOfANamespaceThatWaitsOutlastASleep(t *testing.T) {
	with := evaluator(t, "../../core/consume/offloading/testdata/policy.json")
	notReady := func(seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}
	}
	unreachable := notReady(new(int64(300)))
	unreachable.Key = corev1.TaintNodeUnreachable
	usual := tolerating(notReady(new(int64(300))), unreachable) // as the API server gives them before
	for name, c := range map[string]struct {
		spec  corev1.PodSpec
		says  map[string]string
		waits *int64 // of the first that counts; nil: for good
		has   bool
	}{
		"waits":                       {usual, map[string]string{"kith.dev/when-asleep": "Wait"}, nil, true},
		"says nothing":                {corev1.PodSpec{}, map[string]string{"kith.dev/when-asleep": "Wait"}, nil, true},
		"has a word of its own":       {tolerating(notReady(new(int64(60)))), map[string]string{"kith.dev/when-asleep": "Wait"}, new(int64(60)), true},
		"tolerates everything anyway": {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), map[string]string{"kith.dev/when-asleep": "Wait"}, nil, true},
		"moves":                       {usual, map[string]string{"kith.dev/when-asleep": "Move"}, new(int64(300)), true},
		"as usual":                    {usual, nil, new(int64(300)), true},
		"stays at home":               {usual, map[string]string{"kith.dev/when-asleep": "Wait", "kith.dev/strategy": "Local"}, new(int64(300)), true},
		"as usual, says nothing":      {corev1.PodSpec{}, nil, nil, false},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"kith.dev/strategy": "LocalAndRemote"}}}
		maps.Copy(ns.Annotations, c.says)
		got := with(t, bare(c.spec), ns)
		i := slices.IndexFunc(got.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == corev1.TaintNodeNotReady) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute)
		})
		if (i >= 0) != c.has {
			t.Errorf("%s: %+v", name, got.Spec.Tolerations)
		} else if c.has && (got.Spec.Tolerations[i].TolerationSeconds == nil) != (c.waits == nil) || c.waits != nil && *got.Spec.Tolerations[i].TolerationSeconds != *c.waits {
			t.Errorf("%s: %+v", name, got.Spec.Tolerations)
		}
	}
}

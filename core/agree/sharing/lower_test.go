package sharing

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
)

func TestWhatAPolicyLeavesOfAContract(t *testing.T) {
	has := list("cpu", "4", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "2")
	nodes := list("cpu", "8", "memory", "16Gi", "pods", "110", "storage", "100Gi", "a.com/gpu", "2")
	for name, c := range map[string]struct {
		change func(*v1alpha1.SharingPolicySpec)
		nodes  corev1.ResourceList
		others []corev1.ResourceList
		place  int
		used   corev1.ResourceList
		want   corev1.ResourceList // nil: all of it
	}{
		"as much":                 {},
		"less of one":             {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "1500m" }, want: list("cpu", "1500m", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "2")},
		"a smaller share":         {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "25%" }, want: list("cpu", "2", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "2")},
		"a share of what is free": {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "50% of free" }},
		"no more of one":          {change: func(s *v1alpha1.SharingPolicySpec) { delete(s.Amounts, "a.com/gpu") }, want: list("cpu", "4", "memory", "8Gi", "pods", "20", "storage", "10Gi")},
		"less for each": {change: func(s *v1alpha1.SharingPolicySpec) {
			s.MaxPerPeer = map[string]v1alpha1.Amount{"pods": "5", "cpu": "100%"}
		}, want: list("cpu", "4", "memory", "8Gi", "pods", "5", "storage", "10Gi", "a.com/gpu", "2")},
		"nothing, by one":            {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "0" }, want: list()},
		"nothing at all":             {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts = nil }, want: list()},
		"a share too small":          {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["pods"] = "0%" }, want: list()},
		"paused":                     {change: func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }},
		"out of hours":               {change: func(s *v1alpha1.SharingPolicySpec) { s.Hours = []v1alpha1.SharingHours{{From: "00:00", To: "00:01"}} }},
		"a reserve":                  {change: func(s *v1alpha1.SharingPolicySpec) { s.Reserve = map[string]v1alpha1.Amount{"cpu": "8"} }},
		"volumes that are not there": {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["storage"] = "1Gi" }, want: list("cpu", "4", "memory", "8Gi", "pods", "20", "storage", "1Gi", "a.com/gpu", "2")},
		"volumes that are":           {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["storage"] = "1Gi" }, used: list("storage", "3Gi", "cpu", "4"), want: list("cpu", "4", "memory", "8Gi", "pods", "20", "storage", "3Gi", "a.com/gpu", "2")},
		"volumes, and no word":       {change: func(s *v1alpha1.SharingPolicySpec) { delete(s.Amounts, "storage") }, used: list("storage", "10Gi")},
		"malformed":                  {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "a lot" }},
		"a node that starts":         {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"], s.Amounts["a.com/gpu"] = "50%", "50%" }, nodes: corev1.ResourceList{}},
		"devices not there yet":      {nodes: list("cpu", "8", "memory", "16Gi", "pods", "110", "a.com/gpu", "0")},
		"fewer pods than contracts":  {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["pods"] = "2" }, others: []corev1.ResourceList{list("pods", "9"), list("pods", "9")}, place: 2, want: list()},
		"others have the rest":       {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "5" }, others: []corev1.ResourceList{list("cpu", "1")}},
		"who has most gives most":    {change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "4" }, others: []corev1.ResourceList{list("cpu", "1"), list("cpu", "2")}, want: list("cpu", "1500m", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "2")},
		"the older has what is over": {others: []corev1.ResourceList{list("a.com/gpu", "2"), list("a.com/gpu", "2")}, change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["a.com/gpu"] = "4" }},
		"and the younger has not":    {others: []corev1.ResourceList{list("a.com/gpu", "2"), list("a.com/gpu", "2")}, place: 2, change: func(s *v1alpha1.SharingPolicySpec) { s.Amounts["a.com/gpu"] = "4" }, want: list("cpu", "4", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "1")},
		"bounded others want less": {others: []corev1.ResourceList{list("cpu", "4")}, change: func(s *v1alpha1.SharingPolicySpec) {
			s.Amounts["cpu"], s.MaxPerPeer = "6", map[string]v1alpha1.Amount{"cpu": "3"}
		}, want: list("cpu", "3", "memory", "8Gi", "pods", "20", "storage", "10Gi", "a.com/gpu", "2")},
	} {
		p := &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Amounts: map[string]v1alpha1.Amount{"cpu": "8", "memory": "100%", "pods": "110", "storage": "10Gi", "a.com/gpu": "2"}}}
		if c.change != nil {
			c.change(&p.Spec)
		}
		there := supply.Supply{Nodes: nodes, Own: list("cpu", "7")}
		if c.nodes != nil {
			there.Nodes = c.nodes
		}
		got := Lower(p, there, has, c.others, c.place, c.used)
		if (got == nil) != (c.want == nil) || !Same(got, c.want) {
			t.Errorf("%s: %v, want %v", name, Words(got), Words(c.want))
		}
	}
}

// However contracts are lowered and in which order they sign: all together have no more than the amount in the end, nobody less than an equal part unless
// he had no more, and what was told first was no other than what comes of it.
func TestLoweringComesToOneEnd(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + draw.IntN(6)
		wants := make([]int64, n)
		sum := int64(0)
		for i := range wants {
			wants[i] = draw.Int64N(12)
			sum += wants[i]
		}
		amount := draw.Int64N(sum + 3)
		told := parts(amount, wants)
		got := int64(0)
		for i := range told {
			if got += told[i]; told[i] > wants[i] || told[i] < min(wants[i], amount/int64(n)) {
				t.Fatalf("%d of %v: %v", amount, wants, told)
			}
		}
		if got > amount || got != min(amount, sum) {
			t.Fatalf("%d of %v: %v", amount, wants, told)
		}
		for has := slices.Clone(wants); !slices.Equal(has, told); {
			i := draw.IntN(n)
			has[i] = told[i]
			if again := parts(amount, has); !slices.Equal(again, told) {
				t.Fatalf("%d of %v: %v was told, and when %d signs it is %v", amount, wants, told, i, again)
			}
		}
	}
}

func TestNoticesOfALowering(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(seconds int64) metav1.Time { return metav1.Unix(1000+seconds, 0) }
	four, two, one := list("cpu", "4", "pods", "9"), list("cpu", "2", "pods", "9"), list("cpu", "1", "pods", "9")
	other := list("cpu", "2", "pods", "5")
	for name, c := range map[string]struct {
		was  *v1alpha1.Lowering
		to   corev1.ResourceList
		want *v1alpha1.Lowering
	}{
		"nothing":                 {nil, nil, nil},
		"the first":               {nil, two, &v1alpha1.Lowering{Resources: two, From: at(60)}},
		"the same":                {&v1alpha1.Lowering{Resources: two, From: at(5)}, two, &v1alpha1.Lowering{Resources: two, From: at(5)}},
		"raised again":            {&v1alpha1.Lowering{Resources: two, From: at(5)}, nil, nil},
		"raised after its time":   {&v1alpha1.Lowering{Resources: two, From: at(-5)}, nil, nil},
		"nothing is left":         {&v1alpha1.Lowering{Resources: two, From: at(5)}, list(), &v1alpha1.Lowering{Resources: two, From: at(5)}},
		"nothing, after its time": {&v1alpha1.Lowering{Resources: one, From: at(-5), Until: two}, list(), &v1alpha1.Lowering{Resources: one, From: at(-5), Until: two}},
		"nothing from the first":  {nil, list(), nil},
		"raised a little":         {&v1alpha1.Lowering{Resources: one, From: at(5)}, two, &v1alpha1.Lowering{Resources: two, From: at(5)}},
		"a little, after it":      {&v1alpha1.Lowering{Resources: one, From: at(-5)}, two, &v1alpha1.Lowering{Resources: two, From: at(-5)}},
		"lowered twice":           {&v1alpha1.Lowering{Resources: two, From: at(5)}, one, &v1alpha1.Lowering{Resources: one, From: at(60)}},
		"twice, after its time":   {&v1alpha1.Lowering{Resources: two, From: at(-5)}, one, &v1alpha1.Lowering{Resources: one, From: at(60), Until: two}},
		"a third time":            {&v1alpha1.Lowering{Resources: one, From: at(5), Until: two}, list("pods", "9"), &v1alpha1.Lowering{Resources: list("pods", "9"), From: at(60), Until: two}},
		"raised above what holds": {&v1alpha1.Lowering{Resources: one, From: at(5), Until: two}, four, &v1alpha1.Lowering{Resources: four, From: at(5), Until: four}},
		"of another, after it":    {&v1alpha1.Lowering{Resources: one, From: at(0)}, other, &v1alpha1.Lowering{Resources: other, From: at(60), Until: two}},
	} {
		if got := Notify(c.was, c.to, time.Minute, now); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if l := Notify(nil, two, time.Minute, now.Add(time.Millisecond)); !l.From.Equal(new(at(61))) {
		t.Errorf("told for less than a minute: %s", l.From)
	}
	ctr := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Resources: four}}
	for name, c := range map[string]struct {
		is   *v1alpha1.Lowering
		want corev1.ResourceList
	}{
		"without":               {nil, four},
		"before":                {&v1alpha1.Lowering{Resources: one, From: at(1)}, four},
		"meanwhile":             {&v1alpha1.Lowering{Resources: one, From: at(1), Until: two}, two},
		"from then on":          {&v1alpha1.Lowering{Resources: one, From: at(0), Until: two}, one},
		"less was signed since": {&v1alpha1.Lowering{Resources: list("cpu", "9", "pods", "1", "a.com/gpu", "1"), From: at(0)}, list("cpu", "4", "pods", "1")},
		"and of what was until": {&v1alpha1.Lowering{Resources: one, From: at(1), Until: list("cpu", "9", "pods", "9")}, four},
		"and afterward":         {&v1alpha1.Lowering{Resources: one, From: at(-9)}, one},
	} {
		if ctr.Status.Lowering = c.is; !Same(ctr.Grants(now), c.want) {
			t.Errorf("%s: grants %v", name, ctr.Grants(now))
		}
	}
}

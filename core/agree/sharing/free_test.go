package sharing

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// shared is a policy of amounts, reserved what it keeps free.
func shared(amount v1alpha1.Amount, reserve map[string]v1alpha1.Amount) *v1alpha1.SharingPolicy {
	p := Default(0)
	for name := range p.Spec.Amounts {
		p.Spec.Amounts[name] = amount
	}
	p.Spec.Reserve = reserve
	return p
}

// An amount of free follows what the owner's own pods leave, and takes nothing back of what was signed.
func TestAmountsOfFree(t *testing.T) {
	node := list("cpu", "8", "memory", "16Gi", "pods", "100")
	for name, c := range map[string]struct {
		amount           v1alpha1.Amount
		own, has, others corev1.ResourceList
		cpu              string // "" for nothing
		bound            api.BoundBy
	}{
		"nothing runs":                         {"50% of free", nil, nil, nil, "4", api.BoundByAmount},
		"half of the rest":                     {"50% of free", list("cpu", "2"), nil, nil, "3", api.BoundByAmount},
		"half of all, with as much in use":     {"50%", list("cpu", "2"), nil, nil, "4", api.BoundByAmount},
		"all of the rest":                      {"100% of free", list("cpu", "2"), nil, nil, "6", api.BoundByAmount},
		"more than all is in use":              {"50% of free", list("cpu", "9"), nil, nil, "", ""},
		"others have a part of it":             {"50% of free", list("cpu", "2"), nil, list("cpu", "1"), "2", api.BoundByOthers},
		"what was signed stays":                {"50% of free", list("cpu", "7"), list("cpu", "4", "memory", "1Gi", "pods", "5"), nil, "4", ""},
		"and grows again with what is free":    {"50% of free", list("cpu", "2"), list("cpu", "1", "memory", "1Gi", "pods", "5"), nil, "3", ""},
		"unless the owner shares less":         {"25% of free", list("cpu", "7"), list("cpu", "4", "memory", "1Gi", "pods", "5"), nil, "2", ""},
		"or others have it, who signed before": {"50% of free", list("cpu", "7"), list("cpu", "4", "memory", "1Gi", "pods", "5"), list("cpu", "1"), "3", ""},
	} {
		in := OfferInput{Policy: shared(c.amount, nil), Has: c.has}
		in.Supply.Nodes, in.Supply.Own = node, c.own
		if c.others != nil {
			in.InForce, in.Supply.Granted = []corev1.ResourceList{c.others}, []corev1.ResourceList{c.others}
		}
		offer, parts, no := Weigh(in)
		if c.cpu == "" {
			if no == nil || no.Of != "cpu" {
				t.Errorf("%s: %v %v", name, offer, no)
			}
			continue
		}
		if no != nil || Words(offer)["cpu"] != c.cpu {
			t.Errorf("%s: %v, want cpu %s (%v)", name, offer, c.cpu, no)
		}
		if c.bound != "" && parts[0].Bound != c.bound {
			t.Errorf("%s: bound by %s, want %s", name, parts[0].Bound, c.bound)
		}
	}
}

// What the owner reserves stays free beside what the owner's own pods request, whoever asks.
func TestTheReserveIsNotOffered(t *testing.T) {
	node := list("cpu", "8", "memory", "16Gi", "pods", "100", "ephemeral-storage", "100Gi")
	room := list("x", "30Gi")["x"]
	for name, c := range map[string]struct {
		reserve map[string]v1alpha1.Amount
		there   supply.Supply
		has     corev1.ResourceList
		want    string
		bound   api.BoundBy // of cpu
	}{
		"none":            {nil, supply.Supply{}, nil, "cpu 8, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByAllocatable},
		"two processors":  {map[string]v1alpha1.Amount{"cpu": "2"}, supply.Supply{}, nil, "cpu 6, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByReserve},
		"a share":         {map[string]v1alpha1.Amount{"cpu": "25%", "memory": "50%"}, supply.Supply{}, nil, "cpu 6, memory 8Gi, pods 100, ephemeral-storage 100Gi", api.BoundByReserve},
		"beside own pods": {map[string]v1alpha1.Amount{"cpu": "2"}, supply.Supply{Own: list("cpu", "3")}, nil, "cpu 3, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByReserve},
		"beside what others have": {map[string]v1alpha1.Amount{"cpu": "2"}, supply.Supply{Granted: []corev1.ResourceList{list("cpu", "5")}}, nil,
			"cpu 1, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByReserve},
		"what was signed stays": {map[string]v1alpha1.Amount{"cpu": "6"}, supply.Supply{}, list("cpu", "4", "ephemeral-storage", "1Gi"), "cpu 4, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByReserve},
		"all":                   {map[string]v1alpha1.Amount{"cpu": "100%"}, supply.Supply{}, nil, "nothing: no cpu is free: of 8 here, 0 is promised to other peers, the owner's own pods request 0 and the owner keeps 8 free", ""},
		"more than all":         {map[string]v1alpha1.Amount{"cpu": "64"}, supply.Supply{}, nil, "nothing: no cpu is free", ""},
		"of the disk": {map[string]v1alpha1.Amount{"ephemeral-storage": "10Gi"}, supply.Supply{Room: &room}, nil,
			"cpu 8, memory 16Gi, pods 100, ephemeral-storage 20Gi", api.BoundByAllocatable},
		"of what there is none of": {map[string]v1alpha1.Amount{"example.com/fpga": "1"}, supply.Supply{}, nil, "cpu 8, memory 16Gi, pods 100, ephemeral-storage 100Gi", api.BoundByAllocatable},
	} {
		c.there.Nodes = node
		in := OfferInput{Policy: shared("100%", c.reserve), Supply: c.there, Has: c.has, Asked: list("ephemeral-storage", "1Ti")}
		grant, no := Grant(in)
		if no != nil {
			if !strings.HasPrefix(grant.Summary, c.want) {
				t.Errorf("%s: %s, want %s", name, grant.Summary, c.want)
			}
			continue
		}
		if got := Words(grant.Resources).String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if _, parts, _ := Weigh(in); parts[0].Bound != c.bound {
			t.Errorf("%s: bound by %s, want %s", name, parts[0].Bound, c.bound)
		}
	}
	for _, wrong := range []v1alpha1.Amount{"20% of free", "101%", "-1", "2 of free", "% of free"} {
		p := shared("50%", map[string]v1alpha1.Amount{"cpu": wrong})
		if err := Validate(p); err == nil || !strings.Contains(err.Error(), "spec.reserve.cpu") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A bound that cannot be meant, or is a part of what nobody knows, leaves nothing to others.
func TestABoundThatCannotBeMeantIsTheTightest(t *testing.T) {
	policy := &v1alpha1.SharingPolicy{}
	policy.Spec.Reserve = map[string]v1alpha1.Amount{"cpu": "much"}
	policy.Spec.MaxPerPeer = map[string]v1alpha1.Amount{"cpu": "much", "memory": "50%"}
	there := supply.Supply{Nodes: corev1.ResourceList{"cpu": resource.MustParse("4")}}
	if kept := Reserve(policy, there)["cpu"]; kept.Cmp(resource.MustParse("4")) != 0 {
		t.Errorf("%s of 4 cpu is kept", kept.String())
	}
	for _, name := range []corev1.ResourceName{"cpu", "memory"} {
		if most, bounded := PerPeer(policy, there)[name]; !bounded || most.Sign() != 0 {
			t.Errorf("one peer may have %s %s, bounded %t", most.String(), name, bounded)
		}
	}
}

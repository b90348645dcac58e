package sharing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

var (
	bobID   = identity.ID{2}.String()
	carolID = identity.ID{3}.String()
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func policy(name string, change func(*v1alpha1.SharingPolicySpec)) v1alpha1.SharingPolicy {
	p := v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func TestSelect(t *testing.T) {
	everybody := policy("everybody", nil)
	alsoEverybody := policy("also-everybody", nil)
	first := policy("z-first", func(s *v1alpha1.SharingPolicySpec) { s.Priority = 5 })
	byName := policy("by-name", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{"bob"}; s.Priority = 1 })
	byID := policy("by-id", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{"carol", bobID}; s.Priority = 2 })
	family := policy("family", func(s *v1alpha1.SharingPolicySpec) {
		s.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"trust": "family"}}
		s.Priority = 3
	})
	either := policy("either", func(s *v1alpha1.SharingPolicySpec) {
		s.Peers = []string{"bob"}
		s.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"trust": "nobody"}}
	})
	allLabels := policy("all-labels", func(s *v1alpha1.SharingPolicySpec) { s.PeerSelector = &metav1.LabelSelector{} })
	broken := policy("broken", func(s *v1alpha1.SharingPolicySpec) {
		s.PeerSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Perhaps"}}}
		s.Priority = 99
	})
	leaving := policy("leaving", func(s *v1alpha1.SharingPolicySpec) { s.Priority = 99 })
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, c := range []struct {
		name     string
		policies []v1alpha1.SharingPolicy
		labels   map[string]string
		want     string
	}{
		{"none", nil, nil, ""},
		{"empty is everybody", []v1alpha1.SharingPolicy{everybody}, nil, "everybody"},
		{"a tie goes by name", []v1alpha1.SharingPolicy{everybody, alsoEverybody}, nil, "also-everybody"},
		{"priority before name", []v1alpha1.SharingPolicy{everybody, first}, nil, "z-first"},
		{"by name", []v1alpha1.SharingPolicy{everybody, byName}, nil, "by-name"},
		{"by ID", []v1alpha1.SharingPolicy{everybody, byName, byID}, nil, "by-id"},
		{"by label", []v1alpha1.SharingPolicy{byName, byID, family}, map[string]string{"trust": "family"}, "family"},
		{"another label", []v1alpha1.SharingPolicy{family}, map[string]string{"trust": "work"}, ""},
		{"either way", []v1alpha1.SharingPolicy{either}, nil, "either"},
		{"a selector without conditions", []v1alpha1.SharingPolicy{allLabels}, nil, "all-labels"},
		{"a broken selector is for nobody", []v1alpha1.SharingPolicy{broken, everybody}, nil, "everybody"},
		{"a deleted policy counts no more", []v1alpha1.SharingPolicy{leaving, everybody}, nil, "everybody"},
	} {
		peer := acceptedPeer("bob", bobID)
		peer.Labels = c.labels
		got := ""
		if p := Select(c.policies, peer); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// acceptedPeer is a Peer object whose key the owner accepted.
func acceptedPeer(name, id string) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: id}}
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue})
	return peer
}

func TestANameIsNoIdentity(t *testing.T) {
	forCarol := policy("carol", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{"carol"} })
	forHerID := policy("her-id", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{carolID} })
	forHerIDTyped := policy("typed", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{identity.ID{3}.Compact()} })
	forAPrefix := policy("prefix", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{identity.ID{3}.Short(), carolID[:23]} })
	notBlocked := policy("not-blocked", func(s *v1alpha1.SharingPolicySpec) {
		s.PeerSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "blocked", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	})
	all := []v1alpha1.SharingPolicy{forCarol, forHerID, forHerIDTyped, forAPrefix, notBlocked}
	stranger := func(name, id string) *v1alpha1.Peer {
		return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id}}
	}
	notAccepted := stranger("carol", bobID)
	notAccepted.ResourceVersion = "1"
	takenBack := acceptedPeer("carol", bobID)
	takenBack.Status.Conditions[0].Status = metav1.ConditionFalse
	for _, c := range []struct {
		who     string
		peer    *v1alpha1.Peer
		selects []string
	}{
		{"carol, accepted", acceptedPeer("carol", carolID), []string{"carol", "her-id", "typed", "not-blocked"}},
		{"carol before she was accepted", stranger("carol", carolID), []string{"her-id", "typed"}},
		{"a stranger who calls himself carol", stranger("carol", bobID), nil},
		{"a stranger who calls himself by the start of her ID", stranger(identity.ID{3}.Short(), bobID), nil},
		{"one that was asked and never accepted", notAccepted, []string{"not-blocked"}},
		{"one whose acceptance was taken back", takenBack, []string{"not-blocked"}},
		{"somebody accepted under another name", acceptedPeer("bob", bobID), []string{"not-blocked"}},
		{"an ID that is none", acceptedPeer("x", "carol"), []string{"not-blocked"}},
	} {
		for i := range all {
			got := Select(all[i:i+1], c.peer) != nil
			if want := slices.Contains(c.selects, all[i].Name); got != want {
				t.Errorf("%s: policy %s selects: %v, want %v", c.who, all[i].Name, got, want)
			}
		}
	}
}

func TestValidityIsWithinItsBounds(t *testing.T) {
	for says, want := range map[time.Duration]time.Duration{
		-time.Hour: MinValidity, 0: MinValidity, time.Minute: MinValidity, time.Hour: time.Hour,
		48 * time.Hour: 48 * time.Hour, 2 * MaxValidity: MaxValidity,
	} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.ContractValidity = &metav1.Duration{Duration: says} })
		if got := Validity(&p); got != want {
			t.Errorf("contractValidity %s: contracts run %s, want %s", says, got, want)
		}
	}
	if silent := policy("p", nil); Validity(&silent) != DefaultValidity || Validity(nil) != DefaultValidity {
		t.Error("a policy that says nothing has no validity of its own")
	}
}

func TestAmounts(t *testing.T) {
	node := list("cpu", "7", "memory", "16000Mi", "ephemeral-storage", "100000000001", "pods", "109", "nvidia.com/gpu", "3")
	for _, c := range []struct {
		name    string
		amounts map[string]v1alpha1.Amount
		want    corev1.ResourceList
	}{
		{"half", map[string]v1alpha1.Amount{"cpu": "50%", "memory": "50%", "ephemeral-storage": "50%", "pods": "50%", "nvidia.com/gpu": "50%"},
			list("cpu", "3500m", "memory", "8000Mi", "ephemeral-storage", "47683Mi", "pods", "54", "nvidia.com/gpu", "1")},
		{"all and nothing", map[string]v1alpha1.Amount{"cpu": "100%", "memory": "0%"}, list("cpu", "7", "memory", "0")},
		{"absolute", map[string]v1alpha1.Amount{"cpu": "500m", "memory": "4Gi"}, list("cpu", "500m", "memory", "4Gi")},
		{"more than there is", map[string]v1alpha1.Amount{"cpu": "64", "pods": "1k"}, list("cpu", "7", "pods", "109")},
		{"unknown here", map[string]v1alpha1.Amount{"hugepages-2Mi": "2Mi", "example.com/fpga": "2", "amd.com/gpu": "50%"}, list("hugepages-2Mi", "2Mi")},
		{"malformed", map[string]v1alpha1.Amount{"cpu": "half", "memory": "101%", "pods": "-1"}, list()},
	} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Amounts = c.amounts })
		if got := Amounts(&p, supply.Supply{Nodes: node}); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestHugeAmountsDoNotOverflow(t *testing.T) {
	p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Amounts = map[string]v1alpha1.Amount{"memory": "50%"} })
	got := Amounts(&p, supply.Supply{Nodes: list("memory", "8Ei")}) // a hundred times that is no int64
	if memory := got[corev1.ResourceMemory]; memory.Value() < 4<<60-1<<20 || memory.Value() > 4<<60 {
		t.Errorf("half of 8Ei is %s", memory.String())
	}
}

func TestOffer(t *testing.T) {
	half := Default(50)
	node := list("cpu", "8", "memory", "16Gi", "ephemeral-storage", "100Gi", "pods", "110")
	paused := half.DeepCopy()
	paused.Spec.Paused = true
	noPods := half.DeepCopy()
	delete(noPods.Spec.Amounts, "pods")
	nothing := Default(0)
	for _, c := range []struct {
		name string
		in   OfferInput
		want corev1.ResourceList
		why  string // part of the refusal
	}{
		{"nothing asked in particular", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}},
			list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "50Gi", "pods", "55"), ""},
		{"less asked", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "1500m", "memory", "1Gi", "pods", "10")},
			list("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "10"), ""},
		{"scratch space asked", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "1", "memory", "1Gi", "pods", "10", "ephemeral-storage", "40Gi")},
			list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "40Gi", "pods", "10"), ""},
		{"scratch space that it has stays", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Has: list("ephemeral-storage", "40Gi"), Asked: list("pods", "10")},
			list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "40Gi", "pods", "10"), ""},
		{"the disk is nearly full", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Room: new(resource.MustParse("7Gi")), Granted: []corev1.ResourceList{list("ephemeral-storage", "3Gi")}},
			Asked: list("cpu", "1", "memory", "1Gi", "pods", "10", "ephemeral-storage", "40Gi")},
			list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "4Gi", "pods", "10"), ""},
		{"more asked", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "100", "nvidia.com/gpu", "1")},
			list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "50Gi", "pods", "55"), ""},
		{"others hold some", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, InForce: []corev1.ResourceList{
			list("cpu", "1", "memory", "2Gi", "pods", "20"), list("cpu", "500m", "pods", "30", "example.com/x", "1")}},
			list("cpu", "2500m", "memory", "6Gi", "ephemeral-storage", "5Gi", "pods", "5"), ""},
		{"the owner's pods need some", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Own: list("cpu", "6", "memory", "1Gi"), Granted: []corev1.ResourceList{list("cpu", "1")}},
			InForce: []corev1.ResourceList{list("cpu", "1")}},
			list("cpu", "1", "memory", "8Gi", "ephemeral-storage", "50Gi", "pods", "55"), ""},
		{"what it has stays, whatever the owner's pods need", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Own: list("cpu", "7")}, Has: list("cpu", "3")},
			list("cpu", "3", "memory", "8Gi", "ephemeral-storage", "50Gi", "pods", "55"), ""},
		{"others have some under another policy", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Granted: []corev1.ResourceList{list("cpu", "6")}}},
			list("cpu", "2", "memory", "8Gi", "ephemeral-storage", "50Gi", "pods", "55"), ""},
		{"others have all under another policy", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Granted: []corev1.ResourceList{list("cpu", "8")}}}, nil,
			"no cpu is free: of 8 here, 8 is promised to other peers and the owner's own pods request 0"},
		{"storage all gone is left out", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, InForce: []corev1.ResourceList{list("ephemeral-storage", "50Gi")}},
			list("cpu", "4", "memory", "8Gi", "pods", "55"), ""},
		{"no policy", OfferInput{Supply: supply.Supply{Nodes: node}}, nil, "no SharingPolicy"},
		{"paused", OfferInput{Policy: paused, Supply: supply.Supply{Nodes: node}}, nil, "paused (SharingPolicy default)"},
		{"zero percent", OfferInput{Policy: nothing, Supply: supply.Supply{Nodes: node}}, nil, `"0%" of it comes to nothing`},
		{"no pods named", OfferInput{Policy: noPods, Supply: supply.Supply{Nodes: node}}, nil, "offers no pods (it names [cpu ephemeral-storage memory])"},
		{"all promised", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, InForce: []corev1.ResourceList{list("cpu", "4")}}, nil,
			"all cpu that SharingPolicy default offers (4) is promised to other peers"},
		{"more promised than there is now", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, InForce: []corev1.ResourceList{list("memory", "9Gi")}}, nil,
			"all memory"},
		{"the owner uses all", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node, Own: list("cpu", "8")}}, nil, "the owner's own pods request 8"},
		{"zero asked", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("memory", "0")}, nil, "memory 0 was asked for"},
		{"no nodes", OfferInput{Policy: half}, nil, "no node here takes guests"},
	} {
		got, err := Offer(c.in)
		var no *Refusal
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why != "" && (!errors.As(err, &no) || !strings.Contains(no.Reason, c.why)):
			t.Errorf("%s: refusal %q, want %q", c.name, err, c.why)
		case !equality.Semantic.DeepEqual(got, c.want):
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOffersNeverAddUpToMoreThanThePolicy hands out offers until there are no more.
func TestOffersNeverAddUpToMoreThanThePolicy(t *testing.T) {
	half := Default(50)
	node := list("cpu", "7", "memory", "15999Mi", "ephemeral-storage", "99Gi", "pods", "110")
	var held []corev1.ResourceList
	for range 100 {
		offer, err := Offer(OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, InForce: held, Asked: list("cpu", "300m", "memory", "700Mi", "pods", "7")})
		if err != nil {
			break
		}
		held = append(held, offer)
	}
	limit := Amounts(half, supply.Supply{Nodes: node})
	for name := range limit {
		var sum resource.Quantity
		for _, h := range held {
			sum.Add(h[name])
		}
		if sum.Cmp(limit[name]) > 0 {
			t.Errorf("%s: %s handed out of %v", name, sum.String(), limit[name])
		}
	}
	if len(held) != 8 {
		t.Errorf("%d contracts of 7 pods fit into 55", len(held))
	}
}

func TestValidate(t *testing.T) {
	if err := Validate(Default(50)); err != nil {
		t.Error("the default policy:", err)
	}
	for _, c := range []struct {
		field, allowed string
		change         func(*v1alpha1.SharingPolicySpec)
	}{
		{"spec.amounts", "at least cpu", func(s *v1alpha1.SharingPolicySpec) { s.Amounts = nil }},
		{"spec.amounts.cpu", "whole share", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "101%" }},
		{"spec.amounts.cpu", "quantity", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "lots" }},
		{"spec.amounts.cpu", "quantity", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "-1" }},
		{"spec.amounts", "resource name", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["a b"] = "1" }},
		{"spec.amounts", "resource name", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["kubernetes.io/gpu"] = "1" }},
		{"spec.amounts", "resource name", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["gpu"] = "1" }},
		{"spec.amounts.nvidia.com/gpu", "whole number", func(s *v1alpha1.SharingPolicySpec) { s.Amounts["nvidia.com/gpu"] = "500m" }},
		{"spec.deviceRuntimeClass", "RuntimeClass", func(s *v1alpha1.SharingPolicySpec) { s.DeviceRuntimeClass = "NVIDIA" }},
		{"spec.podSecurity", "privileged, baseline or restricted", func(s *v1alpha1.SharingPolicySpec) { s.PodSecurity = "lax" }},
		{"spec.peers[1]", "Peer", func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{bobID, "bob!"} }},
		{"spec.peerSelector", "label selector", func(s *v1alpha1.SharingPolicySpec) {
			s.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "!"}}
		}},
		{"spec.contractValidity", "from 1h to 87600h", func(s *v1alpha1.SharingPolicySpec) { s.ContractValidity = &metav1.Duration{Duration: time.Minute} }},
		{"spec.keepVolumes", "from 1h to 8760h", func(s *v1alpha1.SharingPolicySpec) { s.KeepVolumes = &metav1.Duration{Duration: time.Minute} }},
		{"spec.notice", "from 10s to 720h", func(s *v1alpha1.SharingPolicySpec) { s.Notice = &metav1.Duration{Duration: time.Second} }},
		{"spec.wake", "from 1 to 24", func(s *v1alpha1.SharingPolicySpec) { s.Wake = new(int32(0)) }},
		{"spec.wake", "from 1 to 24", func(s *v1alpha1.SharingPolicySpec) { s.Wake = new(int32(25)) }},
		{"spec.notice", "from 10s to 720h", func(s *v1alpha1.SharingPolicySpec) { s.Notice = &metav1.Duration{Duration: 721 * time.Hour} }},
		{"spec.network.bandwidth.egress", "bits a second", func(s *v1alpha1.SharingPolicySpec) {
			s.Network = &v1alpha1.GuestNetwork{Bandwidth: &v1alpha1.GuestBandwidth{Ingress: "1M", Egress: "1"}}
		}},
		{"spec.keepVolumes", "from 1h to 8760h", func(s *v1alpha1.SharingPolicySpec) { s.KeepVolumes = &metav1.Duration{Duration: 8761 * time.Hour} }},
		{"spec.contractValidity", "from 1h to 87600h", func(s *v1alpha1.SharingPolicySpec) {
			s.ContractValidity = &metav1.Duration{Duration: MaxValidity + time.Second}
		}},
	} {
		p := Default(50)
		c.change(&p.Spec)
		err := Validate(p)
		var wrong *FieldError
		if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(wrong.Allowed, c.allowed) {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

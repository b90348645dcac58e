package sharing

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/power"
	"kith.dev/core/base/thermal"
)

// One peer has no more than the policy lets it, however much is shared, and no more than is shared either.
func TestTheMostPerPeer(t *testing.T) {
	node := list("cpu", "8", "memory", "16Gi", "pods", "100")
	for name, c := range map[string]struct {
		most            map[string]v1alpha1.Amount
		asked, has, own corev1.ResourceList
		others          corev1.ResourceList
		want            string
		bound           api.BoundBy // of cpu
	}{
		"no bound":                 {nil, nil, nil, nil, nil, "cpu 4, memory 8Gi, pods 50", api.BoundByAmount},
		"of one resource":          {map[string]v1alpha1.Amount{"cpu": "1"}, nil, nil, nil, nil, "cpu 1, memory 8Gi, pods 50", api.BoundByPerPeer},
		"asks for more":            {map[string]v1alpha1.Amount{"cpu": "1"}, list("cpu", "3"), nil, nil, nil, "cpu 1, memory 8Gi, pods 50", api.BoundByPerPeer},
		"asks for less":            {map[string]v1alpha1.Amount{"cpu": "2"}, list("cpu", "1"), nil, nil, nil, "cpu 1, memory 8Gi, pods 50", api.BoundByAsked},
		"more than is shared":      {map[string]v1alpha1.Amount{"cpu": "7"}, nil, nil, nil, nil, "cpu 4, memory 8Gi, pods 50", api.BoundByAmount},
		"others have the rest":     {map[string]v1alpha1.Amount{"cpu": "2"}, nil, nil, nil, list("cpu", "3"), "cpu 1, memory 8Gi, pods 50", api.BoundByOthers},
		"a share of all":           {map[string]v1alpha1.Amount{"cpu": "25%"}, nil, nil, nil, nil, "cpu 2, memory 8Gi, pods 50", api.BoundByPerPeer},
		"a share of what is free":  {map[string]v1alpha1.Amount{"cpu": "25% of free"}, nil, nil, list("cpu", "4"), nil, "cpu 1, memory 8Gi, pods 50", api.BoundByPerPeer},
		"which takes nothing back": {map[string]v1alpha1.Amount{"cpu": "25% of free"}, nil, list("cpu", "2"), list("cpu", "4"), nil, "cpu 2, memory 8Gi, pods 50", api.BoundByPerPeer},
		"none of it":               {map[string]v1alpha1.Amount{"memory": "0"}, nil, nil, nil, nil, "nothing: SharingPolicy default lets one peer have no memory", ""},
	} {
		p := shared("50%", nil)
		p.Spec.MaxPerPeer = c.most
		in := OfferInput{Policy: p, Asked: c.asked, Has: c.has}
		in.Supply.Nodes, in.Supply.Own = node, c.own
		if c.others != nil {
			in.InForce, in.Supply.Granted, in.Peers = []corev1.ResourceList{c.others}, []corev1.ResourceList{c.others}, 1
		}
		grant, no := Grant(in)
		if no != nil {
			if grant.Summary != c.want || no.Why != api.NoOfferZero {
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
}

func TestAPolicyIsForSoManyPeers(t *testing.T) {
	for name, c := range map[string]struct {
		most  int32
		peers int
		has   corev1.ResourceList
		full  bool
	}{
		"nobody is there":           {1, 0, nil, false},
		"somebody is":               {1, 1, nil, true},
		"room for one more":         {3, 2, nil, false},
		"more than may be, by now":  {1, 5, nil, true},
		"who is among them changes": {1, 5, list("cpu", "1", "memory", "1Gi", "pods", "1"), false},
	} {
		p := shared("50%", nil)
		p.Spec.MaxPeers = &c.most
		in := OfferInput{Policy: p, Peers: c.peers, Has: c.has}
		in.Supply.Nodes = list("cpu", "8", "memory", "16Gi", "pods", "100")
		_, _, no := Weigh(in)
		if (no != nil) != c.full || no != nil && (no.Why != api.NoOfferPeers || !strings.Contains(no.Reason, "so many hold contracts under it")) {
			t.Errorf("%s: %+v", name, no)
		}
	}
	for field, change := range map[string]func(*v1alpha1.SharingPolicySpec){
		"spec.maxPeers":       func(s *v1alpha1.SharingPolicySpec) { s.MaxPeers = new(int32) },
		"spec.maxPerPeer.cpu": func(s *v1alpha1.SharingPolicySpec) { s.MaxPerPeer = map[string]v1alpha1.Amount{"cpu": "-1"} },
	} {
		p := Default(50)
		if change(&p.Spec); Validate(p) == nil || !strings.Contains(Validate(p).Error(), field) {
			t.Errorf("%s: %v", field, Validate(p))
		}
	}
}

func TestConditions(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	mains, half := Laptop{Power: power.State{OnMains: true, Battery: 50}}, Laptop{Power: power.State{Battery: 50}}
	ago := func(d time.Duration) Laptop { return Laptop{Power: mains.Power, IdleSince: now.Add(-d)} }
	idle := &v1alpha1.SharingConditions{IdleFor: &metav1.Duration{Duration: 10 * time.Minute}}
	cool := &v1alpha1.SharingConditions{Cool: true}
	unmetered := &v1alpha1.SharingConditions{NotMetered: true}
	for name, c := range map[string]struct {
		only *v1alpha1.SharingConditions
		at   Laptop
		why  api.NoOffer
	}{
		"none":                        {nil, Laptop{}, ""},
		"on mains":                    {&v1alpha1.SharingConditions{OnMains: true}, mains, ""},
		"on battery":                  {&v1alpha1.SharingConditions{OnMains: true}, half, api.NoOfferOnBattery},
		"the battery is full enough":  {&v1alpha1.SharingConditions{BatteryAbove: 49}, half, ""},
		"it is not":                   {&v1alpha1.SharingConditions{BatteryAbove: 50}, half, api.NoOfferBattery},
		"nor is it on mains":          {&v1alpha1.SharingConditions{BatteryAbove: 50}, mains, api.NoOfferBattery},
		"one of two is met":           {&v1alpha1.SharingConditions{OnMains: true, BatteryAbove: 60}, mains, api.NoOfferBattery},
		"the other is":                {&v1alpha1.SharingConditions{OnMains: true, BatteryAbove: 40}, half, api.NoOfferOnBattery},
		"both are":                    {&v1alpha1.SharingConditions{OnMains: true, BatteryAbove: 40}, mains, ""},
		"a machine without batteries": {&v1alpha1.SharingConditions{OnMains: true, BatteryAbove: 99}, Laptop{Power: power.State{OnMains: true, Battery: power.None}}, ""},
		"cool":                        {cool, mains, ""},
		"hot":                         {cool, Laptop{Heat: thermal.State{Hot: "acpitz has 92 °C, and is cool below 80 °C"}}, api.NoOfferHot},
		"nobody knows how hot it is":  {cool, Laptop{Heat: thermal.State{Unknown: "this machine has no thermal zones"}}, api.NoOfferNotKnown},
		"nobody asks how hot it is":   {unmetered, Laptop{Heat: thermal.State{Hot: "x", Unknown: "x"}}, ""},
		"nobody is at it":             {idle, ago(10 * time.Minute), ""},
		"somebody was a moment ago":   {idle, ago(10*time.Minute - 1), api.NoOfferInUse},
		"its clock was put back":      {idle, ago(-time.Hour), api.NoOfferInUse},
		"somebody is at it":           {idle, mains, api.NoOfferInUse},
		"nobody knows who is":         {idle, Laptop{IdleSince: now.Add(-time.Hour), IdleUnknown: "logind does not run here"}, api.NoOfferNotKnown},
		"not metered":                 {unmetered, mains, ""},
		"metered":                     {unmetered, Laptop{Metered: true}, api.NoOfferMetered},
		"nobody knows what it costs":  {unmetered, Laptop{MeteredUnknown: "NetworkManager does not run here"}, api.NoOfferNotKnown},
		"nobody asks what it costs":   {idle, Laptop{IdleSince: now.Add(-time.Hour), Metered: true, MeteredUnknown: "x"}, ""},
	} {
		p := shared("50%", nil)
		p.Spec.Only = c.only
		in := OfferInput{Policy: p, Laptop: c.at, Now: now}
		in.Supply.Nodes = list("cpu", "8", "memory", "16Gi", "pods", "100")
		_, _, no := Weigh(in)
		if (no == nil) != (c.why == "") || no != nil && no.Why != c.why {
			t.Errorf("%s: %+v, want %s", name, no, c.why)
		}
		if unknown := c.at.IdleUnknown + c.at.MeteredUnknown + c.at.Heat.Unknown; c.why == api.NoOfferNotKnown && !strings.HasSuffix(no.Reason, unknown) {
			t.Errorf("%s: it is not said why: %s", name, no.Reason)
		}
	}
	p := Default(50)
	for _, d := range []time.Duration{0, 59 * time.Second, 25 * time.Hour, -time.Hour} {
		p.Spec.Only = &v1alpha1.SharingConditions{IdleFor: &metav1.Duration{Duration: d}}
		if err := Validate(p); err == nil || !strings.Contains(err.Error(), "spec.only.idleFor") {
			t.Errorf("idle for %s: %v", d, err)
		}
	}
	p.Spec.Only = &v1alpha1.SharingConditions{BatteryAbove: 100}
	if err := Validate(p); err == nil || !strings.Contains(err.Error(), "spec.only.batteryAbove") {
		t.Error(err)
	}
}

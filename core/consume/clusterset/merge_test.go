package clusterset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

var day = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// exported is a service of a cluster, as old as that many days, with TCP ports.
func exported(cluster string, age int, change func(*Export), ports ...Port) from {
	e := Export{Name: Name{"shop", "web"}, Since: day.AddDate(0, 0, -age), Ports: ports, SessionAffinity: corev1.ServiceAffinityNone}
	if change != nil {
		change(&e)
	}
	return from{cluster, e}
}

func tcp(name string, port int32) Port {
	return Port{Name: name, Protocol: corev1.ProtocolTCP, Port: port}
}

func TestTheOldestExportCounts(t *testing.T) {
	for name, c := range map[string]struct {
		list  []from
		ports []Port
		why   []mcs.ServiceExportConditionReason
		is    func(Export) bool
	}{
		"one": {list: []from{exported("a", 1, nil, tcp("http", 80))}, ports: []Port{tcp("http", 80)}},
		"the same of two": {
			list: []from{exported("a", 1, nil, tcp("http", 80)), exported("b", 2, nil, tcp("http", 80))}, ports: []Port{tcp("http", 80)},
		},
		"the union of ports": {
			list: []from{exported("a", 2, nil, tcp("http", 80)), exported("b", 1, nil, tcp("http", 80), tcp("https", 443))}, ports: []Port{tcp("http", 80), tcp("https", 443)},
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonPortConflict},
		},
		"one name, two numbers": {
			list: []from{exported("a", 1, nil, tcp("http", 81)), exported("b", 2, nil, tcp("http", 80))}, ports: []Port{tcp("http", 80)},
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonPortConflict},
		},
		"one number, two names": {
			list: []from{exported("a", 2, nil, tcp("http", 80)), exported("b", 1, nil, tcp("web", 80))}, ports: []Port{tcp("http", 80)},
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonPortConflict},
		},
		"with a name and without": {
			list: []from{exported("a", 2, nil, tcp("", 80)), exported("b", 1, nil, tcp("https", 443))}, ports: []Port{tcp("", 80)},
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonPortConflict},
		},
		"headless or not": {
			list: []from{exported("a", 1, func(e *Export) { e.Headless = true }), exported("b", 2, nil)}, is: func(e Export) bool { return !e.Headless },
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonTypeConflict},
		},
		"of the same second, the first by cluster": {
			list: []from{exported("b", 1, nil), exported("a", 1, func(e *Export) { e.Headless = true })}, is: func(e Export) bool { return e.Headless },
			why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonTypeConflict},
		},
		"all the rest": {
			list: []from{exported("a", 2, nil), exported("b", 1, func(e *Export) {
				e.SessionAffinity, e.AffinitySeconds, e.InternalTrafficPolicy, e.TrafficDistribution = corev1.ServiceAffinityClientIP, 10, corev1.ServiceInternalTrafficPolicyLocal, "PreferClose"
				e.Labels, e.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
			})},
			is: func(e Export) bool { return e.SessionAffinity == corev1.ServiceAffinityNone && e.Labels == nil },
			why: []mcs.ServiceExportConditionReason{
				mcs.ServiceExportReasonSessionAffinityConflict, mcs.ServiceExportReasonInternalTrafficPolicyConflict, mcs.ServiceExportReasonTrafficDistributionConflict,
				mcs.ServiceExportReasonLabelsConflict, mcs.ServiceExportReasonAnnotationsConflict,
			},
		},
		"how long an affinity lasts": {
			list: []from{
				exported("a", 2, func(e *Export) { e.SessionAffinity, e.AffinitySeconds = corev1.ServiceAffinityClientIP, 10 }),
				exported("b", 1, func(e *Export) { e.SessionAffinity, e.AffinitySeconds = corev1.ServiceAffinityClientIP, 20 }),
			},
			is: func(e Export) bool { return e.AffinitySeconds == 10 }, why: []mcs.ServiceExportConditionReason{mcs.ServiceExportReasonSessionAffinityConfigConflict},
		},
	} {
		for range 2 { // in any order
			slices.Reverse(c.list)
			m := merge(c.list)
			var why []mcs.ServiceExportConditionReason
			for _, p := range m.conflict {
				why = append(why, p.reason)
			}
			if !slices.Equal(m.Ports, c.ports) || !slices.Equal(why, c.why) || c.is != nil && !c.is(m.Export) || len(m.clusters) != len(c.list) || !slices.IsSorted(m.clusters) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

func TestNoMorePortsThanAServiceMayHave(t *testing.T) {
	var a, b []Port
	for i := range int32(MaxPorts) {
		a, b = append(a, tcp(fmt.Sprintf("a%d", i), 1000+i)), append(b, tcp(fmt.Sprintf("b%d", i), 2000+i))
	}
	if m := merge([]from{exported("a", 2, nil, a...), exported("b", 1, nil, b...)}); len(m.Ports) != MaxPorts || len(m.conflict) != 1 {
		t.Errorf("%d ports, %v", len(m.Ports), m.conflict)
	}
}

// TestAPortLeadsToWhoHasIt: not to pods of a service that has another port by that name.
func TestAPortLeadsToWhoHasIt(t *testing.T) {
	behind := []Slice{{Ports: []Port{tcp("http", 8080), tcp("more", 8080)}, Endpoints: []Endpoint{{Ready: true}}}}
	older := exported("a", 2, func(e *Export) { e.Slices = behind }, tcp("http", 80))
	newer := exported("b", 1, func(e *Export) { e.Slices = behind }, tcp("http", 81), tcp("more", 82))
	m := merge([]from{older, newer})
	if got := m.behind(newer.Export); len(got) != 1 || len(got[0].Endpoints) != 1 || !slices.Equal(got[0].Ports, []Port{tcp("more", 8080)}) {
		t.Errorf("%+v", got)
	}
	if got := m.behind(older.Export); !slices.Equal(got[0].Ports, behind[0].Ports) {
		t.Errorf("%+v", got)
	}
}

package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// from is an export with the cluster that it is of, by its compact ID, which has no other meaning here than that both sides know it.
type from struct {
	cluster string
	Export
}

// merged is what several clusters export under one name, as one service.
type merged struct {
	Export             // of the oldest; Ports are those of all, Slices are empty
	clusters []string  // sorted
	conflict []problem // where they differ; the oldest counts
}

// problem is where exports differ: one reason of ServiceExportConditionConflict, and what about it.
type problem struct {
	reason mcs.ServiceExportConditionReason
	what   string
}

// merge makes one service of exports, at least one. What they differ in is as the oldest has it, then as the first by cluster (KEP-1645, "Constraints and
// Conflict Resolution"); of ports it is the union.
func merge(list []from) (m merged) {
	list = slices.SortedFunc(slices.Values(list), func(a, b from) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.cluster, b.cluster))
	})
	m.Export = list[0].Export
	m.Slices, m.Ports = nil, slices.Clone(m.Ports)
	differs := func(reason mcs.ServiceExportConditionReason, what string) {
		if !slices.ContainsFunc(m.conflict, func(p problem) bool { return p.reason == reason }) {
			m.conflict = append(m.conflict, problem{reason, what})
		}
	}
	for _, e := range list {
		m.clusters = append(m.clusters, e.cluster)
		if e.Headless != m.Headless {
			differs(mcs.ServiceExportReasonTypeConflict, "some are headless")
		}
		if affinity(e.SessionAffinity) != affinity(m.SessionAffinity) {
			differs(mcs.ServiceExportReasonSessionAffinityConflict, "their session affinity differs")
		} else if e.AffinitySeconds != m.AffinitySeconds {
			differs(mcs.ServiceExportReasonSessionAffinityConfigConflict, "their session affinity lasts differently long")
		}
		if cmp.Or(e.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) != cmp.Or(m.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) {
			differs(mcs.ServiceExportReasonInternalTrafficPolicyConflict, "their internal traffic policy differs")
		}
		if e.TrafficDistribution != m.TrafficDistribution {
			differs(mcs.ServiceExportReasonTrafficDistributionConflict, "their traffic distribution differs")
		}
		if !maps.Equal(e.Labels, m.Labels) {
			differs(mcs.ServiceExportReasonLabelsConflict, "their exported labels differ")
		}
		if !maps.Equal(e.Annotations, m.Annotations) {
			differs(mcs.ServiceExportReasonAnnotationsConflict, "their exported annotations differ")
		}
		for _, p := range e.Ports {
			if what := m.take(p); what != "" {
				differs(mcs.ServiceExportReasonPortConflict, what)
			}
		}
	}
	for _, e := range list {
		if slices.ContainsFunc(m.Ports, func(p Port) bool { return !slices.Contains(e.Ports, p) }) {
			differs(mcs.ServiceExportReasonPortConflict, "not all have the same ports")
		}
	}
	slices.Sort(m.clusters)
	return m
}

// behind are the endpoints of an export that are behind the merged service: not by a port of theirs that another has in its place.
func (m *merged) behind(e Export) (list []Slice) {
	for _, s := range e.Slices {
		s.Ports = slices.DeleteFunc(slices.Clone(s.Ports), func(p Port) bool {
			return slices.ContainsFunc(e.Ports, func(of Port) bool { return of.Name == p.Name && !slices.Contains(m.Ports, of) })
		})
		list = append(list, s)
	}
	return list
}

func affinity(a corev1.ServiceAffinity) corev1.ServiceAffinity {
	return cmp.Or(a, corev1.ServiceAffinityNone)
}

// take adds a port; else it says what is in the way. A service with several ports has a name for each.
func (m *merged) take(p Port) (conflict string) {
	for _, has := range m.Ports {
		switch {
		case has == p:
			return ""
		case has.Name == p.Name:
			return fmt.Sprintf("port %q is %s %d and %s %d", p.Name, has.Protocol, has.Port, p.Protocol, p.Port)
		case has.Port == p.Port && has.Protocol == p.Protocol:
			return fmt.Sprintf("%s %d is port %q and %q", p.Protocol, p.Port, has.Name, p.Name)
		case has.Name == "" || p.Name == "":
			return "some ports have names, and one has none"
		}
	}
	if len(m.Ports) == MaxPorts {
		return fmt.Sprintf("together they have more than %d ports", MaxPorts)
	}
	m.Ports = append(m.Ports, p)
	return ""
}

// reasons and words of a conflict, for a condition.
func (m *merged) said() (reason, message string) {
	var reasons, words []string
	for _, p := range m.conflict {
		reasons, words = append(reasons, string(p.reason)), append(words, p.what)
	}
	return strings.Join(reasons, ","), strings.Join(words, "; ") + "; the oldest ServiceExport counts"
}

// sliceName is that of the i-th slice of a cluster's endpoints.
func sliceName(name, cluster string, i int) string {
	return v1alpha1.ImportedService(name, cluster, fmt.Sprint(i))
}

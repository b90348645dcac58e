package fenced

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

func node(name string, by string, labels map[string]string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if by != "" {
		n.Annotations = map[string]string{v1alpha1.AnnotationFencedBy: by}
	}
	return n
}

func agent(node string, ready corev1.ConditionStatus, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "kith-nodes-" + node, Namespace: "kith-system", Labels: map[string]string{AgentLabel: AgentValue},
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "kith-nodes", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	for _, f := range change {
		f(&p)
	}
	return p
}

// What is not sure of a fence that is alive is closed.
func TestWhereGuestsMayRun(t *testing.T) {
	a, b := node("a", "", nil), node("b", "", nil)
	peer, virtual := node("kith-carol", "", map[string]string{v1alpha1.LabelPeer: "carol"}), node("cloud", "", map[string]string{"type": "virtual-kubelet"})
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	forged := func(p *corev1.Pod) { p.OwnerReferences = nil }
	for name, c := range map[string]struct {
		World
		want string
	}{
		"kithd on one of two":              {World{Nodes: []corev1.Node{a, b, peer, virtual}, Self: "a", Own: Alive}, "a by kithd, b NoFence"},
		"its fence is down":                {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Down, More: "no nftables"}, "a Down (no nftables), b NoFence"},
		"it has just begun":                {World{Nodes: []corev1.Node{a}, Self: "a", Own: Starting}, "a Starting by kithd"},
		"it never gets to it":              {World{Nodes: []corev1.Node{a}, Self: "a", Own: Starting, Settled: true}, "a Down"},
		"it runs on another machine":       {World{Nodes: []corev1.Node{a}, Self: "a", Own: Elsewhere, Settled: true}, "a Elsewhere"},
		"it is no node":                    {World{Nodes: []corev1.Node{a, b}, Self: "laptop", Own: Elsewhere}, "a NoFence, b NoFence"},
		"an agent that is ready":           {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Alive, Agents: []corev1.Pod{agent("a", "True"), agent("b", "True")}}, "a by kithd, b by agent"},
		"an agent that is not":             {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Alive, Agents: []corev1.Pod{agent("b", "False")}, Settled: true}, "a by kithd, b NotReady"},
		"of a node that is away":           {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Alive, Agents: []corev1.Pod{agent("b", "Unknown")}, Settled: true}, "a by kithd, b NotReady"},
		"an agent that ends":               {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Alive, Agents: []corev1.Pod{agent("b", "True", deleted)}, Settled: true}, "a by kithd, b NotReady"},
		"one ends, the next is ready":      {World{Nodes: []corev1.Node{b}, Agents: []corev1.Pod{agent("b", "True", deleted), agent("b", "True")}, Settled: true}, "b by agent"},
		"nothing comes through to it":      {World{Nodes: []corev1.Node{a, b}, Self: "a", Own: Alive, Agents: []corev1.Pod{agent("b", "True")}, Cut: map[string]string{"b": "UDP"}, Settled: true}, "a by kithd, b Cut (UDP)"},
		"nor is it ready":                  {World{Nodes: []corev1.Node{b}, Agents: []corev1.Pod{agent("b", "False")}, Cut: map[string]string{"b": "UDP"}, Settled: true}, "b NotReady"},
		"somebody's pod":                   {World{Nodes: []corev1.Node{b}, Agents: []corev1.Pod{agent("b", "True", forged)}, Settled: true}, "b NoFence"},
		"an agent where kithd's fence is":  {World{Nodes: []corev1.Node{a}, Self: "a", Own: Down, Agents: []corev1.Pod{agent("a", "True")}, Settled: true}, "a Down"},
		"the gateway moved, just now":      {World{Nodes: []corev1.Node{node("a", v1alpha1.FencedByKithd, nil), b}, Self: "b", Own: Alive, Agents: []corev1.Pod{agent("a", "True")}}, "a NotReady, b by kithd"},
		"the gateway moved, some time ago": {World{Nodes: []corev1.Node{node("a", v1alpha1.FencedByKithd, nil), b}, Self: "b", Own: Alive, Agents: []corev1.Pod{agent("a", "True")}, Settled: true}, "a by agent, b by kithd"},
		"another kithd, agents go on":      {World{Nodes: []corev1.Node{node("a", v1alpha1.FencedByAgent, nil), b}, Self: "b", Own: Alive, Agents: []corev1.Pod{agent("a", "True")}}, "a by agent, b by kithd"},
		"a label alone says nothing":       {World{Nodes: []corev1.Node{node("a", v1alpha1.FencedByAgent, map[string]string{v1alpha1.LabelFenced: "true"})}, Settled: true}, "a NoFence"},
	} {
		var got []string
		for _, v := range c.Judge() {
			words := v.Node
			if v.Why != Alive {
				words += " " + string(v.Why)
			}
			if v.More != "" {
				words += fmt.Sprintf(" (%s)", v.More)
			}
			if v.By != "" {
				words += " by " + v.By
			}
			got = append(got, words)
		}
		if is := strings.Join(got, ", "); is != c.want {
			t.Errorf("%s: %s, want %s", name, is, c.want)
		}
	}
}

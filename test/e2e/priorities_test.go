//go:build lab

package e2e

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/test/lab"
)

// prioritiesHold: what the pods of a home matter there orders them at a peer, among themselves: at home within what the contract grants, and at the peer
// when its owner's pods leave less room than that. silent, which asks for nothing, and the owner's pods stay.
func prioritiesHold(t *testing.T, alice, bob *lab.Laptop) {
	class := func(name, more string) {
		apply(t, alice, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: "+name+"}, "+more+"}")
	}
	class("important", "value: 1000")
	class("patient", "value: 1000, preemptionPolicy: Never")
	class("vital", "value: 2000")
	of := func(name, class, cpu string) string {
		pod := strings.Replace(solo(name, "kith-bob"), "cpu: 10m", "cpu: "+cpu, 1)
		return strings.Replace(pod, "spec:\n", "spec:\n  priorityClassName: "+class+"\n", 1)
	}
	runs := func(name string) {
		t.Helper()
		waitReady(t, alice, 1, "-n", "shop", "-l", "app="+name)
	}
	apply(t, alice, strings.Replace(solo("low", "kith-bob"), "cpu: 10m", "cpu: 70m", 1))
	runs("low")

	// The owner leaves room for one of them.
	var used, has resource.Quantity
	for _, cpu := range strings.Fields(kubectl(t, bob, "get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].resources.requests.cpu}")) {
		used.Add(resource.MustParse(cpu))
	}
	has = resource.MustParse(kubectl(t, bob, "get", "node", "bob", "-o", "jsonpath={.status.allocatable.cpu}"))
	has.Sub(used)
	has.Sub(resource.MustParse("30m"))
	mine := strings.Replace(solo("mine", "bob"), "namespace: shop", "namespace: default", 1)
	apply(t, bob, strings.Replace(mine, "cpu: 10m", "cpu: "+has.String(), 1))
	waitReady(t, bob, 1, "-n", "default", "-l", "app=mine")
	apply(t, alice, of("meek", "patient", "70m"))
	apply(t, alice, of("high", "important", "70m"))
	runs("high")
	eventually(t, 20*time.Second, "low made room, and says for whom", func() string {
		got := endOf(t, alice, "low")
		if !strings.HasPrefix(got, "Failed Evicted: ") || !strings.Contains(got, "pod high, which has a higher priority at home") || !strings.HasSuffix(got, "[PreemptionByScheduler]") {
			return instead(got)
		}
		return ""
	})
	for _, p := range []struct {
		at              *lab.Laptop
		namespace, name string
	}{{bob, "default", "mine"}, {alice, "shop", "silent"}} {
		if list := pods(t, p.at, "-n", p.namespace, "--field-selector", "metadata.name="+p.name); len(list) != 1 || !list[0].ready() {
			t.Errorf("%s is %+v", p.name, list)
		}
	}
	if out := kubectl(t, bob, "get", "pods", "-A", "-l", "kith.dev/consumer-name=alice", "-o", "jsonpath={.items[*].spec.priority}"); strings.Trim(out, "-10 ") != "" {
		t.Errorf("priorities of guests: %s", out)
	}
	kubectl(t, bob, "-n", "default", "delete", "pod", "mine")
	runs("meek")

	// What is granted would not do for all; that home's scheduler knows.
	kubectl(t, alice, "-n", "shop", "delete", "pod", "low")
	apply(t, alice, of("highest", "vital", "200m"))
	runs("highest")
	left := kubectl(t, alice, "-n", "shop", "get", "pods", "-l", "app in (meek, high)", "-o", "name")
	if len(strings.Fields(left)) != 1 {
		t.Errorf("of two that matter less there is %s", instead(left))
	}
	kubectl(t, alice, "-n", "shop", "delete", "pod", "-l", "app in (meek, high, highest)")
}

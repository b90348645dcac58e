//go:build lab

package e2e

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/test/lab"
)

// ownersWorkComesFirst: the cgroup of guests stands beside that of the owner's pods and runs when nothing beside it wants to, which the kubelet leaves
// so, and a guest ends first when memory runs out. inside runs a tool in the guest silent, which is in namespace.
func ownersWorkComesFirst(t *testing.T, alice, bob *lab.Laptop, namespace string, inside func(...string) (string, error)) {
	apply(t, alice, solo("asks", "kith-bob")) // a guest that is burstable
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=asks")
	defer kubectl(t, alice, "-n", "shop", "delete", "pod", "asks")
	apply(t, bob, strings.Replace(solo("owners", "bob"), "namespace: shop", "namespace: default", 1))
	waitReady(t, bob, 1, "-n", "default", "-l", "app=owners")
	defer kubectl(t, bob, "-n", "default", "delete", "pod", "owners")
	// idle are what the cgroups say that a pod is in, the pod's first, up to the laptop's own.
	idle := func(namespace, name string) (words, path string) {
		t.Helper()
		uid := kubectl(t, bob, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
		out, _, err := bob.Exec(t.Context(), "sh", "-c", `
			for all in /sys/fs/cgroup/cpu /sys/fs/cgroup; do [ ! -d "$all" ] || break; done
			dir=$(find "$all" -type d -name "pod$1") && echo "$dir" && while [ "$dir" != "$all" ]; do cat "$dir/cpu.idle"; dir=${dir%/*}; done`, "idle", uid)
		if err != nil {
			t.Fatal(err)
		}
		path, words, _ = strings.Cut(strings.TrimSpace(out), "\n")
		return strings.Join(strings.Fields(words), " "), path
	}
	if words, path := idle(namespace, "silent"); words != "0 1" || !strings.Contains(path, "/kubepods-guests/pod") {
		t.Errorf("the guest is in %s: %s", path, words)
	}
	if words, path := idle("default", "owners"); strings.Contains(words, "1") || !strings.Contains(path, "/kubepods/burstable/pod") {
		t.Errorf("the owner's pod is in %s: %s", path, words)
	}
	burstableWeighsWithoutGuests(t, bob)
	if out, err := inside("cat", "/proc/1/oom_score_adj"); err != nil || strings.TrimSpace(out) != "1000" {
		t.Errorf("the guest's oom_score_adj: %s, %v", out, err)
	}
	own, err := bob.Kubectl(t.Context(), "-n", "default", "exec", "owners", "--", "/app", "cat", "/proc/1/oom_score_adj")
	if err != nil || strings.TrimSpace(own) == "1000" {
		t.Errorf("the owner's oom_score_adj: %s, %v", own, err)
	}
}

// burstableWeighsWithoutGuests: the owner's burstable pods weigh together what they ask for, without what guests do, who are not among them.
func burstableWeighsWithoutGuests(t *testing.T, bob *lab.Laptop) {
	t.Helper()
	out := kubectl(t, bob, "get", "pod", "-A", "-o",
		`go-template={{range .items}}{{if eq .status.qosClass "Burstable"}}{{or .spec.runtimeClassName "-"}}{{range .spec.containers}} {{with .resources.requests}}{{with .cpu}}{{.}}{{end}}{{end}}{{end}}{{"\n"}}{{end}}{{end}}`)
	var own, guests int64
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		for _, cpu := range words[1:] {
			if n := resource.MustParse(cpu); strings.HasPrefix(words[0], "kith-guest") {
				guests += n.MilliValue()
			} else {
				own += n.MilliValue()
			}
		}
	}
	shares, _, err := bob.Exec(t.Context(), "cat", "/sys/fs/cgroup/cpu/kubepods/burstable/cpu.shares")
	if err != nil { // cgroups v2
		t.Logf("not looked at: %v", err)
		return
	}
	if got, want := strings.TrimSpace(shares), strconv.FormatInt(max(2, own*1024/1000), 10); guests == 0 || got != want {
		t.Errorf("the owner's burstable pods weigh %s, want %s; they ask for %dm, and guests for %dm:\n%s", got, want, own, guests, out)
	}
}

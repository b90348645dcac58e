package guests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/qos"

	"kith.dev/engine/network"
)

// The cgroup of guests is one that runs when nothing beside it does, before and after pods are in it, and what is beside it is left alone.
func TestGuestsYieldToWhateverIsBesideThem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("cgroups are root's")
	}
	root := fmt.Sprintf("/kith-test-%d", os.Getpid())
	group := func(path string, r *cgroups.Resources) (dir string) {
		t.Helper()
		r.SkipDevices = true
		g, err := manager.New(&cgroups.Cgroup{Path: path, Resources: r})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Destroy() })
		if err := g.Apply(-1); err != nil {
			t.Fatal(err)
		}
		if err := g.Set(r); err != nil {
			t.Fatal(err)
		}
		if cgroups.IsCgroup2UnifiedMode() {
			return g.Path("")
		}
		return g.Path("cpu")
	}
	weight, normal, least, shares := "cpu.shares", "1024", "2", cgroups.Resources{CpuShares: 512}
	if cgroups.IsCgroup2UnifiedMode() {
		weight, normal, least, shares = "cpu.weight", "100", "1", cgroups.Resources{CpuWeight: 20}
	}
	group(root, &cgroups.Resources{})
	owner := group(root+"/kubepods", &cgroups.Resources{})
	if err := Yield(root); err != nil {
		t.Fatal(err)
	}
	is := func(dir, file, want string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, file))
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s of %s is %q, %v, want %s", file, filepath.Base(dir), got, err, want)
		}
	}
	all := filepath.Join(filepath.Dir(owner), Cgroup)
	is(all, "cpu.idle", "1")
	pod := group(root+"/"+Cgroup+"/pod1", &shares) // as the kubelet makes it, with a weight among guests
	if err := Yield(root); err != nil {            // the engine started again
		t.Fatal(err)
	}
	is(all, "cpu.idle", "1")
	is(pod, "cpu.idle", "0")
	is(owner, "cpu.idle", "0")
	is(owner, weight, normal)

	yields, err := manager.New(&cgroups.Cgroup{Path: root + "/" + Cgroup, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = yields.Destroy() })
	if err := yields.Set(&cgroups.Resources{SkipDevices: true, CPUIdle: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	if err := yields.Set(leastWeight()); err != nil { // where the kernel has no cpu.idle
		t.Fatal(err)
	}
	is(all, weight, least)
}

// The kubelet tells guests by the RuntimeClasses that they have, and has the kernel end them first, whatever they asked for.
func TestGuestsEndFirstWhenMemoryRunsOut(t *testing.T) {
	all := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: all, Limits: all}}}}}
	for class, guest := range map[string]bool{
		"": false, network.NVIDIARuntime: false, "kith": false, network.GuestRuntime: true, network.GuestNVIDIARuntime: true,
	} {
		p := pod.DeepCopy()
		if class != "" {
			p.Spec.RuntimeClassName = &class
		}
		if got := qos.GetContainerOOMScoreAdjust(p, &p.Spec.Containers[0], 8<<30); (got == 1000) != guest {
			t.Errorf("RuntimeClass %q: %d", class, got)
		}
	}
}

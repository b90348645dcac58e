// Package guests has guests, pods of other clusters, come after the owner's work. The engine calls it before the kubelet runs, which puts the pods of
// guests into the cgroup that it makes (engine/patches/k8s.io/kubernetes/guests-yield.patch). It must never write to a cgroup that others made.
package guests

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Cgroup is the cgroup of guests, under the one that the kubelet is given. It stands beside kubepods, that of all other pods, and not below it: a
// cgroup has its weight against those beside it alone, and kubepods weighs as much as the machine has processors. Its name begins as that one's does: the
// kubelet has what it measures found by that.
const Cgroup = "kubepods-guests"

// Yield makes the cgroup of guests under root, and has it run when nothing beside it wants to. A kernel older than 5.15 knows no such cgroups; there it
// gets the least weight, which is a hundredth of what a cgroup has that nobody gave one.
func Yield(root string) error {
	group, err := manager.New(&cgroups.Cgroup{Path: path.Join("/", root, Cgroup), Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return fmt.Errorf("cgroup of guests: %w", err)
	}
	if err := group.Apply(-1); err != nil {
		return fmt.Errorf("make the cgroup of guests: %w", err)
	}
	err = group.Set(idle())
	if errors.Is(err, fs.ErrNotExist) {
		err = group.Set(leastWeight())
	}
	if err != nil {
		return fmt.Errorf("have the cgroup of guests yield to all others: %w", err)
	}
	return nil
}

func idle() *cgroups.Resources { return &cgroups.Resources{SkipDevices: true, CPUIdle: new(int64(1))} }

// leastWeight is the smallest weight, of cgroups v1 and of v2.
func leastWeight() *cgroups.Resources {
	return &cgroups.Resources{SkipDevices: true, CpuShares: 2, CpuWeight: 1}
}

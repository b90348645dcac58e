package fence

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// astray is what was last found to have addresses that are not of the cluster's range of pods.
type astray struct {
	mu      sync.Mutex
	list    []Astray
	changed func([]Astray)
}

// OnAstray calls changed with the nodes and pods whose addresses are outside the configured pod range, whenever that list changes; it is empty
// when all are inside again. Call it before SetupWithManager.
func (f *Fence) OnAstray(changed func([]Astray)) { f.astray.changed = changed }

// Astray is that list as last found.
func (f *Fence) Astray() []Astray {
	f.astray.mu.Lock()
	defer f.astray.mu.Unlock()
	return slices.Clone(f.astray.list)
}

// Pods is the configured pod range.
func (f *Fence) Pods() netip.Prefix { return f.cfg.Pods }

// Compare looks whether nodes and pods have addresses of the range.
func (f *Fence) Compare(nodes []corev1.Node, pods []corev1.Pod) {
	list := OutOfRange(f.cfg.Pods, nodes, pods)
	f.astray.mu.Lock()
	is := slices.Equal(f.astray.list, list)
	f.astray.list = list
	f.astray.mu.Unlock()
	if is {
		return
	}
	for _, a := range list {
		f.cfg.Log.Error("podRange is wrong: guests with other addresses have no network, and no new ones are taken in", "podRange", f.cfg.Pods, "found", a.String())
	}
	if f.astray.changed != nil {
		f.astray.changed(list)
	}
}

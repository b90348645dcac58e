// Command containerd-shim-runc-v2 is upstream's, which gives memory back once its pod runs. There is one for each pod.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin"
	"github.com/containerd/containerd/v2/pkg/shim"

	"kith.dev/core/base/memory"
	"kith.dev/core/base/sysmon"
)

func main() {
	_ = sysmon.Plain() // not allowed: containerd was not allowed more slack either
	go func() { _ = memory.Tidy(context.Background(), memory.Shim) }()
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}

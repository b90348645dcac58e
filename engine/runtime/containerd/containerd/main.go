// Command containerd is upstream's, which gives memory back and sleeps less exactly while it has nothing to do.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd/command"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"

	"kith.dev/core/base/memory"
	"kith.dev/core/base/sysmon"
)

// monitorSlack is twice that of kithd, through which packets pass. What containerd starts may have it, too, and shims see to it that containers do not.
const monitorSlack = time.Millisecond

func main() {
	_ = sysmon.Slacken(monitorSlack) // not allowed: it wakes up more often
	go func() { _ = memory.Tidy(context.Background(), memory.Containerd) }()
	if err := command.App().Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "containerd: %s\n", err)
		os.Exit(1)
	}
}

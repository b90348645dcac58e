// Command containerd is upstream's, which gives memory back while it has nothing to do.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/cmd/containerd/command"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"

	"kith.dev/core/base/memory"
)

func main() {
	go func() { _ = memory.Tidy(context.Background(), memory.Containerd) }()
	if err := command.App().Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "containerd: %s\n", err)
		os.Exit(1)
	}
}

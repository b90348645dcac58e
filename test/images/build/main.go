// Command build writes the tests' container images as archives into a directory, build/images unless told otherwise.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"kith.dev/test/images"
)

func main() {
	dir := "build/images"
	if len(os.Args) == 2 {
		dir = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	paths, err := images.Build(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, p := range paths {
		fmt.Println(p)
	}
}

// Command images writes the images that upstream's end-to-end tests run in their pods as one archive, without a registry:
// the programs are built from the sources of Kubernetes (scripts/conformance.sh does), the tools around them are this machine's.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	programs := flag.String("programs", "", "`directory` of agnhost, nnp, regression-issue-74839 and pause, static")
	kubernetes := flag.String("kubernetes", "", "`directory` of the module k8s.io/kubernetes")
	mcs := flag.Bool("mcs", false, "those of the tests of Multi-Cluster Services instead, which need nothing that is built")
	out := flag.String("out", "", "`archive` to write")
	flag.Parse()
	of := func() ([]image, error) { return images(*programs, filepath.Join(*kubernetes, "test", "images")) }
	if *mcs {
		of = mcsImages
	}
	all, err := of()
	if err == nil {
		err = write(all, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	componentversion "k8s.io/component-base/version"

	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/engine/k3s"
)

// k3sMain does what `k3s ARGS…` does, as far as a stand-in does it (package k3s).
func k3sMain(args []string) error {
	if len(args) == 0 {
		return k3sUsage(os.Stdout)
	}
	switch args[0] {
	case "kubectl":
		if _, set := os.LookupEnv("KUBECONFIG"); !set {
			os.Setenv("KUBECONFIG", k3sconfig.Kubeconfig)
		}
		kubectl(args)
	case "--version", "-v":
		fmt.Printf("k3s version %s (kith-k8s %s)\ngo version %s\n", k3sVersion(), version, runtime.Version())
		return nil
	case "--help", "-h", "help":
		return k3sUsage(os.Stdout)
	case "server":
		c, err := k3s.Parse(args[1:])
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		hostname, err := os.Hostname()
		if err != nil {
			return err
		}
		if err := c.Complete(program, strings.ToLower(hostname)); err != nil {
			return err
		}
		if err := componentversion.SetDynamicVersion(k3sVersion()); err != nil {
			return err
		}
		if err := k3s.Lay(c); err != nil {
			return fmt.Errorf("data-dir: %w; run as root", err)
		}
		return runServer(c)
	}
	return fmt.Errorf("%q is a command of K3s which this stand-in does not have: it has server, kubectl and --version", args[0])
}

func k3sUsage(w io.Writer) error {
	_, err := fmt.Fprint(w, "kith-k8s standing in for K3s, for tests: k3s server [FLAGS], k3s kubectl, k3s --version\n")
	return err
}

// k3sVersion is Kubernetes' version as K3s writes it.
func k3sVersion() string { return kubernetesVersion() + "+k3s1" }

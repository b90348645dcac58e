package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/engine/config"
)

// kubectl runs as kubectl and does not return.
func kubectl(args []string) {
	if err := findCluster(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl: no way to this laptop's cluster:", err)
		code := 1
		if said, is := errors.AsType[*api.Error](err); is {
			code = said.Code.ExitCode()
		}
		os.Exit(code)
	}
	os.Args = args
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err) // prints it as kubectl does, and exits
	}
	os.Exit(0)
}

// askTime bounds how long kithd is asked for a kubeconfig.
const askTime = 10 * time.Second

// clusterless are kubectl's commands that need no cluster.
var clusterless = []string{"completion", "config", "help", "kustomize", "options", "plugin"}

// findCluster has kubectl find this laptop's cluster where nobody names another: by the engine's own kubeconfig, if the caller may read it;
// else by one of the caller's that kithd gives to members of the group kith. That one is kept nowhere. The caller's own kubeconfig comes
// last, as it may lead to any cluster.
func findCluster(args []string) error {
	if _, set := os.LookupEnv("KUBECONFIG"); set || elsewhere(args) {
		return nil
	}
	c := config.Default()
	_ = c.Complete("/", "kubectl") // for the default path alone
	if f, err := os.Open(c.WriteKubeconfig); err == nil {
		f.Close()
		return os.Setenv("KUBECONFIG", c.WriteKubeconfig)
	}
	if len(args) == 0 || slices.Contains(clusterless, args[0]) { // behind a flag such a word may be the flag's value
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	kithd := client.New(client.DefaultSocket)
	defer kithd.Close()
	text, err := kithd.Kubeconfig(ctx)
	if err != nil {
		if args[0] == "version" { // kubectl's own it tells in any case
			return nil
		}
		if home, _ := os.UserHomeDir(); home != "" {
			if _, missing := os.Stat(home + "/.kube/config"); missing == nil {
				return nil
			}
		}
		return err
	}
	return inMemory(text)
}

// elsewhere reports whether arguments of kubectl say where the cluster is: a file, an address, or what is in the caller's own kubeconfig.
// --user is not among them: with some commands it is whom a role is given.
func elsewhere(args []string) bool {
	for _, arg := range args {
		if arg == "--" { // the rest is for what it starts in a pod
			return false
		}
		flag, _, _ := strings.Cut(arg, "=")
		if slices.Contains([]string{"--kubeconfig", "--server", "-s", "--context", "--cluster"}, flag) {
			return true
		}
	}
	return false
}

// inMemory has kubectl read a kubeconfig that is in no file: it holds a key.
func inMemory(text []byte) error {
	fd, err := unix.MemfdCreate("kubeconfig", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory for the kubeconfig: %w", err)
	}
	if _, err := os.NewFile(uintptr(fd), "kubeconfig").Write(text); err != nil {
		return fmt.Errorf("write the kubeconfig into memory: %w", err)
	}
	return os.Setenv("KUBECONFIG", fmt.Sprintf("/proc/self/fd/%d", fd))
}

package main

import (
	"os"

	"k8s.io/component-base/cli"
	componentversion "k8s.io/component-base/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"kith.dev/engine/config"
)

// kubectl runs as kubectl and does not return. Without KUBECONFIG it uses the engine's kubeconfig, if the
// caller may read it; else kubectl's own default.
func kubectl(args []string) {
	if _, set := os.LookupEnv("KUBECONFIG"); !set {
		c := config.Default()
		_ = c.Complete("/", "kubectl") // for the default path alone
		if f, err := os.Open(c.WriteKubeconfig); err == nil {
			f.Close()
			os.Setenv("KUBECONFIG", c.WriteKubeconfig)
		}
	}
	os.Args = args
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err) // prints it as kubectl does, and exits
	}
	os.Exit(0)
}

func kubernetesVersion() string { return componentversion.Get().GitVersion }

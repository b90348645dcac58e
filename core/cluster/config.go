package cluster

import (
	"log/slog"

	"k8s.io/client-go/rest"
)

// Config leads to the cluster of a kubeconfig, or to the one that this process runs in as a pod when path is empty, for whoever needs it before
// there is an Engine.
func Config(path, context string) (*rest.Config, error) {
	k, err := NewKubeconfig(KubeconfigConfig{Path: path, Context: context, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return k.RESTConfig(), nil
}

package cluster

import (
	"log/slog"

	"k8s.io/client-go/rest"
)

// Config is the client configuration of the kubeconfig at path; with an empty path, of the cluster in which this process runs as a pod. It
// is for callers that need one before there is an Engine.
func Config(path, context string) (*rest.Config, error) {
	k, err := NewKubeconfig(KubeconfigConfig{Path: path, Context: context, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return k.RESTConfig(), nil
}

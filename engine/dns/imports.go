package dns

import (
	"context"
	"log/slog"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

// importsDefinition is that of ServiceImports (KEP-1645), by which services that clusters have in common have names.
const importsDefinition = "serviceimports.multicluster.x-k8s.io"

// importsDefined gives a channel that is closed when the cluster has ServiceImports: kithd defines them when the owner has services in common with a
// peer. It never is when ctx ends before.
func (o Options) importsDefined(ctx context.Context, log *slog.Logger) <-chan struct{} {
	there := make(chan struct{})
	go func() {
		if err := o.awaitImports(ctx); err == nil {
			close(there)
		} else if ctx.Err() == nil {
			log.Warn("services of peers have no names", "err", err)
		}
	}()
	return there
}

func (o Options) awaitImports(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, importsDefinition).String()
	list := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return client.CustomResourceDefinitions().List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return client.CustomResourceDefinitions().Watch(ctx, options)
		},
	}
	_, err = watchtools.UntilWithSync(ctx, list, &apiextensionsv1.CustomResourceDefinition{}, nil, func(e watch.Event) (bool, error) {
		crd, is := e.Object.(*apiextensionsv1.CustomResourceDefinition)
		return is && e.Type != watch.Deleted && established(crd), nil
	})
	return err
}

// established reports whether the API server serves a kind.
func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

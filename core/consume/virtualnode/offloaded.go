package virtualnode

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/wire/codec"
)

const resource = "offloadedpods"

// offloadedPods is the client for OffloadedPods at the peer.
type offloadedPods struct{ rest rest.Interface }

// kithCodec is of all peers.
var kithCodec = sync.OnceValues(func() (*codec.Codec, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return codec.New(scheme), nil
})

func newOffloadedPods(api *remote.API) (*offloadedPods, error) {
	codecs, err := kithCodec()
	if err != nil {
		return nil, err
	}
	client, err := api.Group(v1alpha1.GroupVersion, codecs)
	return &offloadedPods{rest: client}, err
}

func (c *offloadedPods) get(ctx context.Context, namespace, name string) (*v1alpha1.OffloadedPod, error) {
	out := &v1alpha1.OffloadedPod{}
	return out, c.rest.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx).Into(out)
}

func (c *offloadedPods) create(ctx context.Context, pod *v1alpha1.OffloadedPod) error {
	return c.rest.Post().Namespace(pod.Namespace).Resource(resource).Body(pod).Do(ctx).Error()
}

// update fails with a conflict unless pod carries the latest resource version.
func (c *offloadedPods) update(ctx context.Context, pod *v1alpha1.OffloadedPod) error {
	return c.rest.Put().Namespace(pod.Namespace).Resource(resource).Name(pod.Name).Body(pod).Do(ctx).Error()
}

// setGrace writes how many seconds the containers get to end.
func (c *offloadedPods) setGrace(ctx context.Context, pod *v1alpha1.OffloadedPod, seconds int64) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID, // refused when it is another one by now
		"annotations": map[string]string{v1alpha1.AnnotationGrace: strconv.FormatInt(seconds, 10)},
	}})
	if err != nil {
		return err
	}
	return c.rest.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource(resource).Name(pod.Name).Body(patch).Do(ctx).Error()
}

func (c *offloadedPods) delete(ctx context.Context, pod *v1alpha1.OffloadedPod) error {
	return c.rest.Delete().Namespace(pod.Namespace).Resource(resource).Name(pod.Name).
		Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}).Do(ctx).Error()
}

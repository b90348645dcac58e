package hosting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Stock is what a consumer keeps in this cluster's API server: it costs the owner memory, here and there, and disk.
type Stock struct {
	Objects, Bytes int64
}

func (s Stock) over(most Stock) bool { return s.Objects > most.Objects || s.Bytes > most.Bytes }

// mostFor is the most a consumer may keep: many times what the pods granted to it need.
func mostFor(limit corev1.ResourceList) Stock {
	pods := limit[corev1.ResourcePods]
	n := min(max(pods.Value(), 0), 100_000)
	return Stock{Objects: 1000 + 10*n, Bytes: 16<<20 + n*(32<<10)}
}

// stock estimates what a consumer keeps by what it sends, as if nothing ever went or were replaced, and has it counted
// when the estimate says that there is no room. So a write costs an addition, and an estimate refuses nobody for longer
// than until the next count.
type stock struct {
	mu      sync.Mutex
	about   Stock
	most    Stock
	counted time.Time     // zero: never
	took    time.Duration // the counting
}

// admit is nil when there is room for what the request brings.
func (s *stock) admit(ctx context.Context, r *http.Request, consumerID string, access Access, limits Limits) error {
	more := Stock{Bytes: r.ContentLength}
	if more.Bytes < 0 {
		more.Bytes = limits.Body
	}
	if r.Method == http.MethodPost {
		more.Objects = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := Stock{s.about.Objects + more.Objects, s.about.Bytes + more.Bytes}
	// Counting a lot takes a while, so who keeps a lot is counted less often.
	if next.over(s.most) && time.Since(s.counted) > max(limits.Recount, 10*s.took) {
		began := time.Now()
		has, most, err := access.Kept(ctx, consumerID)
		if err != nil { // it may name what is not the consumer's
			return errors.New("what you keep here cannot be counted now, try again")
		}
		s.about, s.most, s.counted, s.took = has, most, time.Now(), time.Since(began)
		next = Stock{has.Objects + more.Objects, has.Bytes + more.Bytes}
	}
	if next.over(s.most) {
		return fmt.Errorf("%d objects with %d bytes of yours are kept here; the contract lets you keep %d objects with %d bytes", s.about.Objects, s.about.Bytes, s.most.Objects, s.most.Bytes)
	}
	s.about = next
	return nil
}

// keptKinds are what consumers write.
var keptKinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion.WithKind("OffloadedPodList"),
	corev1.SchemeGroupVersion.WithKind("ServiceList"),
	corev1.SchemeGroupVersion.WithKind("ConfigMapList"),
	corev1.SchemeGroupVersion.WithKind("SecretList"),
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSliceList"},
}

// Kept counts what the consumer keeps in its twin namespaces, page by page. It is the Door's Access.
func (h *Host) Kept(ctx context.Context, consumerID string) (has, most Stock, err error) {
	twins, limit := h.contracts.kept(consumerID)
	most = mostFor(limit)
	for _, namespace := range twins {
		for _, kind := range keptKinds {
			if err := h.count(ctx, namespace, kind, &has); err != nil {
				return has, most, fmt.Errorf("counting in namespace %s: %w", namespace, err)
			}
		}
	}
	return has, most, nil
}

func (h *Host) count(ctx context.Context, namespace string, kind schema.GroupVersionKind, has *Stock) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	for {
		err := h.contracts.live.List(ctx, list, client.InNamespace(namespace), client.Limit(32), client.Continue(list.GetContinue()))
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy || kind.Group == v1alpha1.GroupVersion.Group {
				has.Objects++
				has.Bytes += sizeOf(list.Items[i].Object)
			}
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// sizeOf is about how long v is as JSON.
func sizeOf(v any) int64 {
	switch v := v.(type) {
	case map[string]any:
		n := int64(2)
		for key, value := range v {
			n += int64(len(key)) + 4 + sizeOf(value)
		}
		return n
	case []any:
		n := int64(2)
		for _, value := range v {
			n += 1 + sizeOf(value)
		}
		return n
	case string:
		return int64(len(v)) + 2
	default:
		return 8
	}
}

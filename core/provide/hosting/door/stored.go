package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire"
)

// Stored is what a consumer keeps in this cluster's API server: it costs the owner memory, here and there, and disk.
type Stored struct {
	Objects, Bytes int64
}

func (s Stored) over(most Stored) bool { return s.Objects > most.Objects || s.Bytes > most.Bytes }

// mostFor is the most a consumer may keep: many times what the pods granted to it need.
func mostFor(limit corev1.ResourceList) Stored {
	pods := limit[corev1.ResourcePods]
	n := min(max(pods.Value(), 0), 100_000)
	return Stored{Objects: 4000 + 10*n, Bytes: 16<<20 + n*(32<<10)}
}

// estimate is what a consumer keeps, by what it sends, as if nothing ever went or were replaced; it has that counted
// when the estimate says that there is no room. So a write costs an addition, and an estimate refuses nobody for longer
// than until the next count.
type estimate struct {
	mu      sync.Mutex
	about   Stored
	most    Stored
	counted time.Time     // zero: never
	took    time.Duration // the counting
}

// admit is nil when there is room for what the request brings, which weighs so much besides its bytes.
func (s *estimate) admit(ctx context.Context, r *apiproxy.Request, weight int64, d *Door) error {
	more := Stored{Bytes: int64(len(r.Body)) + weight}
	if r.HTTP.Method == http.MethodPost {
		more.Objects = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := Stored{s.about.Objects + more.Objects, s.about.Bytes + more.Bytes}
	// Counting a lot takes a while, so who keeps a lot is counted less often.
	if next.over(s.most) && time.Since(s.counted) > max(d.Recount, 10*s.took) {
		began := time.Now()
		has, most, err := d.access.Kept(ctx, r.ID)
		if err != nil { // it may name what is not the consumer's
			return errors.New("what you keep here cannot be counted now, try again")
		}
		s.about, s.most, s.counted, s.took = has, most, time.Now(), time.Since(began)
		next = Stored{has.Objects + more.Objects, has.Bytes + more.Bytes}
	}
	if next.over(s.most) {
		return fmt.Errorf("%d objects with %d bytes of yours are kept here; the contract lets you keep %d objects with %d bytes", s.about.Objects, s.about.Bytes, s.most.Objects, s.most.Bytes)
	}
	s.about = next
	return nil
}

// severally is how many namespaces are counted one by one: more are together less work, though others' objects are read with them.
const severally = 16

// Counter counts what consumers keep here.
type Counter struct {
	Contracts *grants.Contracts
	Raw       rest.Interface // of this cluster's API server, any path
}

// Kept counts what the consumer keeps in its twin namespaces, page by page. It is the Door's Access.
func (h *Counter) Kept(ctx context.Context, consumerID string) (has, most Stored, err error) {
	twins, limit := h.Contracts.GrantedTo(consumerID)
	most = mostFor(limit)
	mine := map[string]bool{}
	for _, namespace := range twins {
		mine[namespace] = true
	}
	if len(twins) > severally {
		twins = []string{metav1.NamespaceAll}
	}
	for _, namespace := range twins {
		for _, kind := range kinds.Written() {
			if err := h.count(ctx, namespace, kind, mine, &has); err != nil {
				return has, most, fmt.Errorf("counting %s: %w", kind.Resource.Resource, err)
			}
		}
	}
	return has, most, nil
}

// page is how many objects are counted at once: each may have more than a megabyte.
const page = "8"

// count reads the objects as text: decoded they would take many times as much.
func (h *Counter) count(ctx context.Context, namespace string, kind *kinds.Kind, mine map[string]bool, has *Stored) error {
	for next, first := "", true; first || next != ""; first = false {
		r := h.Raw.Get().AbsPath(kind.Path(namespace)...).SetHeader("Accept", runtime.ContentTypeJSON).Param("limit", page)
		if !kind.Custom() { // of which all are the consumer's
			r.Param("labelSelector", v1alpha1.LabelManagedBy+"="+v1alpha1.ManagedBy)
		}
		if next != "" {
			r.Param("continue", next)
		}
		text, err := r.Do(ctx).Raw()
		if err != nil {
			return err
		}
		rest, err := wire.Each(text, "items", func(object []byte) error {
			if namespace == metav1.NamespaceAll && !mine[wire.Text(object, "metadata", "namespace")] {
				return nil
			}
			has.Objects++
			has.Bytes += int64(len(object))
			if kind.Check != nil {
				weight, _ := kind.Check(runtime.ContentTypeJSON, object)
				has.Bytes += weight
			}
			return nil
		})
		if err != nil {
			return err
		}
		next = wire.Text(rest, "metadata", "continue")
	}
	return nil
}

package hosting

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/guests"
)

const (
	// usageFor is how long a kubelet's answer is cached for all consumers: it measures its containers every ten seconds.
	usageFor     = 5 * time.Second
	usageTimeout = 10 * time.Second
	// maxUsage bounds what is read of one kubelet; a pod is some 2 KiB.
	maxUsage = 32 << 20
)

// usage asks the kubelets of this cluster.
type usage struct {
	nodes   rest.Interface
	reads   singleflight.Group
	answers *cache.Expiring // by node and form, or contract and form
}

// GetUsage answers GET /kith/v2/usage?contract=ID&form=metrics/resource|stats/summary with the resource use of the guests under the contract
// only, in the kubelet's format, with the names of their namespaces at home.
func (h *Host) GetUsage(w http.ResponseWriter, r *http.Request, consumerID string) {
	form := r.URL.Query().Get("form")
	body, err := h.usageOf(r, form, consumerID)
	if err != nil {
		door.Answer(h.log, w, nil, err)
		return
	}
	w.Header().Set("Content-Type", usageForms[form].contentType)
	_, _ = w.Write(body) // the caller is gone when this fails
}

// usageForms are the kubelet's endpoints, each with a function that filters the answers of all kubelets for a consumer's guests. These are given
// with their namespaces at home.
var usageForms = map[string]struct {
	contentType string
	own         func(bodies [][]byte, homes map[types.NamespacedName]string) ([]byte, error)
}{
	remote.UsageMetrics: {string(expfmt.NewFormat(expfmt.TypeTextPlain)), ownMetrics},
	remote.UsageSummary: {"application/json", ownSummary},
}

func (h *Host) usageOf(r *http.Request, form, consumerID string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), usageTimeout)
	defer cancel()
	if usageForms[form].own == nil {
		return nil, api.Invalid("form", form, remote.UsageMetrics+" or "+remote.UsageSummary)
	}
	t, err := h.Contracts.Held(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		return nil, err
	}
	// Picking a consumer's guests out of what all kubelets say takes longer than asking for it.
	return h.usage.serve(ctx, "guests of "+t.Contract+"/"+form, func(ctx context.Context) ([]byte, error) {
		nodes, homes, err := h.guestsUnder(ctx, t.Contract)
		if err != nil {
			return nil, err
		}
		bodies, err := h.usage.of(ctx, nodes, form)
		if err != nil {
			return nil, err
		}
		return usageForms[form].own(bodies, homes)
	})
}

// guestsUnder are the guests under a contract, with their home namespaces, and the nodes they run on.
func (h *Host) guestsUnder(ctx context.Context, contract string) (nodes []string, own map[types.NamespacedName]string, err error) {
	seen, own := map[string]bool{}, map[types.NamespacedName]string{}
	for _, tw := range h.Contracts.TwinsOf(contract) {
		var pods corev1.PodList
		err := h.client.List(ctx, &pods, client.InNamespace(tw.Name), guests.Selector, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, nil, fmt.Errorf("listing guests: %w", err)
		}
		for i := range pods.Items {
			if node := pods.Items[i].Spec.NodeName; node != "" {
				seen[node] = true
				own[client.ObjectKeyFromObject(&pods.Items[i])] = tw.Home
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), own, nil
}

// Uses is what each guest uses, by namespace and name here, as this cluster's kubelets say.
func (h *Host) Uses(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	var pods corev1.PodList
	if err := h.client.List(ctx, &pods, guests.Selector, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing guests: %w", err)
	}
	nodes, all := map[string]bool{}, map[types.NamespacedName]bool{}
	for i := range pods.Items {
		if node := pods.Items[i].Spec.NodeName; node != "" {
			nodes[node], all[client.ObjectKeyFromObject(&pods.Items[i])] = true, true
		}
	}
	bodies, err := h.usage.of(ctx, slices.Sorted(maps.Keys(nodes)), remote.UsageSummary)
	if err != nil {
		return nil, err
	}
	return uses(bodies, all)
}

// uses adds up what kubelets said of these pods.
func uses(bodies [][]byte, pods map[types.NamespacedName]bool) (map[types.NamespacedName]corev1.ResourceList, error) {
	list := map[types.NamespacedName]corev1.ResourceList{}
	for _, body := range bodies {
		if body == nil {
			continue
		}
		var summary struct {
			Pods []struct {
				PodRef     types.NamespacedName `json:"podRef"`
				Containers []remote.Use         `json:"containers"`
			} `json:"pods"`
		}
		if err := json.Unmarshal(body, &summary); err != nil {
			return nil, fmt.Errorf("a kubelet's statistics: %w", err)
		}
		for _, pod := range summary.Pods {
			if pods[pod.PodRef] {
				list[pod.PodRef] = remote.Amounts(pod.Containers)
			}
		}
	}
	return list, nil
}

// of reads the form from all these nodes. One that does not answer is left out, unless none does.
func (u *usage) of(ctx context.Context, nodes []string, form string) ([][]byte, error) {
	bodies, errs := make([][]byte, len(nodes)), make([]error, len(nodes))
	var group errgroup.Group
	group.SetLimit(8)
	for i := range nodes {
		group.Go(func() error {
			bodies[i], errs[i] = u.read(ctx, nodes[i], form)
			return nil
		})
	}
	_ = group.Wait()
	if failed := errors.Join(errs...); failed != nil && !slices.ContainsFunc(bodies, func(b []byte) bool { return b != nil }) {
		return nil, failed
	}
	return bodies, nil
}

// read asks one kubelet.
func (u *usage) read(ctx context.Context, node, form string) ([]byte, error) {
	return u.serve(ctx, node+"/"+form, func(ctx context.Context) ([]byte, error) {
		stream, err := u.nodes.Get().Resource("nodes").Name(node).SubResource("proxy").Suffix(form).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the kubelet of node %s for %s: %w", node, form, err)
		}
		defer stream.Close()
		body, err := io.ReadAll(io.LimitReader(stream, maxUsage+1))
		if err == nil && len(body) > maxUsage {
			err = fmt.Errorf("it is longer than %d bytes", maxUsage)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of node %s: %w", form, node, err)
		}
		return body, nil
	})
}

// serve caches the result of make for the key for usageFor, for all callers.
func (u *usage) serve(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error) {
	body, err, _ := u.reads.Do(key, func() (any, error) {
		if known, ok := u.answers.Get(key); ok {
			return known, nil
		}
		// Not the caller's context: others wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
		defer cancel()
		body, err := make(ctx)
		if err == nil {
			u.answers.Set(key, body, usageFor)
		}
		return body, err
	})
	if err != nil {
		return nil, err
	}
	return body.([]byte), nil
}

// ownMetrics keeps of what kubelets said the metrics of these pods.
func ownMetrics(bodies [][]byte, homes map[types.NamespacedName]string) ([]byte, error) {
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	all := map[string]*dto.MetricFamily{}
	for _, body := range bodies {
		if body == nil {
			continue
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("a kubelet's metrics: %w", err)
		}
		for name, family := range families {
			own := slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool { return !rename(m, homes) })
			switch {
			case len(own) == 0:
			case all[name] == nil:
				family.Metric = own
				all[name] = family
			default:
				all[name].Metric = append(all[name].Metric, own...)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := encoder.Encode(all[name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// rename gives a metric of a guest its namespace at home, and says whether it is one.
func rename(m *dto.Metric, homes map[types.NamespacedName]string) bool {
	var namespace *dto.LabelPair
	var pod string
	for _, l := range m.Label {
		switch l.GetName() {
		case "namespace":
			namespace = l
		case "pod":
			pod = l.GetValue()
		}
	}
	if namespace == nil {
		return false
	}
	home, ours := homes[types.NamespacedName{Namespace: namespace.GetValue(), Name: pod}]
	if ours {
		namespace.Value = &home
	}
	return ours
}

// ownSummary keeps the statistics of these pods. They are passed on as they are, but for the pod's name and UID.
func ownSummary(bodies [][]byte, homes map[types.NamespacedName]string) ([]byte, error) {
	type object = map[string]json.RawMessage
	own := []object{}
	for _, body := range bodies {
		if body == nil {
			continue
		}
		var summary struct{ Pods []object }
		if err := json.Unmarshal(body, &summary); err != nil {
			return nil, fmt.Errorf("a kubelet's statistics: %w", err)
		}
		for _, pod := range summary.Pods {
			var ref struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			}
			if json.Unmarshal(pod["podRef"], &ref) != nil {
				continue
			}
			home, ours := homes[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
			if !ours {
				continue
			}
			ref.Namespace = home
			pod["podRef"], _ = json.Marshal(ref) // two strings
			own = append(own, pod)
		}
	}
	return json.Marshal(map[string]any{"pods": own})
}

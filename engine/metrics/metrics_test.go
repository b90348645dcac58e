package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics"
)

// cluster is a Server with a node alice, and kith-bob abroad, and what their kubelets were asked.
type cluster struct {
	*Server
	pods, nodes cache.Indexer

	mu    sync.Mutex
	asked []string
	says  map[string]func(ctx context.Context) ([]byte, error)
}

func newCluster(t *testing.T) *cluster {
	index := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	c := &cluster{pods: index(), nodes: index(), says: map[string]func(context.Context) ([]byte, error){}}
	c.Server = New(c.answer, corelisters.NewPodLister(c.pods), corelisters.NewNodeLister(c.nodes), slog.New(slog.DiscardHandler))
	c.node(t, "alice", corev1.ConditionTrue)
	c.node(t, "kith-bob", corev1.ConditionTrue)
	return c
}

func (c *cluster) answer(ctx context.Context, node string) ([]byte, error) {
	c.mu.Lock()
	c.asked = append(c.asked, node)
	says := c.says[node]
	c.mu.Unlock()
	return says(ctx)
}

func (c *cluster) wasAsked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := slices.Sorted(slices.Values(c.asked))
	c.asked = nil
	return asked
}

func (c *cluster) node(t *testing.T, name string, ready corev1.ConditionStatus) {
	t.Helper()
	c.says[name] = func(context.Context) ([]byte, error) { return []byte(summaryOf(name)), nil }
	err := c.nodes.Update(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"who": name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) pod(t *testing.T, namespace, name, node string, containers ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, name := range containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	if err := c.pods.Add(pod); err != nil {
		t.Fatal(err)
	}
}

// summaryOf is what the kubelet of a node says: a pod "of NODE" with a container that is known, one that is new, and the node.
func summaryOf(node string) string {
	return fmt.Sprintf(`{"node":{"nodeName":%[1]q,"cpu":{"time":"2026-11-22T07:00:00Z","usageNanoCores":500000000},"memory":{"workingSetBytes":1073741824}},
	"pods":[{"podRef":{"name":"of-%[1]s","uid":"of-%[1]s"},"containers":[
		{"name":"app","cpu":{"time":"2026-11-22T07:00:02Z","usageNanoCores":250000000,"usageCoreNanoSeconds":7},"memory":{"workingSetBytes":2097152}},
		{"name":"helper","cpu":{"time":"2026-11-22T07:00:01Z","usageNanoCores":1000000},"memory":{"workingSetBytes":1048576}},
		{"name":"new","cpu":{"time":"2026-11-22T07:00:02Z","usageCoreNanoSeconds":7},"memory":{"workingSetBytes":4096}}]}]}`, node)
}

func list(t *testing.T, s podMetrics, namespace string, options *metainternal.ListOptions) (names []string) {
	t.Helper()
	got, err := s.List(request.WithNamespace(t.Context(), namespace), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got.(*metrics.PodMetricsList).Items {
		names = append(names, m.Name)
	}
	return names
}

func TestAPodsUseIsThatOfItsContainers(t *testing.T) {
	c := newCluster(t)
	c.pod(t, "shop", "of-alice", "alice", "app", "helper")
	got, err := podMetrics{c.Server}.Get(request.WithNamespace(t.Context(), "shop"), "of-alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := got.(*metrics.PodMetrics)
	if len(m.Containers) != 2 || m.Containers[0].Usage.Cpu().String() != "250m" || m.Containers[1].Usage.Memory().String() != "1Mi" {
		t.Errorf("got %+v", m.Containers)
	}
	if want := time.Date(2026, 11, 22, 7, 0, 1, 0, time.UTC); !m.Timestamp.Equal(&metav1.Time{Time: want}) {
		t.Errorf("measured at %s, want that of the oldest, %s", m.Timestamp, want)
	}
	table, err := c.ConvertToTable(t.Context(), got, nil)
	if err != nil || fmt.Sprint(table.Rows[0].Cells) != "[of-alice 251m 3Mi 15s]" {
		t.Errorf("table: %v %v", table, err)
	}
}

// An autoscaler would take the part for the whole.
func TestAPodWithAContainerThatIsNotKnownYetIsLeftOut(t *testing.T) {
	c := newCluster(t)
	c.pod(t, "shop", "of-alice", "alice", "app", "new")
	if names := list(t, podMetrics{c.Server}, "shop", nil); len(names) != 0 {
		t.Errorf("listed: %v", names)
	}
	_, err := podMetrics{c.Server}.Get(request.WithNamespace(t.Context(), "shop"), "of-alice", nil)
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

// A peer is woken for what runs there, and for nothing else.
func TestOnlyTheNodesOfThePodsAskedForAreAsked(t *testing.T) {
	c := newCluster(t)
	c.pod(t, "shop", "of-alice", "alice", "app")
	c.pod(t, "play", "of-kith-bob", "kith-bob", "app")
	if names := list(t, podMetrics{c.Server}, "shop", nil); !slices.Equal(names, []string{"of-alice"}) {
		t.Errorf("listed: %v", names)
	}
	if asked := c.wasAsked(); !slices.Equal(asked, []string{"alice"}) {
		t.Errorf("asked: %v", asked)
	}
	byLabel, _ := labels.Parse("app=of-kith-bob")
	if names := list(t, podMetrics{c.Server}, "", &metainternal.ListOptions{LabelSelector: byLabel}); !slices.Equal(names, []string{"of-kith-bob"}) {
		t.Errorf("listed by label: %v", names)
	}
	if asked := c.wasAsked(); !slices.Equal(asked, []string{"kith-bob"}) {
		t.Errorf("asked: %v", asked)
	}
	byName := &metainternal.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "of-alice")}
	if names := list(t, podMetrics{c.Server}, "", byName); !slices.Equal(names, []string{"of-alice"}) {
		t.Errorf("listed by name: %v", names)
	}
}

func TestAnAnswerHoldsForSomeSecondsAndIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		slow := c.says["alice"]
		c.says["alice"] = func(ctx context.Context) ([]byte, error) { time.Sleep(time.Second); return slow(ctx) }
		c.pod(t, "shop", "of-alice", "alice", "app")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { list(t, podMetrics{c.Server}, "shop", nil) })
		}
		all.Wait()
		if asked := c.wasAsked(); len(asked) != 1 {
			t.Errorf("20 at once: asked %d times", len(asked))
		}
		time.Sleep(fresh / 2)
		list(t, podMetrics{c.Server}, "shop", nil)
		if asked := c.wasAsked(); len(asked) != 0 {
			t.Errorf("some seconds later: asked %d times", len(asked))
		}
		time.Sleep(fresh)
		list(t, podMetrics{c.Server}, "shop", nil)
		if asked := c.wasAsked(); len(asked) != 1 {
			t.Errorf("when it was stale: asked %d times", len(asked))
		}
		time.Sleep(fresh)
		c.read(t.Context(), nil)
		if len(c.readings) != 0 {
			t.Errorf("%d readings are kept for nobody", len(c.readings))
		}
	})
}

func TestNodesThatDoNotAnswerKeepNobodyFromSeeingTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.node(t, "kith-carol", corev1.ConditionUnknown)
		c.node(t, "kith-dave", corev1.ConditionTrue)
		c.says["kith-bob"] = func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
		c.says["kith-dave"] = func(context.Context) ([]byte, error) { return nil, errors.New("refused") }
		began := time.Now()
		got, err := nodeMetrics{c.Server}.List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		items := got.(*metrics.NodeMetricsList).Items
		if len(items) != 1 || items[0].Name != "alice" || items[0].Usage.Cpu().String() != "500m" || items[0].Usage.Memory().String() != "1Gi" {
			t.Errorf("got %+v", items)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("it took %s, want %s", took, patience)
		}
		if asked := strings.Join(c.wasAsked(), " "); asked != "alice kith-bob kith-dave" {
			t.Errorf("asked: %s", asked)
		}
		if _, err := (nodeMetrics{c.Server}).Get(t.Context(), "kith-dave", nil); !apierrors.IsNotFound(err) {
			t.Errorf("a node that refuses: %v", err)
		}
	})
}

func TestWhoGivesUpIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.says["alice"] = func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := (nodeMetrics{c.Server}).Get(ctx, "alice", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(patience)
		synctest.Wait()
	})
}

func TestWhatNoKubeletSaysIsNoUse(t *testing.T) {
	for _, body := range []string{"", "[]", `{"pods":7}`, `{"node":{"cpu":{"usageNanoCores":-1}}}`, `{"node":{"cpu":{"time":"noon"}}}`} {
		if _, _, err := parse([]byte(body)); err == nil {
			t.Errorf("%q was taken", body)
		}
	}
	node, pods, err := parse([]byte(`{"node":{"cpu":{"time":"2026-11-22T07:00:00Z"}},"pods":[{}]}`))
	if err != nil || !node.at.IsZero() || len(pods[""]) != 0 {
		t.Errorf("got %v %v %v", node, pods, err)
	}
	most := use{at: time.Now(), cpu: 1<<64 - 1, memory: 1<<64 - 1}.list()
	if most.Cpu().Sign() < 0 || most.Memory().Sign() < 0 {
		t.Errorf("more than a quantity holds became %v", most)
	}
}

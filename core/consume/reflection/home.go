package reflection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
)

// Home watches the objects that may have to be copied to peers, for all peers and namespaces together while any namespace has a twin: one watch per
// namespace could be thousands. It keeps only the metadata of ConfigMaps and Secrets, whose content is read when a peer needs it, and little
// more than the node of pods that run at home.
type Home struct {
	core kubernetes.Interface
	meta metadata.Interface

	mu      sync.Mutex
	watched *watched // nil when nobody wants it
}

// watched is everything at home.
type watched struct {
	informers map[*kinds.Kind]cache.SharedIndexInformer
	synced    []cache.DoneChecker // true once everything at home was seen
	stop      context.CancelFunc

	mu    sync.Mutex
	users []*member // never changed in place
}

// tell has everybody hear of a change. An informer has a goroutine or two and a buffer for each handler, so it has one of all peers.
func (w *watched) tell(k *kinds.Kind, was, is metav1.Object) {
	w.mu.Lock()
	users := w.users
	w.mu.Unlock()
	for _, m := range users {
		m.changed(k, was, is)
	}
}

// NewHome makes a Home from the configuration of the home API server.
func NewHome(cfg *rest.Config) (*Home, error) {
	binary := rest.CopyConfig(cfg)
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return nil, fmt.Errorf("reflection: client of the home API server: %w", err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reflection: client of the home API server: %w", err)
	}
	return &Home{core: core, meta: meta}, nil
}

// byReference finds the pods on a node that refer to a ConfigMap or Secret.
const byReference = "reference"

func referenceKey(node string, it item) string {
	return node + "/" + it.kind.Name + "/" + it.namespace + "/" + it.name
}

func indexReferences(o any) ([]string, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok || !needs(pod, nodeOfPeer(pod.Spec.NodeName)) || pod.Spec.NodeName == "" {
		return nil, nil
	}
	var keys []string
	for _, it := range references(pod) {
		keys = append(keys, referenceKey(nodeOfPeer(pod.Spec.NodeName), it))
	}
	return keys, nil
}

// strip drops what nobody here reads: managed fields, of a pod's status all but the phase and that it is ready, and of one that is at
// no peer its spec.
func strip(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	if pod, ok := o.(*corev1.Pod); ok {
		is := corev1.PodStatus{Phase: pod.Status.Phase}
		if healthy(pod) {
			is.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		pod.Status = is
		if !strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix) {
			pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		}
	}
	return o, nil
}

func (h *Home) watch() (*watched, error) {
	ctx, stop := context.WithCancel(context.Background()) // ended by the last user
	full := informers.NewSharedInformerFactoryWithOptions(h.core, 0, informers.WithTransform(strip))
	meta := metadatainformer.NewSharedInformerFactory(h.meta, 0)
	w := &watched{stop: stop, informers: map[*kinds.Kind]cache.SharedIndexInformer{}}
	for _, k := range append(kinds.Reflected(), kinds.Pod) {
		if k.ByReference {
			w.informers[k] = meta.ForResource(k.Resource).Informer()
			_ = w.informers[k].SetTransform(strip) // fails once it runs
			continue
		}
		w.informers[k] = k.Informer(full)
	}
	if err := w.informers[kinds.Pod].AddIndexers(cache.Indexers{byReference: indexReferences}); err != nil {
		stop()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	for k, informer := range w.informers {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.tell(k, nil, object(o)) },
			UpdateFunc: func(was, is any) { w.tell(k, object(was), object(is)) },
			DeleteFunc: func(o any) { w.tell(k, object(o), nil) },
		})
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch %ss: %w", k, err)
		}
		w.synced = append(w.synced, registration.HasSyncedChecker())
	}
	full.Start(ctx.Done())
	meta.Start(ctx.Done())
	return w, nil
}

// member is one user of what is watched.
type member struct {
	*watched
	home    *Home
	changed func(k *kinds.Kind, was, is metav1.Object)
}

// join has changed called for what changes at home from now on; was or is may be nil. What is there already the member lists, once it is synced.
func (h *Home) join(changed func(k *kinds.Kind, was, is metav1.Object)) (*member, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watched == nil {
		var err error
		if h.watched, err = h.watch(); err != nil {
			return nil, err
		}
	}
	m := &member{watched: h.watched, home: h, changed: changed}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users = append(slices.Clone(m.users), m)
	return m, nil
}

func object(o any) metav1.Object {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m, _ := o.(metav1.Object)
	return m
}

func (m *member) leave() {
	m.home.mu.Lock()
	defer m.home.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users = slices.DeleteFunc(slices.Clone(m.users), func(other *member) bool { return other == m })
	if len(m.users) == 0 {
		m.stop()
		m.home.watched = nil
	}
}

// get gives the home object, nil when there is none; onward: the namespace has its own of everything. Nobody may change it.
func (m *member) get(it item, onward bool) metav1.Object {
	if !onward {
		it = it.atHome()
	}
	o, exists, err := m.informers[it.kind].GetStore().GetByKey(it.namespace + "/" + it.name)
	if err != nil || !exists {
		return nil
	}
	return object(o)
}

// list gives what of a kind a namespace has at home, and may have in its twin.
func (m *member) list(k *kinds.Kind, namespace string) []item {
	objects, err := m.informers[k].GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil
	}
	var all []item
	for _, o := range objects {
		all = append(all, item{k, namespace, object(o).GetName()})
	}
	if slices.Contains(ofAPIServer, k) {
		all = append(all, item{k, namespace, kinds.APIServerAbroad})
	}
	return all
}

// healthy reports whether a disruption budget counts the pod (countHealthyPods in k8s.io/kubernetes/pkg/controller/disruption).
func healthy(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// healthy counts the pods of a namespace that are, on a node and on others.
func (m *member) healthy(namespace, node string, selector labels.Selector) (there, elsewhere int32) {
	pods, _ := m.informers[kinds.Pod].GetIndexer().ByIndex(cache.NamespaceIndex, namespace) // fails without the index
	for _, o := range pods {
		switch pod, ok := o.(*corev1.Pod); {
		case !ok || !healthy(pod) || !selector.Matches(labels.Set(pod.Labels)):
		case nodeOfPeer(pod.Spec.NodeName) == node:
			there++
		default:
			elsewhere++
		}
	}
	return there, elsewhere
}

// referred says whether a pod on the node that goes abroad refers to the ConfigMap or Secret.
func (m *member) referred(node string, it item, goes func(*corev1.Pod) bool) bool {
	pods, err := m.informers[kinds.Pod].GetIndexer().ByIndex(byReference, referenceKey(node, it))
	return err == nil && slices.ContainsFunc(pods, func(o any) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && goes(pod)
	})
}

// gated reports whether home may hold a pod back that is ready where it runs: readiness gates are asked at home alone.
func (m *member) gated(namespace, name string) bool {
	pod, ok := m.get(item{kinds.Pod, namespace, name}, false).(*corev1.Pod)
	return !ok || len(pod.Spec.ReadinessGates) > 0
}

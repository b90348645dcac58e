package virtualnode

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/trust/wire"
)

// Events of guests are a help, not a duty: so many a second at most reach the home cluster.
const (
	eventsPerSecond = 20
	eventsBurst     = 100
	eventsKnown     = 20_000
)

// mirror repeats the events of guest pods, and of what they brought along, on home's own. The copy's name is made from the UID of the
// original, so that one is never told twice, also not after a restart.
type mirror struct {
	n     *Node
	queue workqueue.TypedRateLimitingInterface[eventKey]
	limit *rate.Limiter

	mu    sync.Mutex
	known map[string]int32 // name of the copy, with its namespace → count told
}

// eventKey names an event abroad, in the twin of a home namespace; other: it is not about a pod.
type eventKey struct {
	home, name string
	other      bool
}

func newMirror(n *Node) *mirror {
	return &mirror{n: n, known: map[string]int32{}, limit: rate.NewLimiter(eventsPerSecond, eventsBurst),
		queue: queue.Of(workqueue.NewTypedItemExponentialFailureRateLimiter[eventKey](time.Second, time.Minute))}
}

// ofPods and ofOthers are called for each event abroad that came, changed or expired.
func (m *mirror) ofPods(was, is *corev1.Event)   { m.changed(was, is, false) }
func (m *mirror) ofOthers(was, is *corev1.Event) { m.changed(was, is, true) }

func (m *mirror) changed(was, is *corev1.Event, other bool) {
	home := m.n.view.HomeOf(cmp.Or(is, was).Namespace)
	if is == nil {
		m.mu.Lock()
		delete(m.known, home+"/"+copyName(was))
		m.mu.Unlock()
		return
	}
	// Which of the peer's nodes runs it is the peer's business.
	if home != "" && is.Reason != "Scheduled" {
		m.queue.Add(eventKey{home, is.Name, other})
	}
}

func (m *mirror) run(ctx context.Context) {
	if err := m.recall(ctx); err != nil {
		m.n.log.Debug("cannot read the events told before", "err", err)
	}
	queue.Serve(ctx, m.n.log, m.queue, 1, func(ctx context.Context, k eventKey) error {
		err := m.tell(ctx, k)
		if err != nil && m.queue.NumRequeues(k) >= 5 {
			m.n.log.Debug("event is not told at home", "namespace", k.home, "event", k.name, "err", err)
			return nil
		}
		return err
	})
}

// recall reads which events were told by an earlier run.
func (m *mirror) recall(ctx context.Context) error {
	ours := labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPeer: m.n.cfg.PeerName}.String()
	list, err := m.n.cfg.Home.CoreV1().Events("").List(ctx, metav1.ListOptions{LabelSelector: ours, Limit: eventsKnown})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list.Items {
		m.known[e.Namespace+"/"+e.Name] = e.Count
	}
	return nil
}

func (m *mirror) tell(ctx context.Context, k eventKey) error {
	t := m.n.twin(k.home)
	if t == nil {
		return nil
	}
	events, about := m.n.view.Events, m.homePod
	if k.other {
		events, about = m.n.view.OtherEvents, m.homeObject
	}
	event := events.Get(t.name, k.name)
	if event == nil {
		return nil
	}
	m.mu.Lock()
	count, told := m.known[k.home+"/"+copyName(event)]
	full := len(m.known) >= eventsKnown
	m.mu.Unlock()
	if told && count >= countOf(event) || full && !told {
		return nil
	}
	home, err := about(ctx, t, event)
	if err != nil || home.UID == "" {
		return err
	}
	e := copyOf(event, home, m.n.cfg.NodeName, m.n.cfg.PeerName)
	if err := m.limit.Wait(ctx); err != nil {
		return nil // the end
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	write := m.n.cfg.Home.CoreV1().Events(e.Namespace)
	if !told {
		_, err = write.Create(ctx, e, metav1.CreateOptions{})
	}
	if told || apierrors.IsAlreadyExists(err) {
		_, err = write.Update(ctx, e, metav1.UpdateOptions{})
	}
	if err == nil {
		m.mu.Lock()
		m.known[e.Namespace+"/"+e.Name] = e.Count
		m.mu.Unlock()
	}
	return err
}

// homePod is the pod here that an event about a guest is about; nothing when there is none.
func (m *mirror) homePod(_ context.Context, t *twin, event *corev1.Event) (none corev1.ObjectReference, err error) {
	home := m.n.Pod(t.home, event.InvolvedObject.Name)
	if home == nil {
		return none, nil
	}
	abroad := m.n.view.OffloadedPods.Get(t.name, home.Name)
	if abroad == nil {
		return none, fmt.Errorf("what event %s is about is not seen yet", event.Name)
	}
	if !concerns(event, home, abroad) {
		return none, nil // of a pod that had that name before
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: home.Namespace, Name: home.Name, UID: home.UID, ResourceVersion: home.ResourceVersion}, nil
}

// homeObject is the same for other kinds, all of which have home's name at the peer. They are read from the API server: each costs as much as the event
// that is written then, so it is bounded like these.
func (m *mirror) homeObject(ctx context.Context, t *twin, event *corev1.Event) (none corev1.ObjectReference, err error) {
	kind, name := event.InvolvedObject.Kind, event.InvolvedObject.Name
	read := homeObjects[kind]
	if read == nil || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return none, nil
	}
	if known := m.n.view.Metadata[kind]; known != nil {
		if is := known.Get(t.name, name); is == nil || is.UID != event.InvolvedObject.UID {
			return none, nil // of one that had that name before, or that home did not bring
		}
	}
	if err := m.limit.Wait(ctx); err != nil {
		return none, nil //nolint:nilerr // the end
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	home, err := read(ctx, m.n.cfg.Home.CoreV1(), t.home, name)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s %s/%s, which event %s is about: %w", kind, t.home, name, event.Name, err)
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: t.home, Name: name, UID: home.GetUID(), ResourceVersion: home.GetResourceVersion()}, nil
}

// homeObjects read what events abroad may be about (kinds.EventsOf).
var homeObjects = map[string]func(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (metav1.Object, error){
	"PersistentVolumeClaim": func(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (metav1.Object, error) {
		return c.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	kinds.Service.Name: func(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (metav1.Object, error) {
		return c.Services(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	kinds.ConfigMap.Name: func(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (metav1.Object, error) {
		return c.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	kinds.Secret.Name: func(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (metav1.Object, error) {
		return c.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	},
}

// concerns tells whether an event abroad is about the guest of this home pod. Only times of the peer's own clock are
// compared: the one here may be minutes away from it.
func concerns(event *corev1.Event, home *corev1.Pod, abroad *v1alpha1.OffloadedPod) bool {
	return abroad.Spec.HomeUID == home.UID && !lastTime(event).Before(abroad.CreationTimestamp.Time)
}

func copyName(event *corev1.Event) string { return "kith." + string(event.UID) }

// copyOf is the event as if it had happened to home's object.
func copyOf(event *corev1.Event, home corev1.ObjectReference, nodeName, peer string) *corev1.Event {
	e := event.DeepCopy()
	e.ObjectMeta = metav1.ObjectMeta{Namespace: home.Namespace, Name: copyName(event),
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPeer: peer}}
	home.FieldPath = event.InvolvedObject.FieldPath
	e.InvolvedObject, e.Related = home, nil
	e.Message, e.Reason = wire.Cut(e.Message, 1024), wire.Cut(e.Reason, 128) // what the API server takes
	e.Source.Host = nodeName
	if e.ReportingInstance != "" {
		e.ReportingInstance = nodeName
	}
	e.Count = countOf(event)
	return e
}

func countOf(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Count, e.Series.Count, 1)
	}
	return max(e.Count, 1)
}

func lastTime(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

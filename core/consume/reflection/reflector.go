package reflection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/base/queue"
	"kith.dev/core/consume/remote"
)

// Config is what a Reflector needs. All but APIServer and NodeIP must be set.
type Config struct {
	Home *Home
	// Abroad is the peer's API server.
	Abroad *remote.API
	// View shows what is in the twins. Somebody else runs it.
	View *remote.View
	// PeerName is how the peer is called here, NodeName the virtual node that stands for it.
	PeerName, NodeName string
	// Permit reports whether new pods of a home namespace may go to the peer.
	Permit func(namespace string) bool
	// Onward reports whether a namespace is another cluster's, whose pods go on to the peer: what is in it has the addresses of that cluster. nil: there
	// are none.
	Onward func(namespace string) bool
	// DNS is the service address of this cluster's DNS.
	DNS netip.Addr
	// Reaches reports whether guests reach an address as home uses it: that of a pod at home, or of a guest anywhere.
	Reaches func(netip.Addr) bool
	// IPv6 reports whether guests there have addresses of both families now; nil: they have IPv4 alone.
	IPv6 func() bool
	// GuestNode names the peer's node on which the guest of a home pod runs; empty when that is not known.
	GuestNode func(namespace, pod string) string
	// GuestReady reports whether the guest of a home pod is ready at the peer, whatever home makes of it.
	GuestReady func(namespace, pod string) bool
	// Apart reports whether no packet passes between the pods at home and at the peer; nil: never. Pods at the peer use each other only then:
	// in the EndpointSlices there endpoints at home are not ready, and those at the peer have their readiness there. Replan when it changes.
	Apart func() bool
	// NoNetwork: pods there reach nothing at home, and nothing reaches them: neither services nor endpoints go there.
	NoNetwork bool
	// APIServer is the service address of the home API server, that of kubernetes.default; the zero value when none of its endpoints
	// can be reached from abroad, which leaves the pods there without the way home.
	APIServer netip.Addr
	// NodeIP is the address of the virtual node; the zero value has pods abroad see that of the peer's node.
	NodeIP netip.Addr
	// Problems is called whenever the list of what cannot be copied to the peer has changed: sentences for people, none when all is well.
	Problems func(namespace string, problems []string)
	// Recorder writes events about home objects.
	Recorder record.EventRecorder
	Log      *slog.Logger
}

const (
	workers = 8
	// callTimeout bounds what one item may take, so that a worker never hangs on a cut link.
	callTimeout = 15 * time.Second
	maxDelay    = 30 * time.Second
	// readyWithin bounds how long Prepare waits until a new twin was looked at.
	readyWithin = 3 * time.Second
	// unneededFor is how long a ConfigMap or Secret outlives its last reference: pods replace each other.
	unneededFor = 30 * time.Second
)

// Reflector keeps the twins at one peer. Its methods may be called at any time and from anywhere.
type Reflector struct {
	cfg    Config
	log    *slog.Logger
	abroad *abroad
	record record.EventRecorder
	queue  workqueue.TypedRateLimitingInterface[item]
	// life ends when Run does.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	twins  map[string]*twin // by home namespace
	member *member          // from the first twin on
	plan   int              // counts changes of what is reached

	// locks of items: a worker and Prepare may come to the same.
	locks [64]sync.Mutex
}

// New makes a Reflector without touching either cluster.
func New(cfg Config) (*Reflector, error) {
	if cfg.Home == nil || cfg.Abroad == nil || cfg.View == nil || cfg.Permit == nil || cfg.Reaches == nil || cfg.Log == nil || cfg.PeerName == "" || cfg.NodeName == "" {
		return nil, errors.New("reflection: Home, Abroad, View, Permit, Reaches, Log, PeerName and NodeName must be set")
	}
	a, err := newAbroad(cfg.Abroad)
	if err != nil {
		return nil, fmt.Errorf("reflection: client for the peer %s: %w", cfg.PeerName, err)
	}
	r := &Reflector{
		cfg: cfg, log: cfg.Log.With("peer", cfg.PeerName), abroad: a, twins: map[string]*twin{},
		record: cfg.Recorder,
		queue:  queue.Of(workqueue.NewTypedItemExponentialFailureRateLimiter[item](50*time.Millisecond, maxDelay)),
	}
	r.life, r.end = context.WithCancel(context.Background())
	for _, k := range kinds.Reflected() {
		cfg.View.Metadata[k.Name].OnChange(func(was, is *metav1.PartialObjectMetadata) { r.abroadChanged(k, was, is) })
	}
	cfg.View.OnSynced(r.synced)
	return r, nil
}

// Run works until ctx ends. It leaves what is abroad where it is: the next Reflector goes on with it. It can be called
// once.
func (r *Reflector) Run(ctx context.Context) {
	var working sync.WaitGroup
	working.Go(func() { r.work(ctx) })
	<-ctx.Done()
	r.end()
	for _, t := range r.allTwins() {
		r.Close(t.home)
	}
	r.mu.Lock()
	if r.member != nil {
		r.member.leave()
		r.member = nil
	}
	r.mu.Unlock()
	working.Wait()
}

func (r *Reflector) work(ctx context.Context) {
	queue.Serve(ctx, r.log, r.queue, workers, func(ctx context.Context, it item) error {
		err := r.reconcile(ctx, it, nil, false)
		if err != nil && ctx.Err() == nil {
			r.log.Debug("will be tried again", "namespace", it.namespace, "kind", it.kind.Name, "name", it.name, "err", err)
		}
		return err
	})
}

// Open begins to reflect a home namespace into its twin; isNew says that the rights there may still be on their way. Called again
// with the same twin it does nothing.
func (r *Reflector) Open(home, name string, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.twins[home]
	if r.life.Err() != nil || old != nil && old.name == name {
		return
	}
	if old != nil {
		old.close()
	}
	t := newTwin(home, name)
	r.twins[home] = t
	r.follow(t, isNew)
}

// Close stops reflecting a home namespace. What is in the twin goes with the twin.
func (r *Reflector) Close(home string) {
	r.mu.Lock()
	t := r.twins[home]
	delete(r.twins, home)
	r.mu.Unlock()
	if t == nil {
		return
	}
	t.close()
	if t.untold() && r.life.Err() == nil {
		r.cfg.Problems(home, nil)
	}
}

// Replan brings the endpoints abroad up to date after Reaches changed.
func (r *Reflector) Replan() {
	r.mu.Lock()
	r.plan++
	r.mu.Unlock()
	for _, t := range r.allTwins() {
		if s := t.current(); s.isReady() {
			r.queueAll(s, t.home, func(k *kinds.Kind) bool { return k.Depends != nil })
		}
	}
}

// healthChanged has looked at what depends on which pods of a namespace are healthy.
func (r *Reflector) healthChanged(home string) {
	if t := r.twin(home); t != nil {
		if s := t.current(); s.isReady() {
			r.queueAll(s, home, func(k *kinds.Kind) bool { return k.OfPods })
		}
	}
}

// queueAll has the objects of some kinds in a home namespace looked at.
func (r *Reflector) queueAll(s *session, home string, which func(*kinds.Kind) bool) {
	for k := range s.member.informers {
		if !which(k) {
			continue
		}
		for _, it := range s.member.list(k, home) {
			r.queue.Add(it)
		}
	}
}

// Prepare copies everything that the pod needs into the twin before the pod goes there. What is missing at home, or is refused by the peer, is
// reported in events and does not delay the pod: it waits for it there as it would at home.
func (r *Reflector) Prepare(ctx context.Context, pod *corev1.Pod) error {
	t := r.twin(pod.Namespace)
	if t == nil {
		return fmt.Errorf("namespace %s has no twin at %s yet", pod.Namespace, r.cfg.PeerName)
	}
	s := t.current()
	if s == nil {
		return fmt.Errorf("namespace %s cannot be watched here", pod.Namespace)
	}
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
		return fmt.Errorf("the twin of namespace %s at %s cannot be seen yet", pod.Namespace, r.cfg.PeerName)
	case <-s.ctx.Done():
		return fmt.Errorf("namespace %s: its twin at %s is being looked at afresh", pod.Namespace, r.cfg.PeerName)
	case <-ctx.Done():
		return fmt.Errorf("see what is in the twin of namespace %s at %s: %w", pod.Namespace, r.cfg.PeerName, ctx.Err())
	}
	items := append(references(pod), item{kinds.Pod, pod.Namespace, pod.Name})
	for _, it := range s.member.list(kinds.Service, pod.Namespace) { // so that the kubelet there knows them when it sets up the containers
		if !t.knows(it) {
			items = append(items, it)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, it := range items {
		group.Go(func() error {
			err := r.reconcile(ctx, it, pod, true)
			if refused := (*refusal)(nil); errors.As(err, &refused) {
				r.queue.AddRateLimited(it)
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// Adapt replaces what refers to the home cluster in a pod's template, which is a copy of the home pod's spec.
func (r *Reflector) Adapt(pod *corev1.Pod, twin string, spec *corev1.PodSpec) {
	around := surroundings{home: pod.Namespace, twin: twin, api: r.cfg.APIServer, node: r.cfg.NodeIP}
	if r.onward(pod.Namespace) { // of the API server it has been told at its home
		around.api = netip.Addr{}
		unhost(spec, r.cfg.DNS)
	}
	adapt(pod, around, spec)
}

// onward is Config.Onward, as far as there is one.
func (r *Reflector) onward(namespace string) bool {
	return r.cfg.Onward != nil && r.cfg.Onward(namespace)
}

func (r *Reflector) twin(home string) *twin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.twins[home]
}

func (r *Reflector) allTwins() []*twin {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*twin, 0, len(r.twins))
	for _, t := range r.twins {
		all = append(all, t)
	}
	return all
}

func (r *Reflector) lock(it item) *sync.Mutex {
	h := fnv.New32a()
	h.Write([]byte(it.kind.Name + "/" + it.namespace + "/" + it.name))
	return &r.locks[h.Sum32()%uint32(len(r.locks))]
}

// homeChanged queues what a change at home may matter to.
func (r *Reflector) homeChanged(k *kinds.Kind, was, is metav1.Object) {
	if k == kinds.Pod {
		r.podChanged(was, is)
		return
	}
	if is == nil {
		is = was
	}
	if is == nil || saysGoodbye(is) {
		return
	}
	changed := item{k, is.GetNamespace(), is.GetName()}
	if r.twin(changed.namespace) != nil {
		r.queue.Add(changed)
	}
	if changed.name != kinds.APIServer {
		return
	}
	for _, t := range r.allTwins() {
		if it := (item{k, t.home, kinds.APIServerAbroad}); it.atHome() == changed {
			r.queue.Add(it)
		}
	}
}

// saysGoodbye reports whether this is the slice of an API server that ends, and took its own address out. Guests would reach it no more if they
// were told, and one that sleeps would wake each peer by it, and again when it is back.
func saysGoodbye(o metav1.Object) bool {
	slice, is := o.(*discoveryv1.EndpointSlice)
	return is && slice.Namespace == metav1.NamespaceDefault && slice.Name == kinds.APIServer && len(slice.Endpoints) == 0
}

// podChanged: most changes of a pod are in its status and concern nobody here.
func (r *Reflector) podChanged(was, is metav1.Object) {
	before, hadPod := was.(*corev1.Pod)
	after, hasPod := is.(*corev1.Pod)
	if !(hadPod && r.twin(before.Namespace) != nil || hasPod && r.twin(after.Namespace) != nil) {
		return
	}
	if sound := hasPod && healthy(after); sound != (hadPod && healthy(before)) || sound && !maps.Equal(before.Labels, after.Labels) {
		r.healthChanged(cmp.Or(after, before).Namespace)
	}
	had := hadPod && needs(before, r.cfg.NodeName)
	has := hasPod && needs(after, r.cfg.NodeName)
	if had == has && (!hadPod || !hasPod || before.UID == after.UID) {
		if has && len(before.Spec.EphemeralContainers) != len(after.Spec.EphemeralContainers) {
			for _, it := range references(after) {
				r.queue.Add(it)
			}
		}
		if has && !(maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations)) {
			r.queue.Add(item{kinds.Pod, after.Namespace, after.Name})
		}
		return
	}
	var touched []item
	for pod, ours := range map[*corev1.Pod]bool{before: had, after: has} {
		if ours {
			touched = append(append(touched, references(pod)...), item{kinds.Pod, pod.Namespace, pod.Name})
		}
	}
	for _, it := range touched {
		r.queue.Add(it)
	}
}

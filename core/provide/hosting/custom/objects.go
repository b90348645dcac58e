package custom

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/custom"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

// Grants says who may keep what, and where. *grants.Contracts is one.
type Grants interface {
	// Held gives the terms of a contract in force with the consumer.
	Held(ctx context.Context, contractID, consumerID string) (*grants.Terms, error)
	// Of gives the terms of a contract now; nil when there are none.
	Of(contractID string) *grants.Terms
	// TwinFor finds the twin of a consumer's namespace.
	TwinFor(consumer grants.Consumer, home string) (grants.Twin, bool)
	Twin(namespace string) grants.Twin
}

const (
	fieldOwner = "kith-custom"
	// beginWithin is how long a consumer may take to say which kinds it will speak of.
	beginWithin = 10 * time.Second
	// writeRate is how many lines of a consumer are taken a second, each of which is a write here, and writeBurst how many at once after a rest.
	writeRate, writeBurst = 300, 2000
)

// Objects keeps the custom resources of all consumers.
type Objects struct {
	client dynamic.Interface
	grants Grants
	log    *slog.Logger

	mu       sync.Mutex
	watched  map[schema.GroupVersionResource]*watched
	sessions map[string]live // by consumer: one each, the last one
	paces    map[string]*rate.Limiter
}

// live is a connection, with the terms that it began under.
type live struct {
	conn  net.Conn
	terms *grants.Terms
}

// watched is a kind whose objects are known here while sessions speak of it.
type watched struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	users    int
}

// New makes Objects that writes by client.
func New(client dynamic.Interface, grants Grants, log *slog.Logger) *Objects {
	return &Objects{client: client, grants: grants, log: log, watched: map[schema.GroupVersionResource]*watched{}, sessions: map[string]live{}, paces: map[string]*rate.Limiter{}}
}

// pace is that of a consumer, whatever connections it opens.
func (o *Objects) pace(consumer string) *rate.Limiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paces[consumer] == nil {
		o.paces[consumer] = rate.NewLimiter(writeRate, writeBurst)
	}
	return o.paces[consumer]
}

// ServeObjects answers POST custom.Path?contract=ID, an upgrade. It returns when the connection, or the contract, ends.
func (o *Objects) ServeObjects(w http.ResponseWriter, r *http.Request, consumerID string) {
	terms, err := o.grants.Held(r.Context(), r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		door.Answer(o.log, w, struct{}{}, err)
		return
	}
	conn, err := peering.Upgraded(w, r, custom.Protocol)
	if err != nil {
		return
	}
	defer conn.Close()
	o.take(consumerID, live{conn, terms})
	defer o.leave(consumerID, conn)
	s := &session{o: o, consumer: terms.Consumer, contract: terms.Contract, conn: conn, log: o.log.With("peer", terms.Consumer.Name)}
	if err := s.run(r.Context()); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		s.log.Debug("custom resources: the connection ended", "err", err)
	}
}

// take has a consumer's earlier connection end: whoever opens another has lost it.
func (o *Objects) take(consumerID string, now live) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if old, there := o.sessions[consumerID]; there {
		old.conn.Close()
	}
	o.sessions[consumerID] = now
}

func (o *Objects) leave(consumerID string, conn net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sessions[consumerID].conn == conn {
		delete(o.sessions, consumerID)
	}
}

// ShutObjects ends the connection of a consumer that has no contract in force any more.
func (o *Objects) ShutObjects(consumerID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, there := o.sessions[consumerID]; there {
		s.conn.Close()
	}
}

// KindsChanged ends the connection under a contract by whose terms other kinds may be kept now than when it began: the next one begins with those.
func (o *Objects) KindsChanged(contractID string) {
	now := o.grants.Of(contractID)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sessions {
		if s.terms.Contract == contractID && (now == nil || !slices.Equal(now.Kinds, s.terms.Kinds)) {
			s.conn.Close()
		}
	}
}

// watch has the objects of a kind, those that Kith made, known until release is called.
func (o *Objects) watch(gvr schema.GroupVersionResource) (informer cache.SharedIndexInformer, release func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.watched[gvr]
	if w == nil {
		ours := labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}.String()
		w = &watched{informer: dynamicinformer.NewFilteredDynamicInformer(o.client, gvr, metav1.NamespaceAll, 0, cache.Indexers{byConsumer: consumerOf},
			func(l *metav1.ListOptions) { l.LabelSelector = ours }).Informer()}
		_ = w.informer.SetTransform(slim) // which fails of one that runs
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		go w.informer.RunWithContext(ctx)
		o.watched[gvr] = w
	}
	w.users++
	return w.informer, sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if w.users--; w.users == 0 {
			w.stop()
			delete(o.watched, gvr)
		}
	})
}

// byConsumer is an index of objects by the compact ID of whose they are.
const byConsumer = "consumer"

func consumerOf(o any) ([]string, error) {
	object, err := metav1Object(o)
	if err != nil {
		return nil, err
	}
	return []string{object.GetLabels()[v1alpha1.LabelConsumer]}, nil
}

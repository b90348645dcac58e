// Package leader has one of several kithd of a cluster work, and the others stand by: whoever holds a Lease (coordination.k8s.io). cmd/kithd
// calls it before it makes a Daemon, so that one that stands by has no socket, no device and no controller.
//
// It must never let two write in the cluster at once for longer than their clocks differ: who cannot renew the lease writes nothing any more before
// another may take it. It stops then, too, unless nobody else can have taken it: while the API server is away for all, packets may go on (Term).
package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Label marks, with value "true", the pod of the kithd that works: services lead to it.
const Label = "kith.dev/leader"

// Config says for which lease kithd stands by, and as whom.
type Config struct {
	Client    kubernetes.Interface
	Namespace string // of the Lease, and of the pods
	Name      string // of the Lease
	Node      string // that this kithd runs on; others read it from the Lease (Node)
	Pod       string // "": in none
	Duration  time.Duration
	Log       *slog.Logger
}

// ErrLost is returned to whoever worked and could not renew the lease in time. Another one works by now, or is about to.
var ErrLost = errors.New("the lease was lost: the API server could not be reached, or another kithd took it")

// Term is the time for which a kithd works. Its methods may be called by many at once; nil is that of one that needs no lease.
type Term struct {
	held atomic.Bool
	stay atomic.Pointer[func() (still func() bool)]
}

// Held reports whether the lease is held, so that this kithd may write in the cluster.
func (t *Term) Held() bool { return t == nil || t.held.Load() }

// StayWhile has work go on when the lease cannot be renewed, for as long as still, which sure gives at that moment, says that nobody else has it.
func (t *Term) StayWhile(sure func() (still func() bool)) {
	if t != nil {
		t.stay.Store(&sure)
	}
}

// stays is still of StayWhile.
func (t *Term) stays() func() bool {
	if sure := t.stay.Load(); sure != nil {
		return (*sure)()
	}
	return func() bool { return false }
}

// Run waits for the lease and runs work while it is held. It returns when work does, with its error; when ctx ends, after work returned, so
// that the next one finds nothing in its way; or with ErrLost.
func Run(ctx context.Context, cfg Config, work func(context.Context, *Term) error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	pods := cfg.Client.CoreV1().Pods(cfg.Namespace)
	if err := mark(ctx, pods, cfg.Pod, false); err != nil { // of the process before in this pod
		cfg.Log.Warn("a kithd that stands by may have the label of one that works", "pod", cfg.Pod, "err", err)
	}
	acquired, done := make(chan struct{}), make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-acquired: // work ends first, and stops
		default:
			stop()
		}
	})()
	working, end := context.WithCancel(ctx)
	defer end()
	term := &Term{}
	begin := sync.OnceFunc(func() {
		close(acquired)
		go func() {
			done <- work(working, term)
			stop() // gives the lease back
		}()
	})
	still := func() bool { return true } // nobody waits for the first lease in vain
	for lost := false; ; {
		if lost {
			cfg.Log.Warn("the lease cannot be renewed: nothing is written in the cluster any more", "lease", cfg.Name)
			if still = term.stays(); !still() {
				break
			}
			cfg.Log.Info("the other nodes still ask for this kithd, so nobody else works: packets go on", "lease", cfg.Name)
		}
		round, cancel := context.WithCancelCause(electing)
		leave := func() { cancel(nil) }
		elector, err := cfg.elector(lost, cancel, func(leading context.Context) {
			term.held.Store(true)
			context.AfterFunc(leading, func() { term.held.Store(false) })
			go cfg.lead(leading, pods)
			begin()
		})
		if err != nil {
			leave()
			return err
		}
		if lost {
			go watch(round, still, leave, &term.held)
		}
		elector.Run(round)
		term.held.Store(false)
		left := round.Err() != nil && (lost || !errors.Is(context.Cause(round), errAnew))
		leave()
		if electing.Err() != nil {
			select {
			case err := <-done:
				return err
			default:
				return nil // ctx ended before there was anything to do
			}
		}
		if left {
			break
		}
		select {
		case <-acquired:
			lost = true
		default: // the API server is back, see lock
		}
	}
	end()
	select {
	case err := <-done:
		return errors.Join(ErrLost, err)
	case <-time.After(cfg.Duration / 6): // half of the time that is left until another takes the lease
		return ErrLost
	}
}

// errAnew ends a try of who stands by, for the API server was away, and is back.
var errAnew = errors.New("the API server is back")

// lock has who stands by see a lease for the first time when the API server is back, and wait for as long as it lasts: whoever holds it could not
// renew it meanwhile either, and packets may go by that one all the time.
type lock struct {
	resourcelock.Interface
	led  atomic.Bool   // in this try: then nothing is anew
	most time.Duration // between two looks, else the API server was away: an answer may merely have been waited for
	last time.Time
	anew func()
}

// Get implements resourcelock.Interface. One goroutine calls it.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return record, raw, err
	}
	was := l.last
	if l.last = time.Now(); !l.led.Load() && !was.IsZero() && l.last.Sub(was) > l.most {
		l.anew()
		return nil, nil, errAnew
	}
	return record, raw, err
}

// elector is for one try. lost: work goes on, until another has the lease.
func (c Config) elector(lost bool, leave context.CancelCauseFunc, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	me, renew := holder(c.Node, c.Pod), c.Duration*2/3
	var lease resourcelock.Interface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Client: c.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: me},
	}
	standby := &lock{Interface: lease, most: renew, anew: func() { leave(errAnew) }}
	if !lost {
		lease = standby
	}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lease,
		Name: c.Name, LeaseDuration: c.Duration, RenewDeadline: renew, RetryPeriod: renew / 5, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				standby.led.Store(true)
				c.Log.Info("this kithd holds the lease, and works", "lease", c.Name, "again", lost)
				lead(leading)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				c.Log.Info("who holds the lease works", "lease", c.Name, "holder", who)
				if lost && who != me && who != "" {
					leave(nil)
				}
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("stand by for the lease %s/%s: %w", c.Namespace, c.Name, err)
	}
	return e, nil
}

// watch leaves when somebody else may have the lease, while it is not held.
func watch(ctx context.Context, still func() bool, leave func(), held *atomic.Bool) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for !held.Load() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !still() && !held.Load() {
				leave()
				return
			}
		}
	}
}

func holder(node, pod string) string { return node + "_" + pod }

// Node gives the node of a lease's holder; "" of none.
func Node(holder string) string {
	node, _, _ := strings.Cut(holder, "_") // no name of a node has one (RFC 1123)
	return node
}

// again is how long what failed waits to be tried again.
const again = time.Second

// lead has the label be on this pod alone. Services lead nowhere until that is done, so it is tried until ctx ends.
func (c Config) lead(ctx context.Context, pods typedcorev1.PodInterface) {
	for {
		err := c.label(ctx, pods)
		if err == nil {
			return
		}
		c.Log.Warn("services do not lead to this kithd yet: its pod has no label that says it works", "pod", c.Pod, "label", Label, "err", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

func (c Config) label(ctx context.Context, pods typedcorev1.PodInterface) error {
	if c.Pod == "" {
		return nil
	}
	// The node of the one before may be down, and its pod look alive for a while.
	marked, err := pods.List(ctx, metav1.ListOptions{LabelSelector: Label + "=true"})
	if err != nil {
		return err
	}
	for i := range marked.Items {
		if name := marked.Items[i].Name; name != c.Pod {
			err = errors.Join(err, mark(ctx, pods, name, false))
		}
	}
	return errors.Join(err, mark(ctx, pods, c.Pod, true))
}

// mark puts the label on a pod, or takes it off. A pod that is gone needs none.
func mark(ctx context.Context, pods typedcorev1.PodInterface, pod string, works bool) error {
	if pod == "" {
		return nil
	}
	labels := map[string]any{Label: nil}
	if works {
		labels[Label] = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Package leader has one of several kithd of a cluster work, and the others stand by: whoever holds a Lease (coordination.k8s.io). cmd/kithd
// calls it before it makes a Daemon, so that one that stands by has no socket, no device and no controller.
//
// It must never let two write in the cluster at once for longer than their clocks differ: who could not renew the lease writes nothing any more before
// another may take it. It stops then, too, unless nobody else can have taken it: while the API server is away for all, packets go on (Term).
package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	renew := cfg.Duration * 2 / 3
	term := &Term{good: renew}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name}, Client: cfg.Client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: holder(cfg.Node, cfg.Pod)},
			},
			term: term, ends: electing.Done(), log: cfg.Log,
		},
		Name: cfg.Name, LeaseDuration: cfg.Duration, RenewDeadline: renew, RetryPeriod: renew / 5, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				close(acquired)
				leading, end := context.WithCancel(leading)
				defer end()
				defer context.AfterFunc(ctx, end)()
				cfg.Log.Info("this kithd holds the lease, and works", "lease", cfg.Name)
				go cfg.lead(leading, pods)
				done <- work(leading, term)
				stop() // gives the lease back
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(who string) { cfg.Log.Info("who holds the lease works", "lease", cfg.Name, "holder", who) },
		},
	})
	if err != nil {
		return fmt.Errorf("stand by for the lease %s/%s: %w", cfg.Namespace, cfg.Name, err)
	}
	elector.Run(electing)
	if electing.Err() != nil {
		select {
		case err := <-done:
			return err
		default:
			return nil // ctx ended before there was anything to do
		}
	}
	select {
	case err := <-done:
		return errors.Join(ErrLost, err)
	case <-time.After(cfg.Duration / 6): // half of the time that is left until another takes the lease
		return ErrLost
	}
}

func holder(node, pod string) string { return node + "_" + pod }

// Node gives the node of a lease's holder; "" of none.
func Node(holder string) string {
	node, _, _ := strings.Cut(holder, "_") // no name of a node has one (RFC 1123)
	return node
}

// Pod gives the pod of a lease's holder; "" of none.
func Pod(holder string) string {
	_, pod, _ := strings.Cut(holder, "_")
	return pod
}

// Ends tells until when a lease is held as it stands; the zero time of one that nobody holds.
func Ends(lease *coordinationv1.Lease) time.Time {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
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

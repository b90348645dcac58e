package waking

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/power"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
)

// day is the time in which a machine is woken so often.
const day = 24 * time.Hour

// Config is what a Waking needs.
type Config struct {
	Client    *ledger.Ledger
	Identity  *identity.Identity
	Directory link.Directory
	Pods      seeking.Pods
	Devices   func() ([]wol.Device, error) // of this machine, on LANs
	Power     func() power.State           // of this machine
	Events    events.EventRecorder
	Announce  func(api.Event)
	Log       *slog.Logger

	// Send sends a series of magic packets; nil: wol.Send.
	Send func(ctx context.Context, from []wol.Device, mac net.HardwareAddr, networks []netip.Prefix) error
	// Counts counts how often devices woke this machine; nil: wol.Woke.
	Counts func([]wol.Device) map[string]int64
	// Ask hands a word to a peer, which wakes whom it is about or, when it is the peer itself, counts that; nil: by Directory.
	Ask func(ctx context.Context, peer *v1alpha1.Peer, word canonical.Signed) error
}

// Waking is the part that this cluster plays in it: sleeper, waker or neighbour.
type Waking struct {
	Config
	pokes chan event.GenericEvent

	mu      sync.Mutex                    // of all below
	lent    map[identity.ID][]time.Time   // when others' machines were woken for others, by the machine's ID
	told    map[string]map[types.UID]bool // pods that were told, by peer, of its state now
	refused map[string]int                // how often in a row all those refused that were asked to wake a peer, by its name
	before  map[string]int64              // how often devices had woken this machine when it was suspended
	unsaid  *time.Timer                   // until the owner is told that nobody says who woke this machine
	back    time.Time                     // when this process began, or this machine was awake again
	doing   sync.Mutex                    // one machine is woken at a time
}

// New makes a Waking.
func New(cfg Config) *Waking {
	w := &Waking{Config: cfg, pokes: make(chan event.GenericEvent, 64), lent: map[identity.ID][]time.Time{}, told: map[string]map[types.UID]bool{}, refused: map[string]int{}, back: time.Now()}
	if w.Send == nil {
		w.Send = wol.Send
	}
	if w.Counts == nil {
		w.Counts = wol.Woke
	}
	if w.Ask == nil {
		w.Ask = w.ask
	}
	return w
}

// ask hands a word to a peer.
func (w *Waking) ask(ctx context.Context, peer *v1alpha1.Peer, word canonical.Signed) error {
	c, err := w.Directory.Client(peer)
	if err != nil {
		return err
	}
	return c.Call(ctx, "POST", Path, word, nil)
}

// Within counts those times that are within the day before now. Those of a clock that was put back count: nobody is woken more often by that.
func Within(times []metav1.Time, now time.Time) int { return len(lately(times, now)) }

// lately are those times that are within the day before now, in their order.
func lately(times []metav1.Time, now time.Time) []metav1.Time {
	return slices.DeleteFunc(slices.Clone(times), func(t metav1.Time) bool { return now.Sub(t.Time) >= day })
}

// free is when there may be one more within a day, of so many: now, or when the first of those that are too many is a day ago.
func free(times []metav1.Time, most int64, now time.Time) time.Time {
	counted := lately(times, now)
	if most < 1 {
		return now.Add(day)
	}
	if over := int64(len(counted)) - most; over >= 0 {
		return counted[over].Add(day)
	}
	return now
}

// put writes what is known of waking into a contract's status, and gives the contract as it is then. One that changed meanwhile is a conflict.
func (w *Waking) put(ctx context.Context, ctr *v1alpha1.Contract, is *v1alpha1.WakeStatus) (*v1alpha1.Contract, error) {
	next := ctr.DeepCopy()
	next.Status.Wake = is.DeepCopy()
	if err := w.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(ctr, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("write what is known of waking %s: %w", ctr.Spec.Peer, err)
	}
	return next, nil
}

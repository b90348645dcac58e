package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/laptop"
)

// KeepAwake implements localapi.Backend.
func (b *Backend) KeepAwake(ctx context.Context, options api.AwakeOptions) (api.Awake, error) {
	if b.Laptop == nil {
		return api.Awake{}, cannotKeep(laptop.ErrCannot)
	}
	if options.Off {
		if err := b.Laptop.LetSleep(ctx); err != nil {
			return api.Awake{}, internal(err)
		}
	} else if err := b.Laptop.KeepAwake(ctx, options.UntilGuestsEnd, time.Duration(options.For)); err != nil {
		return api.Awake{}, cannotKeep(err)
	}
	return awakeOf(b.Laptop.Now().Kept), nil
}

func cannotKeep(err error) error {
	e := &api.Error{Code: api.CodeConflict, Message: "this laptop is not kept awake", Reason: err.Error()}
	switch {
	case errors.Is(err, laptop.ErrCannot):
		e.Code, e.Do = api.CodeUnsupported, "let the desktop's own settings keep it awake"
	case errors.Is(err, laptop.ErrNoGuests):
		e.Do = "`kith awake --for 2h` keeps it awake without"
	case errors.Is(err, laptop.ErrBattery):
		e.Do = "plug it in"
	case errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		e.Do = "systemd-inhibit --list shows what logind knows; its journal says why"
	}
	return e
}

// awakeNow is how this machine is kept awake; nil where it cannot be.
func (b *Backend) awakeNow() *api.Awake {
	if b.Laptop == nil {
		return nil
	}
	is := b.Laptop.Now()
	if !is.CanKeep && is.Kept == (laptop.Kept{}) {
		return nil
	}
	return new(awakeOf(is.Kept))
}

func awakeOf(is laptop.Kept) api.Awake {
	return api.Awake{Kept: is != laptop.Kept{}, Since: is.Since, Until: is.Until, UntilGuestsEnd: is.Guests}
}

// TellAwake publishes that this machine is kept awake from now on, or why it is no more.
func (b *Backend) TellAwake(is laptop.Kept, why laptop.Ended) {
	if why == "" {
		until := "until " + is.Until.Local().Format("15:04")
		if is.Guests {
			until = "until its guests end, " + until + " at the latest"
		}
		b.Publish(api.Event{Type: api.EventKeptAwake, Message: "this laptop is kept awake " + until})
		return
	}
	ended := map[laptop.Ended]struct {
		reason api.EventReason
		why    string
	}{
		laptop.EndedOwner:   {api.ReasonByOwner, "its owner said so"},
		laptop.EndedGuests:  {api.ReasonGuestsEnded, "no guest runs here any more"},
		laptop.EndedTime:    {api.ReasonTimeIsUp, "the time is up"},
		laptop.EndedBattery: {api.ReasonBatteryLow, fmt.Sprintf("its battery is not above %d %% any more", laptop.LeastBattery)},
		laptop.EndedLogind:  {api.ReasonNoLogind, "logind gives no lock any more"},
		laptop.EndedStopped: {"", "kithd stops"},
	}[why]
	b.Publish(api.Event{Type: api.EventMaySleep, Reason: ended.reason, Message: "this laptop may sleep again: " + ended.why})
}

// GuestCount counts the pods of peers that run here, or are about to; not known without a cluster.
func (b *Backend) GuestCount() (n int, known bool) {
	by, known := b.guestsBy(context.Background())
	for _, pods := range by {
		n += pods
	}
	return n, known
}

// guestsBy counts them by the ID of whose they are.
func (b *Backend) guestsBy(ctx context.Context) (by map[string]int, known bool) {
	c := b.Cluster()
	if c == nil {
		return nil, b.Engine == nil
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.HasLabels{v1alpha1.LabelConsumer}); err != nil {
		b.Log.Debug("guests cannot be counted", "err", err)
		return nil, false
	}
	by = map[string]int{}
	for i := range pods.Items {
		if !v1alpha1.Ended(pods.Items[i].Status.Phase) {
			by[pods.Items[i].Labels[v1alpha1.LabelConsumer]]++
		}
	}
	return by, true
}

// worthTelling is how long guests must have stood still for a word.
const worthTelling = time.Minute

// suspend remembers who ran here when this machine was about to be suspended.
type suspend struct {
	mu   sync.Mutex
	at   time.Time // zero while it is awake, or nobody ran here
	whom string    // "3 pods of alice"
}

// FallsAsleep notes that this machine is about to be suspended, and with whose guests.
func (b *Backend) FallsAsleep(ctx context.Context) {
	by, known := b.guestsBy(ctx)
	b.suspend.mu.Lock()
	defer b.suspend.mu.Unlock()
	b.suspend.at, b.suspend.whom = time.Time{}, ""
	if known && len(by) > 0 {
		b.suspend.at, b.suspend.whom = time.Now().Round(0), b.whose(by)
	}
}

// WakesUp publishes whose guests stood still meanwhile.
func (b *Backend) WakesUp() {
	b.suspend.mu.Lock()
	at, whom := b.suspend.at, b.suspend.whom
	b.suspend.at = time.Time{}
	b.suspend.mu.Unlock()
	if slept := time.Now().Round(0).Sub(at); !at.IsZero() && slept >= worthTelling {
		b.Publish(api.Event{Type: api.EventStoodStill, Message: fmt.Sprintf("%s stood still for %s, while this laptop slept", whom, lasted(slept))})
	}
}

// whose says how many pods of whom: of the peer that has most, and of how many others.
func (b *Backend) whose(by map[string]int) string {
	type of struct {
		name string
		n    int
	}
	var list []of
	total := 0
	for id, n := range by {
		list, total = append(list, of{cmp.Or(b.Directory.PeerName(id), "a peer"), n}), total+n
	}
	slices.SortFunc(list, func(a, c of) int { return cmp.Or(c.n-a.n, strings.Compare(a.name, c.name)) })
	said := "1 pod"
	if total != 1 {
		said = fmt.Sprintf("%d pods", total)
	}
	said += " of " + list[0].name
	switch others := len(list) - 1; {
	case others == 1:
		said += " and " + list[1].name
	case others > 1:
		said += fmt.Sprintf(" and %d others", others)
	}
	return said
}

// lasted tells a length of time for people.
func lasted(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

package notice

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// Feed is where the daemon's events come from; *client.Client is one.
type Feed interface {
	Events(ctx context.Context, from client.EventsFrom) iter.Seq2[api.Event, error]
}

// Screen shows notices. Show and Retract never block: they leave what is to be done to Run.
type Screen interface {
	// Run works until ctx ends or there is no screen any more, which is an error. clicked is called with the
	// answer; it never blocks for long.
	Run(ctx context.Context, clicked func(Answer)) error
	Show(n Notice)
	Retract(key string)
}

// feedAgain is the pause before the stream of events is opened again; feedAway that while the daemon is away, which ends
// when it is back.
const feedAgain, feedAway = 2 * time.Second, time.Minute

// Notifier tells the user what happened. Its methods are safe for concurrent use.
type Notifier struct {
	screen  Screen
	feed    Feed
	log     *slog.Logger
	answers chan Answer
	wake    chan struct{} // something to do for Run
	back    chan struct{} // the daemon answers again

	mu       sync.Mutex
	settings Settings
	latest   *Input // not handled yet
	events   []api.Event
	last     Input // as of the last look
	gone     bool  // the daemon, as of the last Observe
}

// maxEvents bounds how many events wait to be handled.
const maxEvents = 1000

// New makes a Notifier. Nothing is shown before Run is called.
func New(screen Screen, feed Feed, settings Settings, log *slog.Logger) *Notifier {
	return &Notifier{screen: screen, feed: feed, settings: settings, log: log, answers: make(chan Answer, 16), wake: make(chan struct{}, 1), back: make(chan struct{}, 1)}
}

// Answers are what the user clicked. The channel is closed when Run returns.
func (n *Notifier) Answers() <-chan Answer { return n.answers }

// Observe takes the newest snapshot, or the error that came instead of one. It never blocks.
func (n *Notifier) Observe(s api.Snapshot, err error) {
	in := &Input{Snapshot: s}
	if err != nil {
		if !errors.Is(err, &api.Error{Code: api.CodeUnavailable}) {
			return // it answers, if only with an error: nothing is known of what changed
		}
		in = &Input{Gone: true}
	}
	n.mu.Lock()
	returned := n.gone && !in.Gone
	n.latest, n.gone = in, in.Gone
	n.mu.Unlock()
	wake(n.wake)
	if returned {
		wake(n.back)
	}
}

// Set changes which kinds are shown from now on.
func (n *Notifier) Set(s Settings) {
	n.mu.Lock()
	n.settings = s
	n.mu.Unlock()
}

// Say shows what the tray itself has to say.
func (n *Notifier) Say(notice Notice) {
	notice.Kind, notice.About = Tray, Subject{}
	n.screen.Show(notice)
}

// Again shows the notice of something that still waits for an answer, such as Asks or Accepts give. It is taken back as usual.
func (n *Notifier) Again(notice Notice) { n.screen.Show(notice) }

// wake has whoever waits look; it need not be told twice.
func wake(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}

// Run shows notices until ctx ends, which is no error, or there is no screen any more.
func (n *Notifier) Run(ctx context.Context) error {
	defer close(n.answers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { n.follow(ctx) })
	ended := make(chan error, 1)
	parts.Go(func() {
		ended <- n.screen.Run(ctx, func(a Answer) {
			select {
			case n.answers <- a:
			case <-ctx.Done():
			}
		})
	})
	defer cancel()
	var m State
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-n.wake:
		case <-timer.C:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return <-ended
		}
		m = n.step(m)
		if at := m.Wake(time.Now()); !at.IsZero() {
			timer.Reset(time.Until(at) + time.Millisecond)
		}
	}
}

// step shows what is new.
func (n *Notifier) step(m State) State {
	n.mu.Lock()
	in, settings := n.last, n.settings
	if n.latest != nil {
		in = *n.latest
		n.last, n.latest = in, nil
	} else if !m.observed && !in.Gone { // an event, and nothing to compare it with
		n.events = nil
		n.mu.Unlock()
		return m
	}
	in.Events, n.events = n.events, nil
	n.mu.Unlock()
	in.Now = time.Now()
	next, plan := m.Next(in, settings)
	for _, key := range plan.Retract {
		n.screen.Retract(key)
	}
	for _, notice := range plan.Show {
		n.log.Debug("notice", "kind", notice.Kind, "title", notice.Title)
		n.screen.Show(notice)
	}
	return next
}

// follow collects the daemon's events; those that came before the first snapshot are old.
func (n *Notifier) follow(ctx context.Context) {
	from := client.EventsFrom{Follow: true, Latest: true}
	for ctx.Err() == nil {
		for e, err := range n.feed.Events(ctx, from) {
			if err != nil {
				break
			}
			from.Latest, from.Since = false, e.Seq
			n.mu.Lock()
			if len(n.events) < maxEvents {
				n.events = append(n.events, e)
			}
			n.mu.Unlock()
			wake(n.wake)
		}
		pause := feedAgain
		n.mu.Lock()
		if n.gone {
			pause = feedAway
		}
		n.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-n.back:
		case <-ctx.Done():
		}
	}
}

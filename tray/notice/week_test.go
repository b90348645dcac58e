package notice

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// paper is a screen that keeps what was shown, and when.
type paper struct {
	mu    sync.Mutex
	shown []shown
	gone  map[string]bool // keys that were taken back since
}

type shown struct {
	at time.Time
	Notice
}

func (p *paper) Run(ctx context.Context, _ func(Answer)) error { <-ctx.Done(); return nil }

func (p *paper) Show(n Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = append(p.shown, shown{time.Now(), n})
	delete(p.gone, n.Key)
}

func (p *paper) Retract(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[key] = true
}

// wire is a daemon's stream of events.
type wire chan api.Event

func (w wire) Events(ctx context.Context, _ client.EventsFrom) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for {
			select {
			case e := <-w:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// entry is one line of the record of a week.
type entry struct {
	at   time.Duration // since Monday, 0:00
	what func(w *week)
}

// week plays a record to a Notifier as it runs in the tray.
type week struct {
	*paper
	t      *testing.T
	n      *Notifier
	wire   wire
	s      api.Snapshot
	seq    uint64
	record []entry
}

func at(day int, clock string) time.Duration {
	c, err := time.Parse("15:04:05", clock+":00"[:max(0, 8-len(clock))])
	if err != nil {
		panic(err)
	}
	return time.Duration(day)*24*time.Hour + c.Sub(c.Truncate(24*time.Hour))
}

func (w *week) write(at time.Duration, what func(w *week)) {
	w.record = append(w.record, entry{at, what})
}

// play lets the week pass.
func (w *week) play() {
	slices.SortStableFunc(w.record, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	monday := time.Now()
	for _, e := range w.record {
		time.Sleep(time.Until(monday.Add(e.at)))
		e.what(w)
		synctest.Wait()
	}
}

func (w *week) see() { w.n.Observe(clone(w.s), nil) }

func (w *week) event(e api.Event) {
	w.seq++
	e.Seq = w.seq
	w.wire <- e
	synctest.Wait()
}

// reach is what a record says of peers: that they can be reached, or not.
func reach(is bool, names ...string) func(w *week) {
	return func(w *week) {
		for i := range w.s.Peers {
			p := &w.s.Peers[i]
			if !slices.Contains(names, p.Name) {
				continue
			}
			p.Outgoing, p.Why = api.StateConnected, ""
			if !is {
				p.Outgoing, p.Why = api.StateUnreachable, "it does not answer"
			}
		}
		w.see()
	}
}

func happens(e api.Event) func(w *week) { return func(w *week) { w.event(e) } }

func asks(id, who string) func(w *week) {
	return func(w *week) {
		w.s.Requests = append(w.s.Requests, request(id, who))
		w.see()
	}
}

func noLonger(id string) func(w *week) {
	return func(w *week) {
		w.s.Requests = slices.DeleteFunc(w.s.Requests, func(r api.Request) bool { return r.ID == id })
		w.see()
	}
}

// ordinary is what happens on every day of work: a colleague who comes and goes forty times, others who come in the morning, leave for lunch and go home,
// contracts that are renewed each hour, and this laptop, which sleeps at night with guests on it.
func (w *week) ordinary(day int) {
	others := []string{"carol", "dave", "erin", "frank"}
	w.write(at(day, "08:15"), happens(api.Event{Type: api.EventStoodStill, Message: "3 pods of carol stood still for 13 h, while this laptop slept"}))
	w.write(at(day, "08:15:01"), reach(false, append(others, "bob")...)) // it looks for them
	w.write(at(day, "08:15:05"), reach(true, "bob"))
	for i, who := range others {
		w.write(at(day, "08:31")+time.Duration(i)*17*time.Minute, reach(true, who))
		w.write(at(day, "12:02")+time.Duration(i)*7*time.Second, reach(false, who))
		w.write(at(day, "12:48")+time.Duration(i)*40*time.Second, reach(true, who))
		w.write(at(day, "17:20")+time.Duration(i)*13*time.Minute, reach(false, who))
	}
	for i := range 40 {
		away := at(day, "08:40") + time.Duration(i)*14*time.Minute
		w.write(away, reach(false, "bob"))
		w.write(away+time.Duration(1+i*7%9)*time.Minute, reach(true, "bob"))
	}
	for hour := range 10 {
		for i, who := range append(others, "bob") {
			now := at(day, "08:50") + time.Duration(hour)*time.Hour + time.Duration(i)*time.Minute
			for _, direction := range []api.Direction{api.Outgoing, api.Incoming} {
				w.write(now, happens(api.Event{Type: api.EventContractSigned, Reason: api.ReasonRenewed, Peer: who, Direction: direction, Message: who + " grants cpu 2"}))
			}
		}
	}
	for i := range 8 { // evicted for a moment, and refused
		w.write(at(day, "11:00")+time.Duration(i)*20*time.Minute, func(w *week) {
			w.s.Guests = append(w.s.Guests, api.Guest{Namespace: fmt.Sprint("d", day), Name: fmt.Sprint("web-", i), Consumer: "carol", ConsumerID: "ID-carol", Phase: phaseRefused, Why: "beyond the contract"})
			w.see()
		})
	}
}

// special is what happens once in the week.
func (w *week) special() {
	for i := range 180 { // Tuesday: a link that flaps
		w.write(at(1, "14:00")+time.Duration(i)*20*time.Second, reach(false, "dave"))
		w.write(at(1, "14:00")+time.Duration(i)*20*time.Second+12*time.Second, reach(true, "dave"))
	}
	for i := range 24 { // Wednesday: somebody who does not take silence for an answer
		id := fmt.Sprint("m", i)
		w.write(at(2, "09:30")+time.Duration(i)*11*time.Minute, asks(id, "mallory"))
		w.write(at(2, "09:30")+time.Duration(i)*11*time.Minute+10*time.Minute, func(w *week) {
			noLonger(id)(w)
			w.event(api.Event{Type: api.EventRequestAnswered, Peer: "mallory", Direction: api.Incoming, State: api.StateExpired})
		})
	}
	w.write(at(2, "11:07"), asks("g", "grace")) // and in between, somebody new
	w.write(at(2, "11:20"), noLonger("g"))
	disk := api.Problem{Severity: api.SeverityError, What: "the disk is full", Why: "3 GiB are left"}
	for i := range 20 { // a disk at its limit
		w.write(at(2, "14:00")+time.Duration(i)*12*time.Minute, func(w *week) { set(&w.s.Status.Problems, disk); w.see() })
		w.write(at(2, "14:05")+time.Duration(i)*12*time.Minute, func(w *week) { w.s.Status.Problems = nil; w.see() })
	}
	// Thursday: a budget is used up, and what is granted is less.
	w.write(at(3, "16:00"), happens(api.Event{Type: api.EventLowering, Peer: "erin", Direction: api.Outgoing, Message: "erin lowers what it grants: cpu 2 → 1"}))
	w.write(at(3, "16:30"), happens(api.Event{Type: api.EventPeeringEnded, Peer: "frank", ByPeer: true, Direction: api.Outgoing, Message: "the contract with frank is over: its budget is used up"}))
	// Thursday: bob, who came and went all day, is gone for good at a quarter to six, with pods.
	w.write(at(3, "17:59"), reach(false, "bob"))
	w.write(at(3, "23:59"), reach(true, "bob"))
	// Friday: the Kubernetes here fails.
	w.write(at(4, "15:00"), func(w *week) {
		w.s.Status.Engine.State, w.s.Status.Engine.Why = api.EngineFailed, "its database cannot be read"
		w.see()
	})
	w.write(at(4, "15:20"), func(w *week) { w.s.Status.Engine.State, w.s.Status.Engine.Why = api.EngineReady, ""; w.see() })
}

// A week of use must not nag, and must lose nothing that matters.
func TestAWeekOfUseDoesNotNag(t *testing.T) {
	const mostADay, mostOnABadDay, mostAnHour = 20, 30, 8
	synctest.Test(t, func(t *testing.T) {
		w := &week{t: t, paper: &paper{gone: map[string]bool{}}, wire: make(wire)}
		w.n = New(w.paper, w.wire, Settings{}, slog.New(slog.DiscardHandler))
		w.s.Status.Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady}
		w.s.Status.Mode, w.s.Status.Awake, w.s.Status.Counts.Guests = api.Autonomous, &api.Awake{}, 3
		for _, who := range []string{"bob", "carol", "dave", "erin", "frank"} {
			p := peer(who, api.StateConnected, api.StateConnected)
			p.Pods.Abroad = 3
			w.s.Peers = append(w.s.Peers, p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.n.Run(ctx) }()
		monday := time.Now()
		w.see()
		synctest.Wait()
		for day := range 5 {
			w.ordinary(day)
		}
		w.special()
		w.play()
		time.Sleep(time.Until(monday.Add(7 * 24 * time.Hour)))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		days, hours := map[int]int{}, map[int]int{}
		var diary strings.Builder
		for _, s := range w.shown {
			since := s.at.Sub(monday)
			days[int(since/(24*time.Hour))]++
			hours[int(since/time.Hour)]++
			fmt.Fprintf(&diary, "%s %s: %s\n", []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}[since/(24*time.Hour)], time.Time{}.Add(since).Format("15:04:05"), s.Title+" | "+strings.ReplaceAll(s.Body, "\n", " "))
		}
		t.Logf("%d of %d entries gave a notification\n%s", len(w.shown), len(w.record), diary.String())
		for day, n := range days {
			if n > mostOnABadDay || n > mostADay && day != 2 || day > 4 {
				t.Errorf("%d notifications on day %d", n, day)
			}
		}
		for _, hour := range slices.Sorted(maps.Keys(hours)) {
			if hours[hour] > mostAnHour {
				t.Errorf("%d notifications within the hour from %d:00 on", hours[hour], hour)
			}
		}

		told := func(day int, from string, within time.Duration, title string) {
			t.Helper()
			begin := monday.Add(at(day, from))
			for _, s := range w.shown {
				if !s.at.Before(begin) && !s.at.After(begin.Add(within)) && (strings.Contains(s.Title, title) || strings.Contains(s.Body, title)) {
					return
				}
			}
			t.Errorf("within %s after %s of day %d nothing told: %s", within, from, day, title)
		}
		told(0, "08:15", time.Second, "3 pods of carol stood still")
		told(2, "09:30", time.Second, "mallory asks")
		told(2, "11:07", time.Second, "grace asks")
		told(2, "14:00", time.Second, "The disk is full")
		told(3, "16:00", time.Second, "erin lowers what it grants")
		told(3, "16:30", time.Second, "frank ended the contract")
		told(3, "17:59", time.Hour, "bob")
		told(4, "15:00", time.Second, "The local Kubernetes has failed")
		for day := range 5 {
			told(day, "11:00", time.Second, "A pod of carol was refused")
			told(day, "12:02", time.Hour, "dave")
		}
		if w.n.latest != nil {
			t.Error("something was not looked at")
		}
	})
}

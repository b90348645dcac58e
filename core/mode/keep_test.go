package mode

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
)

// tethered runs a story that begins with a laptop that is tethered.
func tetheredStory(t *testing.T, patience time.Duration, story func(*world, *life)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.begin(func(c *Config) { c.Patience = patience }, 0, false)
		if err := <-l.tether(api.TetherOptions{}); err != nil {
			t.Fatal(err)
		}
		l.settled(api.Tethered)
		w.mu.Lock()
		w.events = nil
		w.mu.Unlock()
		story(w, l)
		l.stop()
	})
}

func (w *world) cut() {
	w.set(func() {
		w.contact = peering.Contact{Presence: presence.Presence{Since: time.Now(), Heard: time.Now(), Why: "no answer from 10.0.0.2"}}
	})
}

func (w *world) heal() {
	w.set(func() {
		w.contact = peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}}
	})
}

// told gives the events of a type.
func (w *world) told(of api.EventType) (messages []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Type == of {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func TestTheCompanyIsLostAndComesBack(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		at := time.Now()
		w.cut()
		time.Sleep(time.Second)
		if to := l.leads(); to.Refusal == "" || !to.Soon {
			t.Errorf("after a second the front door says %+v", to)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		to := l.leads()
		if !strings.HasPrefix(to.Refusal, "tethered to corp, which has not answered since "+at.Local().Format("15:04:05")) ||
			!strings.Contains(to.Refusal, "`kith untether --force` takes this laptop back") || to.Soon {
			t.Errorf("the front door says %q", to.Refusal)
		}
		mode, status := l.Status()
		if mode != api.Tethered || !status.DownSince.Equal(at) || !status.Until.IsZero() || !strings.Contains(status.Why, "no answer from 10.0.0.2") {
			t.Errorf("%s %+v", mode, status)
		}
		if why := l.world.peer().Status.Tether.Why; !strings.Contains(why, "has not answered since") {
			t.Errorf("the Peer says %q", why)
		}
		before := len(l.led)
		time.Sleep(24 * time.Hour)
		if len(l.led) != before {
			t.Errorf("the front door was led %d times for nothing", len(l.led)-before)
		}
		if lost := w.told(api.EventTetherLost); len(lost) != 1 {
			t.Errorf("told: %q", lost)
		}
		w.heal()
		time.Sleep(time.Second)
		l.settled(api.Tethered)
		if made := w.told(api.EventTetherMade); len(made) != 1 || made[0] != "corp answers again" {
			t.Errorf("told: %q", made)
		}
		if _, status := l.Status(); !status.DownSince.IsZero() || status.Why != "" {
			t.Errorf("%+v", status)
		}
	})
}

func TestAShortLossIsNotTold(t *testing.T) {
	tetheredStory(t, time.Minute, func(w *world, l *life) {
		w.cut()
		time.Sleep(2 * time.Second) // less than the grace
		w.heal()
		time.Sleep(time.Hour)
		l.settled(api.Tethered)
		if told := append(w.told(api.EventTetherLost), w.told(api.EventTetherMade)...); len(told) > 0 {
			t.Errorf("told: %q", told)
		}
	})
}

// The patience counts from the loss, also through a restart of kithd.
func TestPatienceEnds(t *testing.T) {
	tetheredStory(t, time.Minute, func(w *world, l *life) {
		at := time.Now()
		w.cut()
		time.Sleep(40 * time.Second)
		if _, status := l.Status(); !status.Until.Equal(at.Add(time.Minute)) {
			t.Errorf("%+v", status)
		}
		l.stop()
		next := w.begin(func(c *Config) { c.Patience = time.Minute }, 0, false)
		defer next.stop()
		time.Sleep(19 * time.Second)
		if mode, _ := next.Status(); mode != api.Tethered {
			t.Errorf("%s before its time", mode)
		}
		time.Sleep(10 * time.Second)
		if mode, _ := next.Status(); mode != api.Autonomous {
			t.Errorf("%s after its time", mode)
		}
		ended := w.told(api.EventTetherEnded)
		if len(ended) != 1 || !strings.Contains(ended[0], "untethered from corp: corp did not answer for 1m0s") || !strings.Contains(ended[0], "shop-abc/web-0") {
			t.Errorf("told: %q", ended)
		}
		w.heal() // corp asks again, and hears no
		time.Sleep(time.Minute)
		next.settled(api.Autonomous)
	})
}

func TestTheCompanyGaveTheLaptopBack(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		w.set(func() { w.runs = false })
		time.Sleep(time.Minute)
		l.settled(api.Autonomous)
		if ended := w.told(api.EventTetherEnded); len(ended) != 1 || ended[0] != "untethered from corp: corp gave this laptop back" {
			t.Errorf("told: %q", ended)
		}
	})
}

func TestTheContractRanOut(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		w.set(func() {
			w.slow = true
			w.clear(w.contract())
		})
		time.Sleep(time.Minute)
		if mode, status := l.Status(); mode != api.Tethered || !strings.Contains(status.Why, "corp is to ask for the next one") {
			t.Errorf("%s %+v", mode, status)
		}
		w.set(func() { w.slow = false })
		time.Sleep(time.Second)
		l.settled(api.Tethered)
	})
}

// What the owner does to the Peer by kubectl is his word.
func TestTheOwnerTakesTheRequestAway(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		peer := w.peer()
		peer.Spec.Request = nil
		w.check(w.objects.Update(context.Background(), peer))
		w.react(0)
		time.Sleep(time.Minute)
		l.settled(api.Autonomous)
	})
}

func TestTheOwnerDeletesThePeer(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		w.check(w.objects.Delete(context.Background(), w.peer()))
		w.react(0)
		time.Sleep(time.Minute)
		ctr := w.contract()
		w.mu.Lock()
		defer w.mu.Unlock()
		if mode, _ := l.Status(); mode != api.Autonomous || !w.decides || w.binds || ctr != nil || l.leads().Name != "home" {
			t.Errorf("%s, decides %v, binds %v", mode, w.decides, w.binds)
		}
	})
}

// While the API server here does not answer, the front door leads to the company all the same.
func TestTheFrontDoorNeedsNoEngineWhileTethered(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		l.stop()
		next := w.begin(func(c *Config) { c.Cluster = func() *Cluster { return nil } }, 0, false)
		defer next.stop()
		time.Sleep(10 * time.Second)
		if to := next.leads(); to.Name != "corp" {
			t.Errorf("it leads to %+v", to)
		}
	})
}

func TestUntetherWhileTheCompanyDoesNotAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		options api.UntetherOptions
		least   time.Duration
		most    time.Duration
	}{
		{"bounded", api.UntetherOptions{}, awayPatience, awayPatience + 2*time.Second},
		{"timeout", api.UntetherOptions{Timeout: time.Minute}, time.Minute, time.Minute + 5*time.Second},
		{"force", api.UntetherOptions{Force: true}, 0, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			tetheredStory(t, 0, func(w *world, l *life) {
				w.cut()
				began := time.Now()
				var cut, said string
				if err := <-l.untether(c.options, func(p api.Progress) { cut, said = p.Message, said+p.Message+"\n" }); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("it took %v", took)
				}
				if cut != "ended here, as corp had not taken them away: shop-abc/web-0" {
					t.Errorf("the last word: %q", cut)
				}
				if counts := strings.Contains(said, "corp does not answer, and has 3s left: ") && strings.Contains(said, "and has 1s left"); counts != (c.options.Timeout > 0 || !c.options.Force) {
					t.Errorf("it counts down: %v\n%s", counts, said)
				}
				w.heal()
				time.Sleep(time.Minute)
				l.settled(api.Autonomous)
			})
		})
	}
}

// A company that answers and takes nothing away is waited for, and more force ends that.
func TestForceOnTopOfAnUntether(t *testing.T) {
	tetheredStory(t, 0, func(w *world, l *life) {
		w.set(func() { w.stuck = true })
		gentle := l.untether(api.UntetherOptions{}, func(api.Progress) {})
		time.Sleep(time.Minute)
		mode, status := l.Status()
		if mode != api.Untethering || status.Step != "leaving" || status.Why != "1 pod of its run here yet" {
			t.Errorf("%s %+v", mode, status)
		}
		if to := l.leads(); to.Refusal != "this laptop is being untethered from corp, and answers for itself in a moment" {
			t.Errorf("the front door says %+v", to)
		}
		if err := <-l.untether(api.UntetherOptions{Force: true}, func(api.Progress) {}); err != nil {
			t.Error(err)
		}
		if err := <-gentle; err != nil {
			t.Error(err)
		}
		l.settled(api.Autonomous)
	})
}

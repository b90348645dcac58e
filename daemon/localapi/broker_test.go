package localapi

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
)

func messages(events []api.Event) (out []string) {
	for _, e := range events {
		if e.Type == api.EventMissed {
			out = append(out, "missed: "+e.Message)
		} else {
			out = append(out, e.Message)
		}
	}
	return out
}

func TestSlowReaderIsToldWhatItMissed(t *testing.T) {
	b := NewBroker(3)
	start := b.Last()
	publish := func(from, to int) {
		for i := from; i <= to; i++ {
			b.Publish(api.Event{Message: fmt.Sprint(i)})
		}
	}
	expect := func(since uint64, want ...string) uint64 {
		t.Helper()
		events, _ := b.After(since)
		if fmt.Sprint(messages(events)) != fmt.Sprint(want) {
			t.Errorf("after %d: %q, want %q", since-start, messages(events), want)
		}
		for i := 1; i < len(events); i++ {
			if events[i].Seq != events[i-1].Seq+1 {
				t.Errorf("gap after %d", events[i-1].Seq)
			}
		}
		if len(events) == 0 {
			return since
		}
		return events[len(events)-1].Seq
	}
	expect(0)
	publish(1, 2)
	seen := expect(start, "1", "2")
	publish(3, 4)
	expect(seen, "3", "4")
	expect(0, "2", "3", "4")                                                             // no wish, nothing missed
	expect(start, "missed: 1 events are no longer remembered", "2", "3", "4")            // the reader from before the first
	expect(start-1000, "2", "3", "4")                                                    // a reader of an earlier daemon
	expect(b.Last()+1000, "2", "3", "4")                                                 // the clock was set back
	publish(5, 100)                                                                      //
	seen = expect(seen, "missed: 95 events are no longer remembered", "98", "99", "100") //
	expect(seen)
}

func TestFollowerWakesForEachEventAndPublishNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBroker(8)
		b.now = time.Now
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			since := b.Last()
			for len(got) < 3 {
				events, more := b.After(since)
				for _, e := range events {
					got, since = append(got, e.Time.Format("05 ")+e.Message), e.Seq
				}
				if len(got) < 3 {
					<-more
				}
			}
		}()
		synctest.Wait()
		for i := range 3 {
			time.Sleep(time.Second)
			b.Publish(api.Event{Message: fmt.Sprint(i)})
		}
		<-done
		if fmt.Sprint(got) != "[01 0 02 1 03 2]" {
			t.Error(got)
		}
		for i := range 10_000 { // nobody reads any more
			b.Publish(api.Event{Message: fmt.Sprint(i)})
		}
	})
}

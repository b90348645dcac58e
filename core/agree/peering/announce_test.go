package peering

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/trust/identity"
)

// A laptop that says that it goes to sleep is asleep at once, though it answers, and back by its word.
func TestWhoGoesToSleepIsAsleepAtOnceAndBackByItsWord(t *testing.T) {
	alice, who := someone(t), someone(t)
	first := serve(t, who, "127.0.0.1:0", Limits{})
	first.recognised[alice.ID()] = true
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: who.ID(), Addresses: []string{first.addr}}})
	becomes(t, c, who.ID(), presence.Reachable)
	first.server.Announce(within(t, 10*time.Second), NoticeSuspending)
	got := becomes(t, c, who.ID(), presence.Suspended)
	if got.Why != wentToSleep || got.Heard.IsZero() || got.Works() || !presence.Node.Over(got.Presence, time.Now()) {
		t.Errorf("%+v", got)
	}
	if !got.Reached.IsValid() || got.Reached.String() != first.addr {
		t.Errorf("reached at %s, want %s", got.Reached, first.addr)
	}
	c.Poke() // it answers, and is what it said
	first.server.Announce(within(t, 10*time.Second), NoticeAwake)
	if got := becomes(t, c, who.ID(), presence.Reachable); got.Why != "" || !got.Works() {
		t.Errorf("%+v", got)
	}
}

// Who says that it sleeps and that it does not, again and again, is asleep once: nodes and pods would be written each time.
func TestWhoTurnsOverInItsSleepIsAwakeUntilItsStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancelCause(context.Background())
		s := &stream{lines: bufio.NewReaderSize(r, maxLine), body: r, ctx: ctx, end: cancel}
		id := identity.ID{1}
		c := NewContacts(ContactsConfig{Identity: someone(t), Log: quiet()})
		c.Set([]Target{{ID: id}})
		one := c.all[id]
		one.set(func(now *Contact) { now.State = presence.Reachable })
		watch := &watchdog{ask: func() error { return nil }}
		var word string
		done := make(chan struct{})
		go func() {
			defer close(done)
			word, _ = one.listen(ctx, s, watch)
		}()
		says := func(n NoticeType, want presence.State) {
			t.Helper()
			fmt.Fprintf(w, `{"notice":{"type":%q}}`+"\n", n)
			<-c.Notices()
			synctest.Wait()
			if got := state(c, id); got.State != want {
				t.Errorf("after %q: %+v", n, got)
			}
		}
		says(NoticeSuspending, presence.Suspended)
		says(NoticeAwake, presence.Reachable)
		for range 3 {
			time.Sleep(time.Second)
			says(NoticeSuspending, presence.Reachable)
			says(NoticeAwake, presence.Reachable)
		}
		time.Sleep(doubted)
		says(NoticeSuspending, presence.Suspended)
		says(NoticeAwake, presence.Reachable)
		says(NoticeSuspending, presence.Reachable)
		w.CloseWithError(io.EOF)
		<-done
		if one.gone(t.Context(), io.EOF, word); state(c, id).State != presence.Suspended || state(c, id).Heard.IsZero() {
			t.Errorf("its stream ended: %+v", state(c, id))
		}
		watch.end()
		s.close()
		c.Set(nil)
	})
}

// A notice of something else, as of a receipt that was under way, does not wake who said that it goes to sleep, nor take its word back; its end does.
func TestANoticeOfSomethingElseWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancelCause(context.Background())
		s := &stream{lines: bufio.NewReaderSize(r, maxLine), body: r, ctx: ctx, end: cancel}
		id := identity.ID{1}
		c := NewContacts(ContactsConfig{Identity: someone(t), Log: quiet()})
		c.Set([]Target{{ID: id}})
		one := c.all[id]
		one.set(func(now *Contact) { now.State = presence.Reachable })
		watch := &watchdog{ask: func() error { return nil }}
		var word string
		done := make(chan struct{})
		go func() {
			defer close(done)
			word, _ = one.listen(ctx, s, watch)
		}()
		says := func(line string, want presence.State, kept bool) {
			t.Helper()
			fmt.Fprintln(w, line)
			synctest.Wait()
			if got := state(c, id); got.State != want || (got.LastWord != nil) != kept {
				t.Errorf("after %s: %+v", line, got)
			}
		}
		says(`{"notice":{"type":"suspending","wake":{"document":"e30="}}}`, presence.Suspended, true)
		for _, line := range []string{`{"notice":{"type":"receipt"}}`, `{"notice":{"type":"contract-lowered"}}`, `{"notice":{"type":"not known here"}}`} {
			says(`{"beat":{}}`, presence.Suspended, true)
			says(line, presence.Suspended, true)
		}
		for range heartbeatsToSleep - 3 {
			says(`{"beat":{}}`, presence.Suspended, true)
		}
		says(`{"beat":{}}`, presence.Reachable, false) // it beats on, notices between or not
		time.Sleep(doubted)
		says(`{"notice":{"type":"suspending","wake":{"document":"e30="}}}`, presence.Suspended, true)
		says(`{"notice":{"type":"receipt"}}`, presence.Suspended, true)
		says(`{"notice":{"type":"bye"}}`, presence.Suspended, false)
		<-done
		if one.gone(t.Context(), io.EOF, word); state(c, id).State != presence.Unreachable {
			t.Errorf("its daemon ended: %+v", state(c, id))
		}
		watch.end()
		s.close()
		c.Set(nil)
	})
}

// That nobody answers where one went to sleep is no news; that it ended, or is somebody else, is.
func TestOneThatSleepsStaysAsleepUntilMoreIsKnown(t *testing.T) {
	id := identity.ID{1}
	c := NewContacts(ContactsConfig{Identity: someone(t), Log: quiet()})
	c.Set([]Target{{ID: id}})
	one := c.all[id]
	for what, end := range map[string]struct {
		err   error
		word  string
		state presence.State
		cause presence.Cause
		why   string
	}{
		"the stream ends":           {io.EOF, wentToSleep, presence.Suspended, "", wentToSleep},
		"a dial fails":              {errSilent, "", presence.Suspended, "", wentToSleep},
		"it ended before":           {io.EOF, "kithd ended there", presence.Unreachable, "", "kithd ended there"},
		"somebody else answers":     {&identity.MismatchError{}, "", presence.Unreachable, presence.OtherKey, lost(&identity.MismatchError{}, "")},
		"it speaks another version": {&Problem{Code: CodeVersion, Message: "v9"}, "", presence.Unreachable, presence.OtherVersion, lost(&Problem{Code: CodeVersion, Message: "v9"}, "")},
	} {
		one.set(func(now *Contact) {
			now.State, now.Cause, now.Why, now.Clock = presence.Suspended, "", wentToSleep, time.Hour
		})
		one.gone(t.Context(), end.err, end.word)
		if got := state(c, id); (got.Clock == time.Hour) != (end.state == presence.Suspended) || got.State != end.state || got.Cause != end.cause || got.Why != end.why {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestAnAnnouncementEndsWithItsStreamsAndItsContext(t *testing.T) {
	alice, stranger, bob := someone(t), someone(t), bob(t, Limits{})
	bob.recognised[alice.ID()] = true
	other, err := dialer(t, stranger, bob.ID(), bob.addr).presence(within(t, 10*time.Second))
	must(t, err)
	defer other.close()
	told := make(chan Notice, 1)
	go func() {
		if n, err := other.next(nil); err == nil {
			told <- n
		}
	}()
	bob.server.Announce(within(t, 10*time.Second), NoticeSuspending) // to nobody
	s, err := dialer(t, alice, bob.ID(), bob.addr).presence(within(t, 10*time.Second))
	must(t, err)
	bob.server.Announce(within(t, 10*time.Second), NoticeSuspending)
	if n, err := s.next(nil); err != nil || n.Type != NoticeSuspending {
		t.Errorf("%+v, %v", n, err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	bob.server.Announce(over, NoticeSuspending)
	s.close()
	bob.server.Announce(within(t, 10*time.Second), NoticeAwake)
	select {
	case n := <-told:
		t.Errorf("a stranger is told: %+v", n)
	default:
	}
	other.close()
	eventually(t, "the streams are forgotten", func() bool {
		bob.server.streams.mu.Lock()
		defer bob.server.streams.mu.Unlock()
		return len(bob.server.streams.all) == 0
	})
}

// Who came before this daemon had read its contracts is told all the same.
func TestWhoIsRecognisedByNowIsTold(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	s, err := dialer(t, alice, bob.ID(), bob.addr).presence(within(t, 10*time.Second))
	must(t, err)
	defer s.close()
	bob.mu.Lock()
	bob.recognised[alice.ID()] = true
	bob.mu.Unlock()
	bob.server.Announce(within(t, 10*time.Second), NoticeSuspending)
	if n, err := s.next(nil); err != nil || n.Type != NoticeSuspending {
		t.Errorf("%+v, %v", n, err)
	}
}

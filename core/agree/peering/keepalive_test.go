package peering

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/trust/identity"
)

// watched is a watchdog with a peer that answers or not.
type watched struct {
	*watchdog
	asked, lost atomic.Int32
	answer      error
	takes       time.Duration
}

func newWatched() *watched {
	w := &watched{}
	w.watchdog = &watchdog{
		ask:  func() error { w.asked.Add(1); time.Sleep(w.takes); return w.answer },
		lost: func() { w.lost.Add(1) },
	}
	return w
}

func (w *watched) is(t *testing.T, asked, lost int32) {
	t.Helper()
	synctest.Wait()
	if a, l := w.asked.Load(), w.lost.Load(); a != asked || l != lost {
		t.Errorf("asked %d times, lost %d times; want %d, %d", a, l, asked, lost)
	}
}

var beat = presenceLine{Beat: &Beat{}}

func TestOnlySilenceIsAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		defer w.end()
		for range 100 {
			w.line(beat)
			time.Sleep(heartbeatEvery)
		}
		w.line(presenceLine{Notice: &Notice{Type: NoticeContractEnded}}) // is a sign of life too
		time.Sleep(silence - time.Millisecond)
		w.is(t, 0, 0)
		time.Sleep(2 * time.Millisecond)
		w.is(t, 1, 0) // it answers, so it lives
		time.Sleep(silence)
		w.is(t, 2, 0)
	})
}

func TestWhoIsSilentAndDoesNotAnswerIsLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		w.answer, w.takes = errors.New("no answer"), checkTimeout
		w.line(beat)
		last := time.Now()
		time.Sleep(silence + checkTimeout + time.Millisecond)
		w.is(t, 1, 1)
		w.line(beat) // too late
		time.Sleep(time.Minute)
		w.is(t, 1, 1)
		if heard := w.end(); heard.Sub(last) != silence+checkTimeout+time.Millisecond {
			t.Errorf("last heard after %s", heard.Sub(last))
		}
	})
}

func TestALineThatComesDuringTheQuestionSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		defer w.end()
		w.answer, w.takes = errors.New("no answer"), checkTimeout
		w.line(beat)
		time.Sleep(silence + time.Second)
		w.line(beat)
		time.Sleep(checkTimeout)
		w.is(t, 1, 0)
	})
}

// A peer of before there were beats is the kernel's affair, however long it says nothing.
func TestWhoNeverBeatIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		defer w.end()
		w.line(presenceLine{Notice: &Notice{Type: NoticeContractEnded}})
		time.Sleep(time.Hour)
		w.is(t, 0, 0)
	})
}

func TestAnEndWaitsForTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		w.answer, w.takes = errors.New("no answer"), checkTimeout
		w.line(beat)
		time.Sleep(silence + time.Second)
		w.end()
		w.is(t, 1, 0)
		time.Sleep(time.Minute)
		w.is(t, 1, 0)
	})
}

// All streams beat at the same moment, and when there are none nothing wakes.
func TestBeatsShareOneWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sharedTicker{every: heartbeatEvery}
		begin := time.Now()
		for range 3 {
			a := p.wait()
			time.Sleep(time.Second)
			if b := p.wait(); a != b {
				t.Error("two streams wait for two ticks")
			}
			<-a
		}
		if took := time.Since(begin); took != 3*heartbeatEvery {
			t.Errorf("three beats took %s", took)
		}
		time.Sleep(time.Hour)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.next != nil {
			t.Error("it ticks for nobody")
		}
	})
}

// However fast lines come, of whatever kind, they are read at a measured pace; the rest is held back by TCP.
func TestAFloodOfLinesIsReadSlowly(t *testing.T) {
	for _, line := range []string{`{"beat":{}}`, `{}`, `{"unknown":1}`, `{"notice":{"type":"x"}}`} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			var sent atomic.Int32
			go func() {
				for {
					if _, err := w.Write([]byte(line + "\n")); err != nil {
						return
					}
					sent.Add(1)
				}
			}()
			ctx, cancel := context.WithCancelCause(context.Background())
			s := &stream{lines: bufio.NewReaderSize(r, maxLine), body: r, ctx: ctx, end: cancel}
			c := NewContacts(ContactsConfig{Identity: someone(t), Log: quiet()})
			c.Set([]Target{{ID: identity.ID{1}}})
			go func() {
				for {
					select {
					case <-c.heard:
					case <-ctx.Done():
						return
					}
				}
			}()
			watch := &watchdog{ask: func() error { return nil }}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.all[identity.ID{1}].listen(ctx, s, watch)
			}()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			room := maxLine / (len(line) + 1) // read ahead
			if n, most := int(sent.Load()), linesAtOnce+10*linesPerSec+room+2; n > most || n < linesAtOnce {
				t.Errorf("%s: %d lines in 10 s, want at most %d", line, n, most)
			}
			s.close()
			<-ended
			watch.end()
		})
	}
}

// next waits for a notice; each line before it, and the notice's, is shown to see, which may be nil.
func (s *stream) next(see func(presenceLine) error) (Notice, error) {
	for {
		l, err := s.line()
		if err == nil && see != nil {
			err = see(l)
		}
		if err != nil {
			return Notice{}, err
		}
		if l.Notice != nil {
			return *l.Notice, nil
		}
	}
}

// quick has a server beat often.
func quick(s *Server) {
	s.heartbeats.every, s.rechecks.every = 10*time.Millisecond, 10*time.Millisecond
}

func TestBeatsAreForThoseWhoAreRecognised(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{}, quick)
	s, err := dialer(t, alice, bob.ID(), bob.addr).presence(within(t, 10*time.Second))
	must(t, err)
	defer s.close()
	beats := 0
	see := func(l presenceLine) error {
		if l.Beat != nil {
			beats++
		}
		if beats == 5 {
			return io.EOF
		}
		return nil
	}
	time.Sleep(100 * time.Millisecond)
	bob.tell(alice.ID(), Notice{Type: NoticeContractEnded})
	if _, err := s.next(see); err != nil || beats != 0 {
		t.Fatalf("%d beats for a stranger, %v", beats, err)
	}
	bob.mu.Lock()
	bob.recognised[alice.ID()] = true // by a contract, say; its stream goes on
	bob.mu.Unlock()
	if _, err := s.next(see); err != io.EOF {
		t.Errorf("%d beats, %v", beats, err)
	}
}

func TestABeatSaysHowTheDaemonIs(t *testing.T) {
	says := make(chan Beat, 1)
	says <- Beat{}
	alice, bob := someone(t), bob(t, Limits{}, quick, func(s *Server) {
		s.config.Beat = func() Beat { b := <-says; says <- b; return b }
	})
	bob.recognised[alice.ID()] = true
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: bob.ID(), Addresses: []string{bob.addr}}})
	becomes(t, c, bob.ID(), presence.Reachable)
	for _, b := range []Beat{{Ailing: "its Kubernetes does not answer"}, {Ailing: "its disk\nis full"}, {Asleep: true}, {}} {
		<-says
		says <- b
		want := strings.ReplaceAll(b.Ailing, "\n", "?")
		eventually(t, fmt.Sprintf("bob says %+v", b), func() bool {
			got := state(c, bob.ID())
			return got.Why == want && got.Asleep == b.Asleep && got.Works() == (b.Ailing == "")
		})
	}
	if got := state(c, bob.ID()); got.State != presence.Reachable || !got.Heard.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestCutIsForOneCallerOnly(t *testing.T) {
	alice, carol, bob := someone(t), someone(t), bob(t, Limits{})
	ofAlice, ofCarol := dialer(t, alice, bob.ID(), bob.addr), dialer(t, carol, bob.ID(), bob.addr)
	hers, err := ofAlice.presence(within(t, 10*time.Second))
	must(t, err)
	defer hers.close()
	others, err := ofCarol.presence(within(t, 10*time.Second))
	must(t, err)
	defer others.close()
	bob.server.Cut(alice.ID())
	if n, err := hers.next(nil); err == nil {
		t.Errorf("alice is still connected: %+v", n)
	}
	bob.tell(carol.ID(), Notice{Type: NoticeContractEnded})
	if _, err := others.next(nil); err != nil {
		t.Errorf("carol was cut off: %v", err)
	}
	_, err = ofAlice.Hello(within(t, 10*time.Second))
	must(t, err)
}

// A daemon that is stopped keeps its connections, and its kernel acknowledges for it. The test runs itself as bob.
func TestAStoppedDaemonIsUnreachableUntilItGoesOn(t *testing.T) {
	if friend := os.Getenv(stoppedEnv); friend != "" {
		beStopped(t, friend)
		return
	}
	if testing.Short() {
		t.Skip("waits for beats that do not come")
	}
	t.Parallel()
	alice := someone(t)
	cmd := exec.CommandContext(within(t, time.Minute), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), stoppedEnv+"="+alice.ID().String(), "TMPDIR="+t.TempDir()) // which goes, though the other is killed
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	text, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	name, addr, _ := strings.Cut(strings.TrimSpace(text), " ")
	bob, err := identity.ParseID(name)
	must(t, err)

	told := make(chan identity.ID, 1)
	c, _ := keep(t, alice)
	c.config.Silent = func(id identity.ID) { told <- id }
	c.Set([]Target{{ID: bob, Addresses: []string{addr}}})
	since := becomes(t, c, bob, presence.Reachable).Since
	time.Sleep(200 * time.Millisecond) // the first beat comes with the greeting

	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	for state(c, bob).State == presence.Reachable && time.Since(stopped) < 30*time.Second {
		time.Sleep(20 * time.Millisecond)
	}
	got := state(c, bob)
	if got.State != presence.Unreachable || got.Why != "no answer" || got.Heard.After(stopped.Add(time.Second)) || got.Heard.Before(since) {
		t.Fatalf("after %s: %+v", time.Since(stopped), got)
	}
	t.Logf("unreachable after %s", time.Since(stopped).Round(10*time.Millisecond))
	if id := <-told; id != bob {
		t.Errorf("told of %s", id)
	}
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	c.Poke(bob) // as its first call here does it
	goesOn := time.Now()
	becomes(t, c, bob, presence.Reachable)
	t.Logf("reachable again after %s", time.Since(goesOn).Round(10*time.Millisecond))
}

const stoppedEnv = "KITH_TEST_STOPPED_FOR"

func beStopped(t *testing.T, friend string) {
	id, err := identity.ParseID(friend)
	must(t, err)
	d := bob(t, Limits{})
	d.mu.Lock()
	d.recognised[id] = true
	d.mu.Unlock()
	var said bytes.Buffer
	fmt.Fprintln(&said, d.ID(), d.addr)
	os.Stdout.Write(said.Bytes())
	time.Sleep(time.Minute)
}

// counting counts what is written on connections.
type counting struct {
	net.Listener
	writes, bytes atomic.Int64
}

type counted struct {
	net.Conn
	by *counting
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return &counted{conn, c}, err
}

func (c *counted) Write(p []byte) (int, error) {
	c.by.writes.Add(1)
	c.by.bytes.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func TestABeatIsOneSmallPacket(t *testing.T) {
	alice, who := someone(t), someone(t)
	d := newMemory(who)
	d.recognised[alice.ID()] = true
	server := NewServer(ServerConfig{Identity: who, Name: func() string { return "bob" }, Handler: d, Log: quiet()})
	quick(server)
	l := &counting{Listener: listen(t, "127.0.0.1:0")}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	defer func() { cancel(); <-served }()
	s, err := dialer(t, alice, who.ID(), l.Addr().String()).presence(within(t, 20*time.Second))
	must(t, err)
	defer s.close()
	const many = 100
	var writes, size int64
	beats := 0
	see := func(presenceLine) error {
		switch beats++; beats {
		case 10:
			writes, size = l.writes.Load(), l.bytes.Load()
		case 10 + many:
			return io.EOF
		}
		return nil
	}
	if _, err := s.next(see); err != io.EOF {
		t.Fatal(err)
	}
	writes, size = l.writes.Load()-writes, l.bytes.Load()-size
	if writes > many+5 || size > (many+5)*48 {
		t.Errorf("%d beats are %d writes of %d bytes together", many, writes, size)
	}
	t.Logf("%d bytes each", size/writes)
}

// A laptop that said it goes to sleep beats a moment longer, and is asleep then, not lost; one that is awake again is not asleep.
func TestBeatsAfterALastWord(t *testing.T) {
	for beats, want := range map[int]string{0: "went to sleep", heartbeatsToSleep: "went to sleep", heartbeatsToSleep + 1: ""} {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancelCause(context.Background())
		s := &stream{lines: bufio.NewReaderSize(r, maxLine), body: r, ctx: ctx, end: cancel}
		c := NewContacts(ContactsConfig{Identity: someone(t), Log: quiet()})
		c.Set([]Target{{ID: identity.ID{1}}})
		go func() {
			fmt.Fprintln(w, `{"notice":{"type":"suspending"}}`)
			fmt.Fprint(w, strings.Repeat(`{"beat":{}}`+"\n", beats))
			w.CloseWithError(errSilent)
		}()
		watch := &watchdog{ask: func() error { return nil }}
		if word, err := c.all[identity.ID{1}].listen(ctx, s, watch); word != want || !errors.Is(err, errSilent) {
			t.Errorf("after %d beats: %q, %v", beats, word, err)
		}
		watch.end()
		s.close()
		c.Set(nil)
	}
}

package peering

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

// Mallory stands between alice and bob with a key of his own: alice, who knows nobody by key, reaches him as a first contact,
// and he reaches bob. What he can do is counted in tries, each one in a million, and each try must be on somebody's screen.

// generous lets mallory ask as often as he likes, so that only the order of the messages stands in his way.
var generous = Limits{
	AskRate: Rate{1e6, 1e6}, CallerRate: Rate{1e6, 1e6}, IPRate: Rate{1e6, 1e6},
	Questions: WindowLimit{1e6, 1e6, time.Hour}, Openings: WindowLimit{1e6, 1e6, time.Hour},
}

// owner hears what is told.
type owner struct {
	mu  sync.Mutex
	all []string
}

func (o *owner) hear(_, _, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, message)
}

func (o *owner) heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

func (d *memory) know(who *identity.Identity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recognised[who.ID()] = true
}

func TestARelayInBetweenShowsTwoCodes(t *testing.T) {
	alice, mallory, bob := someone(t), someone(t), bob(t, Limits{})
	relay := serve(t, mallory, "127.0.0.1:0", Limits{})
	toBob := dialer(t, mallory, bob.ID(), bob.addr)

	atAlice, err := dialer(t, alice, identity.ID{}, relay.addr).Ask(within(t, patience), someQuestion(), true, goOn)
	must(t, err)
	atMallory, err := toBob.Ask(within(t, patience), relay.asks()[0].question, true, goOn)
	must(t, err)
	atBob := bob.asks()
	if len(atBob) != 1 || atBob[0].code != atMallory.Code || atBob[0].caller.ID != mallory.ID() {
		t.Fatalf("bob sees %+v", atBob)
	}
	if atBob[0].code == atAlice.Code { // by chance once in a million runs
		t.Errorf("both see %s", atAlice.Code)
	}
	// And who knows bob's ID never gets as far.
	_, err = dialer(t, alice, bob.ID(), relay.addr).Ask(within(t, patience), someQuestion(), true, goOn)
	var mismatch *identity.MismatchError
	if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), bob.ID().String()) || !strings.Contains(err.Error(), mallory.ID().String()) {
		t.Errorf("%v, want a mismatch that names both", err)
	}
}

// relayed is a mallory whose answers are passed on from bob message by message, as far as they fit, and who commits to bob's
// very commitment: alice must see that it was not made for her and him.
func TestARelayThatPassesEveryMessageOnIsFound(t *testing.T) {
	alice, mallory, bob := someone(t), someone(t), bob(t, Limits{})
	toBob := dialer(t, mallory, bob.ID(), bob.addr)
	relay := serve(t, mallory, "127.0.0.1:0", Limits{}, func(s *Server) {
		s.mux = http.NewServeMux()
		s.call("GET "+helloPath, callTimeout, s.hello)
		s.call("POST /kith/v2/requests", callTimeout, func(_ http.ResponseWriter, r *http.Request, _ Caller) (message, error) {
			var opened Opened
			err := toBob.Call(r.Context(), http.MethodPost, r.URL.Path, &Opening{}, &opened)
			return &opened, err
		})
		s.call("POST /kith/v2/requests/{id}/question", callTimeout, func(w http.ResponseWriter, r *http.Request, _ Caller) (message, error) {
			var asking Asking
			if err := read(w, r, &asking); err != nil {
				return nil, err
			}
			var revealed Revealed
			err := toBob.Call(r.Context(), http.MethodPost, r.URL.Path, &asking, &revealed)
			return &revealed, err
		})
	})
	_, err := dialer(t, alice, identity.ID{}, relay.addr).Ask(within(t, patience), someQuestion(), true, goOn)
	var broken *BrokenOffError
	if !errors.As(err, &broken) || !errors.Is(err, identity.ErrCommitment) {
		t.Errorf("alice: %v, want that the commitment is not for her and mallory", err)
	}
	if n := len(bob.asks()); n != 1 {
		t.Errorf("%d questions before bob's owner, want the one that mallory paid with", n)
	}
}

// As the asker, mallory opens as often as he likes, and learns nothing of bob's nonce before his own is out with a question.
func TestAnAskerInTheMiddleLearnsNoCodeThatIsNotOnTheScreen(t *testing.T) {
	mallory, bob := someone(t), bob(t, generous)
	toBob := dialer(t, mallory, bob.ID(), bob.addr)
	ctx := within(t, patience)
	const openings, questions = 200, 20
	var last Opened
	seen := map[string]bool{}
	for range openings { // opened, and left
		must(t, toBob.Call(ctx, http.MethodPost, "/kith/v2/requests", &Opening{}, &last))
		if seen[string(last.Commitment)] {
			t.Fatal("bob commits to a nonce twice: mallory can learn it with one question and use it with the next")
		}
		seen[string(last.Commitment)] = true
	}
	if n := len(bob.asks()); n != 0 {
		t.Fatalf("%d questions came of openings alone", n)
	}
	for i := range questions {
		must(t, toBob.Call(ctx, http.MethodPost, "/kith/v2/requests", &Opening{}, &last))
		nonce := identity.NewNonce()
		answer, err := post(ctx, toBob, "/kith/v2/requests/"+last.ID+"/question", &Asking{Nonce: nonce[:], Question: someQuestion()})
		must(t, err)
		// Whatever mallory can compute now, bob's owner saw first.
		code := identity.Code(mallory.ID(), bob.ID(), nonce, identity.Nonce(answer.Nonce))
		if asks := bob.asks(); len(asks) != i+1 || asks[i].code != code {
			t.Fatalf("try %d: mallory knows %s, bob's owner has seen %d questions", i, code, len(asks))
		}
	}
}

func post(ctx context.Context, c *Client, path string, in any) (out Revealed, err error) {
	err = c.Call(ctx, http.MethodPost, path, in, &out)
	return out, err
}

// As the responder, mallory is bound before alice's nonce comes. He knows the code first; all he can do with that is not to
// reveal, which alice's owner is told, and after which alice does not ask by herself.
func TestAResponderInTheMiddleHasOneTryPerQuestionOfTheOwner(t *testing.T) {
	alice, mallory := someone(t), someone(t)
	nonce := identity.NewNonce()
	var tries atomic.Int32
	for name, end := range map[string]func(http.ResponseWriter) (message, error){
		"says no": func(http.ResponseWriter) (message, error) {
			return nil, &Problem{Code: CodeUnavailable, Message: "later"}
		},
		"closes": func(http.ResponseWriter) (message, error) { panic(http.ErrAbortHandler) },
		"reveals another": func(http.ResponseWriter) (message, error) {
			return &Revealed{ID: "a", Nonce: bytes.Repeat([]byte{1}, 32)}, nil
		},
		"answers with nothing": func(w http.ResponseWriter) (message, error) {
			w.WriteHeader(http.StatusNoContent)
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tries.Store(0)
			relay := serve(t, mallory, "127.0.0.1:0", Limits{}, func(s *Server) {
				s.mux = http.NewServeMux()
				s.call("GET "+helloPath, callTimeout, s.hello)
				s.call("POST /kith/v2/requests", callTimeout, func(_ http.ResponseWriter, _ *http.Request, c Caller) (message, error) {
					bound := identity.Commit(nonce, c.ID, mallory.ID())
					return &Opened{ID: "a", Commitment: bound[:]}, nil
				})
				s.mux.HandleFunc("POST /kith/v2/requests/{id}/question", func(w http.ResponseWriter, r *http.Request) {
					tries.Add(1)
					out, err := end(w)
					if err != nil {
						WriteProblem(w, err)
						return
					}
					s.call("POST /answer", callTimeout, func(http.ResponseWriter, *http.Request, Caller) (message, error) { return out, nil })
					r.URL.Path, r.ContentLength = "/answer", 0
					s.mux.ServeHTTP(w, r)
				})
			})
			said := 0
			_, err := dialer(t, alice, identity.ID{}, relay.addr).Ask(within(t, patience), someQuestion(), true, func() error { said++; return nil })
			var broken *BrokenOffError
			if !errors.As(err, &broken) {
				t.Errorf("alice: %v, want that the pairing was broken off", err)
			}
			if said != 1 || tries.Load() != 1 {
				t.Errorf("alice's nonce went out %d times, and %d times it was written down that it does; want one attempt", tries.Load(), said)
			}
		})
	}
}

// An asker that cannot write down that its nonce goes out does not send it: after a crash it would not know.
func TestNoNonceGoesOutThatIsNotWrittenDown(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	full := errors.New("disk full")
	_, err := dialer(t, alice, bob.ID(), bob.addr).Ask(within(t, patience), someQuestion(), true, func() error { return full })
	var broken *BrokenOffError
	if !errors.Is(err, full) || errors.As(err, &broken) || len(bob.asks()) != 0 {
		t.Errorf("%v, %d questions at bob", err, len(bob.asks()))
	}
}

// Mallory knows the code at alice and asks bob until it comes up there. Each try replaces the question on bob's screen, so
// the screen does not tell: the limiter bounds it, whatever keys he uses, and the owner hears of it.
func TestStrangersHaveABudgetOfTriesAndKnownKeysHaveNone(t *testing.T) {
	limits := generous
	limits.Questions = WindowLimit{All: 6, Each: 4, Within: 10 * time.Minute}
	limits.Openings = WindowLimit{All: 1000, Each: 1000, Within: 10 * time.Minute}
	var told owner
	var later atomic.Int64
	bob := bob(t, limits, func(s *Server) {
		s.refusals = audit.New(quiet(), audit.Options{Tell: told.hear})
		s.asked.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	ctx := within(t, patience)
	ask := func(from string, who *identity.Identity) error {
		r := Caller{ID: who.ID(), Key: who.Public(), Addr: netip.MustParseAddrPort(from)}
		_, err := bob.server.spend(bob.server.asked, r, "questions")
		return err
	}
	mallory := someone(t)
	for range 4 {
		_, err := dialer(t, mallory, bob.ID(), bob.addr).Ask(ctx, someQuestion(), true, goOn)
		must(t, err)
	}
	// His address is spent, with this key and with another; others go on, and hear nothing of it.
	for _, who := range []*identity.Identity{mallory, someone(t)} {
		_, err := dialer(t, who, bob.ID(), bob.addr).Ask(ctx, someQuestion(), true, goOn)
		wantProblem(t, err, CodeRateLimited)
	}
	if len(told.heard()) != 0 || len(bob.asks()) != 4 {
		t.Fatalf("%d questions, the owner was told %q", len(bob.asks()), told.heard())
	}
	must(t, ask("10.0.0.1:1", someone(t)))
	must(t, ask("[2001:db8::1]:1", someone(t)))
	wantProblem(t, ask("10.0.0.2:1", someone(t)), CodeRateLimited)
	wantProblem(t, ask("10.0.0.3:1", someone(t)), CodeRateLimited)
	if all := told.heard(); len(all) != 1 || !strings.Contains(all[0], "6 questions") {
		t.Errorf("the owner was told %q, want one sentence", all)
	}
	// Whose key is known here asks all the same.
	carol := someone(t)
	bob.know(carol)
	_, err := dialer(t, carol, bob.ID(), bob.addr).Ask(ctx, someQuestion(), false, goOn)
	must(t, err)
	later.Store(int64(10 * time.Minute))
	must(t, ask("10.0.0.2:1", someone(t)))
}

func TestOpeningsThatNoQuestionFollowsAreBudgeted(t *testing.T) {
	limits := generous
	limits.Openings = WindowLimit{All: 3, Each: 3, Within: 10 * time.Minute}
	var told owner
	bob := bob(t, limits, func(s *Server) { s.refusals = audit.New(quiet(), audit.Options{Tell: told.hear}) })
	ctx := within(t, patience)
	for range 5 { // with their question they cost nothing
		_, err := dialer(t, someone(t), bob.ID(), bob.addr).Ask(ctx, someQuestion(), true, goOn)
		must(t, err)
	}
	for i := range 5 {
		err := dialer(t, someone(t), bob.ID(), bob.addr).Call(ctx, http.MethodPost, "/kith/v2/requests", &Opening{}, &Opened{})
		if i < 3 {
			must(t, err)
		} else {
			wantProblem(t, err, CodeRateLimited)
		}
	}
	if all := told.heard(); len(all) != 1 || !strings.Contains(all[0], "openings") {
		t.Errorf("the owner was told %q, want one sentence", all)
	}
	friend := someone(t)
	bob.know(friend)
	_, err := dialer(t, friend, bob.ID(), bob.addr).Ask(ctx, someQuestion(), false, goOn)
	must(t, err)
}

func TestAnAddressOfIPv6IsItsNetwork(t *testing.T) {
	b := newWindowLimiter(WindowLimit{All: 10, Each: 1, Within: time.Hour})
	for _, c := range []struct {
		addr string
		ok   bool
	}{{"2001:db8::1", true}, {"2001:db8::ffff", false}, {"2001:db8:0:1::1", true}, {"10.0.0.1", true}, {"::ffff:10.0.0.1", false}, {"10.0.0.2", true}} {
		if cost, _ := b.take(netip.MustParseAddr(c.addr)); (cost != nil) != c.ok {
			t.Errorf("%s: %v", c.addr, cost)
		}
	}
}

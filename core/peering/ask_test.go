package peering

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/identity"
)

func TestBothOwnersSeeOneCodeAndTheAnswerArrives(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, identity.ID{}, bob.addr) // by address: whose it is turns out
	asked, err := client.Ask(within(t, 10*time.Second), someQuestion())
	must(t, err)
	if asked.PeerID != bob.ID() || !asked.PeerKey.Equal(bob.Public()) || asked.PeerName != "bob" || asked.Recognised {
		t.Errorf("%+v", asked)
	}
	at := bob.asks()
	if len(at) != 1 || at[0].code != asked.Code || len(asked.Code) != 6 || at[0].id != asked.RequestID || at[0].recognised {
		t.Fatalf("bob sees %+v, alice %+v", at, asked)
	}
	if c := at[0].caller; c.ID != alice.ID() || !c.Key.Equal(alice.Public()) || c.Addr.Addr().String() != "127.0.0.1" {
		t.Errorf("caller %+v", c)
	}
	if at[0].question.Name != "alice" || at[0].question.Resources["cpu"] != "1500m" {
		t.Errorf("question %+v", at[0].question)
	}

	// The long poll is held, and released by the answer.
	time.AfterFunc(300*time.Millisecond, func() {
		bob.answer(asked.RequestID, Outcome{State: OutcomeAccepted, Offer: someOffer()})
	})
	begin := time.Now()
	o, err := client.Outcome(within(t, 10*time.Second), asked.RequestID)
	took := time.Since(begin)
	if err != nil || o.State != OutcomeAccepted || o.Offer.Resources["memory"] != "4Gi" {
		t.Fatalf("%+v, %v", o, err)
	}
	if took < 250*time.Millisecond || took > 900*time.Millisecond {
		t.Errorf("the answer took %s, want 300 ms", took)
	}
}

func TestAPeerOnceAcceptedIsRecognised(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	bob.recognised[alice.ID()] = true
	asked, err := dialer(t, alice, bob.ID(), bob.addr).Ask(within(t, 10*time.Second), someQuestion())
	if err != nil || !asked.Recognised || !bob.asks()[0].recognised {
		t.Errorf("%+v, %v", asked, err)
	}
}

// Mallory relays between alice and bob with a key of his own. Alice speaks to him as to a first contact.
func TestARelayInBetweenShowsTwoCodes(t *testing.T) {
	alice, mallory, bob := someone(t), someone(t), bob(t, Limits{})
	relay := serve(t, mallory, "127.0.0.1:0", Limits{})
	toBob := dialer(t, mallory, bob.ID(), bob.addr)

	atAlice, err := dialer(t, alice, identity.ID{}, relay.addr).Ask(within(t, 10*time.Second), someQuestion())
	must(t, err)
	passedOn := relay.asks()[0].question
	_, err = toBob.Ask(within(t, 10*time.Second), passedOn)
	must(t, err)
	if atBob := bob.asks()[0]; atBob.code == atAlice.Code { // by chance once in a million runs
		t.Errorf("both see %s", atAlice.Code)
	}

	// To pass on alice's own messages does not help him either: her commitment was for his key.
	nonce := identity.NewNonce()
	commitment := identity.Commit(nonce, alice.ID(), mallory.ID())
	var opened Opened
	ctx := within(t, 10*time.Second)
	must(t, toBob.Call(ctx, http.MethodPost, "/kith/v1/requests", &Opening{commitment[:], passedOn}, &opened))
	err = toBob.Call(ctx, http.MethodPost, "/kith/v1/requests/"+opened.ID+"/reveal", &Reveal{nonce[:]}, &Revealed{})
	wantProblem(t, err, CodeCommitment)
	if len(bob.asks()) != 1 {
		t.Error("a question with a wrong commitment came before the owner")
	}
	if text := bob.log.String(); !strings.Contains(text, "refused") || !strings.Contains(text, mallory.ID().String()) {
		t.Errorf("the log does not name mallory:\n%s", text)
	}
	// And who knows bob's ID never gets as far.
	_, err = dialer(t, alice, bob.ID(), relay.addr).Ask(within(t, 10*time.Second), someQuestion())
	var mismatch *identity.MismatchError
	if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), bob.ID().String()) || !strings.Contains(err.Error(), mallory.ID().String()) {
		t.Errorf("%v, want a mismatch that names both", err)
	}
}

func TestARevealIsGoodOnce(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, 10*time.Second)
	open := func() (Opened, identity.Nonce) {
		nonce := identity.NewNonce()
		c := identity.Commit(nonce, alice.ID(), bob.ID())
		var o Opened
		must(t, client.Call(ctx, http.MethodPost, "/kith/v1/requests", &Opening{c[:], someQuestion()}, &o))
		return o, nonce
	}
	reveal := func(id string, nonce identity.Nonce) error {
		return client.Call(ctx, http.MethodPost, "/kith/v1/requests/"+id+"/reveal", &Reveal{nonce[:]}, &Revealed{})
	}
	first, firstNonce := open()
	must(t, reveal(first.ID, firstNonce))
	wantProblem(t, reveal(first.ID, firstNonce), CodeNotFound)

	// A wrong nonce uses the opening up: the right one comes too late.
	second, secondNonce := open()
	wantProblem(t, reveal(second.ID, identity.NewNonce()), CodeCommitment)
	wantProblem(t, reveal(second.ID, secondNonce), CodeNotFound)

	// A new opening takes the place of the one before, and nobody else can reveal it.
	third, thirdNonce := open()
	fourth, fourthNonce := open()
	wantProblem(t, reveal(third.ID, thirdNonce), CodeNotFound)
	stranger := dialer(t, someone(t), bob.ID(), bob.addr)
	wantProblem(t, stranger.Call(ctx, http.MethodPost, "/kith/v1/requests/"+fourth.ID+"/reveal", &Reveal{fourthNonce[:]}, nil), CodeNotFound)
	must(t, reveal(fourth.ID, fourthNonce))
	if n := len(bob.asks()); n != 2 {
		t.Errorf("%d questions came before the owner, want 2", n)
	}
}

func TestOpeningsAreBounded(t *testing.T) {
	o := openings{all: map[identity.ID]opening{}}
	in := messages()["opening"].(*Opening)
	first := o.add(identity.ID{1}, in)
	for i := range maxOpenings {
		o.add(identity.ID{2, byte(i), byte(i >> 8)}, in)
	}
	if len(o.all) != maxOpenings {
		t.Errorf("%d openings", len(o.all))
	}
	if _, err := o.take(identity.ID{1}, first.id); err == nil {
		t.Error("the oldest is still there")
	}
	late := o.add(identity.ID{1}, in)
	late.made = late.made.Add(-openingLife - time.Second)
	o.all[identity.ID{1}] = late
	_, err := o.take(identity.ID{1}, late.id)
	wantProblem(t, err, CodeExpired)
}

func TestNobodyElseLearnsTheOutcome(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{PollTime: 100 * time.Millisecond})
	client := dialer(t, alice, bob.ID(), bob.addr)
	asked, err := client.Ask(within(t, 10*time.Second), someQuestion())
	must(t, err)
	_, err = dialer(t, someone(t), bob.ID(), bob.addr).Outcome(within(t, 10*time.Second), asked.RequestID)
	wantProblem(t, err, CodeNotFound)

	// No answer: the client polls again until its caller has enough.
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	o, err := client.Outcome(ctx, asked.RequestID)
	if o.State != OutcomePending || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", o, err)
	}
	bob.answer(asked.RequestID, Outcome{State: OutcomeDeclined, Reason: "not today"})
	if o, err := client.Outcome(within(t, 10*time.Second), asked.RequestID); err != nil || o.State != OutcomeDeclined || o.Reason != "not today" {
		t.Errorf("%+v, %v", o, err)
	}
}

func between(consumer, provider *identity.Identity) contract.Document {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return contract.Document{
		Version: contract.Version, ID: contract.NewID(), Revision: 1,
		Consumer: contract.Party{ID: consumer.ID(), Name: "alice", Key: consumer.Public()},
		Provider: contract.Party{ID: provider.ID(), Name: "bob", Key: provider.Public()},
		Terms:    someOffer().Terms, NotBefore: begin, NotAfter: begin.Add(time.Hour), Created: begin,
	}
}

func TestContractIsCountersigned(t *testing.T) {
	alice, carol, bob := someone(t), someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, 10*time.Second)
	half, err := contract.New(between(alice, bob.Identity))
	must(t, err)
	_, err = client.Sign(ctx, half) // not signed by alice
	wantProblem(t, err, CodeBadRequest)
	must(t, half.SignAs(contract.Consumer, alice))
	whole, err := client.Sign(ctx, half)
	must(t, err)
	must(t, whole.Verify())

	// Another's contract is not signed for alice, however right it is.
	other, err := contract.New(between(carol, bob.Identity))
	must(t, err)
	must(t, other.SignAs(contract.Consumer, carol))
	_, err = client.Sign(ctx, other)
	wantProblem(t, err, CodeBadRequest)

	list, err := client.Contracts(ctx)
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	must(t, client.End(ctx, "a1b2c3d4e5f6g7h8"))
	if len(bob.ended) != 1 {
		t.Error("the end did not arrive")
	}
	if err := client.End(ctx, "../link"); err == nil {
		t.Error("a path passes for an ID")
	}
}

func TestALyingProviderIsFound(t *testing.T) {
	alice := someone(t)
	forger := bob(t, Limits{}, func(s *Server) {
		other, err := contract.New(between(alice, s.config.Identity))
		must(t, err)
		must(t, errors.Join(other.SignAs(contract.Consumer, alice), other.SignAs(contract.Provider, s.config.Identity)))
		s.mux = http.NewServeMux()
		s.call("POST /kith/v1/contracts", func(http.ResponseWriter, *http.Request, Caller) (message, error) {
			return &signed{other}, nil
		})
	})
	mine, err := contract.New(between(alice, forger.Identity))
	must(t, err)
	must(t, mine.SignAs(contract.Consumer, alice))
	if _, err := dialer(t, alice, forger.ID(), forger.addr).Sign(within(t, 10*time.Second), mine); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Error(err)
	}
}

func TestLinkIsExchangedAndErrorsOfTheDeskKeepTheirSecrets(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, 10*time.Second)
	_, err := client.Link(ctx, someLink())
	if p := wantProblem(t, err, CodeNoContract); strings.Contains(p.Message, "private") {
		t.Error(p)
	}
	bob.recognised[alice.ID()] = true
	theirs, err := client.Link(ctx, someLink())
	if err != nil || theirs.Port != 6450 || bob.links[0].Aliases[0].Prefix.String() != "10.60.0.0/16" {
		t.Errorf("%+v, %v", theirs, err)
	}
	bob.broken = errors.New("etcd says: secret of bob")
	_, err = client.Contracts(ctx)
	if p := wantProblem(t, err, CodeInternal); strings.Contains(p.Error(), "secret") {
		t.Error(p)
	}
	if !strings.Contains(bob.log.String(), "secret of bob") {
		t.Error("the log has no word of it")
	}
}

func TestAnotherVersionOfTheProtocolIsNamed(t *testing.T) {
	alice, future := someone(t), bob(t, Limits{}, func(s *Server) {
		s.mux = http.NewServeMux()
		s.call("GET /kith/v1/hello", func(http.ResponseWriter, *http.Request, Caller) (message, error) {
			h := s.self()
			h.Protocol = []string{"kith/v7"}
			return h, nil
		})
	})
	_, err := dialer(t, alice, identity.ID{}, future.addr).Ask(within(t, 10*time.Second), someQuestion())
	if p := wantProblem(t, err, CodeVersion); !strings.Contains(p.Message, "kith/v7") || !strings.Contains(p.Message, Protocol) {
		t.Error(p)
	}
	now := bob(t, Limits{})
	err = dialer(t, alice, now.ID(), now.addr).Call(within(t, 10*time.Second), http.MethodGet, "/kith/v7/hello", nil, nil)
	wantProblem(t, err, CodeVersion)
	err = dialer(t, alice, now.ID(), now.addr).Call(within(t, 10*time.Second), http.MethodGet, "/kith/v1/nowhere", nil, nil)
	wantProblem(t, err, CodeNotFound)
}

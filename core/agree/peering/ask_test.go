package peering

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func TestBothOwnersSeeOneCodeAndTheAnswerArrives(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, identity.ID{}, bob.addr) // by address: whose it is turns out
	asked, err := client.Ask(within(t, patience), someQuestion(), true, goOn)
	must(t, err)
	if asked.PeerID != bob.ID() || !asked.PeerKey.Equal(bob.Public()) || asked.PeerName != "bob" || !asked.Compare {
		t.Errorf("%+v", asked)
	}
	at := bob.asks()
	if len(at) != 1 || at[0].code != asked.Code || len(asked.Code) != 6 || at[0].id != asked.RequestID || !at[0].compare {
		t.Fatalf("bob sees %+v, alice %+v", at, asked)
	}
	if c := at[0].caller; c.ID != alice.ID() || !c.Key.Equal(alice.Public()) || c.Addr.Addr().String() != "127.0.0.1" {
		t.Errorf("caller %+v", c)
	}
	if at[0].question.Name != "alice" || at[0].question.Resources["cpu"] != "1500m" {
		t.Errorf("question %+v", at[0].question)
	}

	// The long poll is held, and released by the answer.
	var answered atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() {
		answered.Store(true)
		bob.answer(asked.RequestID, Outcome{State: OutcomeAccepted, Offer: someOffer()})
	})
	o, err := client.Outcome(within(t, patience), asked.RequestID)
	if !answered.Load() {
		t.Error("the long poll was not held")
	}
	if err != nil || o.State != OutcomeAccepted || o.Offer.Resources["memory"] != "4Gi" {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestEachSideSaysThatItsOwnerComparesACode(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	bob.recognised[alice.ID()] = true
	for _, compare := range []bool{true, false} {
		asked, err := dialer(t, alice, bob.ID(), bob.addr).Ask(within(t, patience), someQuestion(), compare, goOn)
		must(t, err)
		asks := bob.asks()
		if last := asks[len(asks)-1]; asked.Compare || last.compare != compare || last.code != asked.Code {
			t.Errorf("alice %+v, bob %+v", asked, last)
		}
	}
}

func TestANonceIsGoodForOneQuestion(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, patience)
	open := func() (o Opened) {
		must(t, client.Call(ctx, http.MethodPost, "/kith/v2/requests", &Opening{}, &o))
		return o
	}
	ask := func(who *Client, id string, revealed *Revealed) error {
		nonce := identity.NewNonce()
		return who.Call(ctx, http.MethodPost, "/kith/v2/requests/"+id+"/question", &Asking{Nonce: nonce[:], Question: someQuestion()}, revealed)
	}
	var revealed Revealed
	first := open()
	must(t, ask(client, first.ID, &revealed))
	must(t, identity.VerifyCommit([32]byte(first.Commitment), identity.Nonce(revealed.Nonce), alice.ID(), bob.ID()))
	wantProblem(t, ask(client, first.ID, &revealed), CodeNotFound) // with another nonce, for another code

	// What cannot be a question leaves the opening as it is; one that came before the owner does not.
	second := open()
	wantProblem(t, client.Call(ctx, http.MethodPost, "/kith/v2/requests/"+second.ID+"/question", &Asking{Nonce: make([]byte, 3)}, nil), CodeBadRequest)
	bob.broken = errors.New("no Kubernetes")
	wantProblem(t, ask(client, second.ID, &revealed), CodeInternal)
	bob.broken = nil
	wantProblem(t, ask(client, second.ID, &revealed), CodeNotFound)

	// A new opening takes the place of the one before, and nobody else can use it.
	third, fourth := open(), open()
	wantProblem(t, ask(client, third.ID, &revealed), CodeNotFound)
	wantProblem(t, ask(dialer(t, someone(t), bob.ID(), bob.addr), fourth.ID, &revealed), CodeNotFound)
	must(t, ask(client, fourth.ID, &revealed))
	if n := len(bob.asks()); n != 2 {
		t.Errorf("%d questions came before the owner, want 2", n)
	}
}

func TestOpeningsAreBounded(t *testing.T) {
	o := newOpenings()
	first := o.add(identity.ID{1}, nil)
	for i := range maxOpenings {
		o.add(identity.ID{2, byte(i), byte(i >> 8)}, nil)
	}
	if n := o.all.Len(); n != maxOpenings {
		t.Errorf("%d openings", n)
	}
	if _, err := o.take(identity.ID{1}, first.id); err == nil {
		t.Error("the oldest is still there")
	}
	late := o.add(identity.ID{1}, nil)
	late.made = late.made.Add(-openingLife - time.Second)
	o.all.Add(identity.ID{1}, late)
	_, err := o.take(identity.ID{1}, late.id)
	wantProblem(t, err, CodeExpired)
}

func TestNobodyElseLearnsTheOutcome(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{PollTime: 100 * time.Millisecond})
	client := dialer(t, alice, bob.ID(), bob.addr)
	asked, err := client.Ask(within(t, patience), someQuestion(), true, goOn)
	must(t, err)
	_, err = dialer(t, someone(t), bob.ID(), bob.addr).Outcome(within(t, patience), asked.RequestID)
	wantProblem(t, err, CodeNotFound)

	// No answer: the client polls again until its caller has enough.
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	o, err := client.Outcome(ctx, asked.RequestID)
	if o.State != OutcomePending || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", o, err)
	}
	bob.answer(asked.RequestID, Outcome{State: OutcomeDeclined, Reason: "not today"})
	if o, err := client.Outcome(within(t, patience), asked.RequestID); err != nil || o.State != OutcomeDeclined || o.Reason != "not today" {
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
	ctx := within(t, patience)
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
		s.call("POST /kith/v2/contracts", callTimeout, func(http.ResponseWriter, *http.Request, Caller) (message, error) {
			return &signed{other}, nil
		})
	})
	mine, err := contract.New(between(alice, forger.Identity))
	must(t, err)
	must(t, mine.SignAs(contract.Consumer, alice))
	if _, err := dialer(t, alice, forger.ID(), forger.addr).Sign(within(t, patience), mine); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Error(err)
	}
}

func TestLinkIsExchangedAndErrorsOfTheDeskKeepTheirSecrets(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	ctx := within(t, patience)
	_, err := client.Link(ctx, someLink())
	if p := wantProblem(t, err, CodeNoContract); strings.Contains(p.Message, "private") {
		t.Error(p)
	}
	bob.recognised[alice.ID()] = true
	theirs, err := client.Link(ctx, someLink())
	if err != nil || theirs.Port != 6450 || bob.links[0].There.String() != "10.66.0.0/24" {
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
		s.call("GET /kith/v1/hello", callTimeout, func(http.ResponseWriter, *http.Request, Caller) (message, error) {
			h := s.self()
			h.Protocol = []string{"kith/v7"}
			return h, nil
		})
	})
	_, err := dialer(t, alice, identity.ID{}, future.addr).Ask(within(t, patience), someQuestion(), true, goOn)
	if p := wantProblem(t, err, CodeVersion); !strings.Contains(p.Message, "kith/v7") || !strings.Contains(p.Message, Protocol) {
		t.Error(p)
	}
	now := bob(t, Limits{})
	err = dialer(t, alice, now.ID(), now.addr).Call(within(t, patience), http.MethodGet, "/kith/v7/hello", nil, nil)
	wantProblem(t, err, CodeVersion)
	err = dialer(t, alice, now.ID(), now.addr).Call(within(t, patience), http.MethodPost, "/kith/v1/requests", &Opening{}, nil)
	if p := wantProblem(t, err, CodeVersion); p.Error() != "bob speaks kith/v2, this Kith speaks kith/v1 (bring both to the same version of Kith)" {
		t.Error(p)
	}
	err = dialer(t, alice, now.ID(), now.addr).Call(within(t, patience), http.MethodGet, "/kith/v2/nowhere", nil, nil)
	wantProblem(t, err, CodeNotFound)
}

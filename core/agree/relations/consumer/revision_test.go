package consumer

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func TestRenewedContractFollowsTheOldOne(t *testing.T) {
	alice, bob := load(t), load(t)
	old := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, time.Hour)
	later := time.Now().Add(50 * time.Minute)
	doc := record.Renewed(old, later, record.RunsFor(old))
	if err := doc.Follows(old); err != nil {
		t.Error(err)
	}
	if err := doc.Validate(); err != nil {
		t.Error(err)
	}
	if !doc.InForce(later) || !doc.InForce(later.Add(59*time.Minute)) || doc.InForce(later.Add(61*time.Minute)) {
		t.Errorf("from %s to %s does not run an hour from %s", doc.NotBefore, doc.NotAfter, later)
	}
}

// signer is a provider that has signed revisions up to one whose answers were lost.
type signer struct {
	peering.Handler
	me  *identity.Identity
	has int64
}

func (s *signer) Recognise(context.Context, peering.Caller) bool { return true }

func (s *signer) Notices(context.Context, peering.Caller) <-chan peering.Notice { return nil }

func (s *signer) Sign(_ context.Context, _ peering.Caller, signed contract.Signed) (contract.Signed, error) {
	doc, err := contract.Parse(signed.Document)
	if err != nil {
		return signed, err
	}
	if doc.Revision <= s.has {
		return signed, peering.Refuse(peering.CodeConflict, "does not come after", "")
	}
	return signed, signed.SignAs(contract.Provider, s.me)
}

func TestRevisionComesAfterThoseWhoseAnswersWereLost(t *testing.T) {
	alice, bob := load(t), load(t)
	bobs := &signer{me: bob}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	server := peering.NewServer(peering.ServerConfig{Identity: bob, Name: func() string { return "bob" }, Handler: bobs, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	to := peering.NewClient(peering.ClientConfig{Identity: alice, Expect: bob.ID(), Addresses: []string{listener.Addr().String()}})
	defer func() {
		to.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	r := New(Config{Identity: alice, Log: log})
	old := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, time.Hour)
	for _, tt := range []struct{ has, want int64 }{{1, 2}, {2, 3}, {4, 5}, {2 + answersLost, 0}} {
		bobs.has = tt.has
		doc := record.Renewed(old, time.Now(), record.RunsFor(old))
		_, err := r.signWith(t.Context(), to, &doc)
		if tt.want == 0 {
			if err == nil {
				t.Errorf("has revision %d: signed revision %d", tt.has, doc.Revision)
			}
		} else if err != nil || doc.Revision != tt.want {
			t.Errorf("has revision %d: signed revision %d, %v", tt.has, doc.Revision, err)
		}
	}
	bobs.has = 1
	if _, err := r.signWith(t.Context(), to, &old); err == nil {
		t.Error("a new contract became a revision")
	}
}

func load(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

package relations

import (
	"testing"
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/identity"
)

func TestRenewedContractFollowsTheOldOne(t *testing.T) {
	alice, bob := load(t), load(t)
	old := newDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, time.Hour)
	later := time.Now().Add(50 * time.Minute)
	doc := renewed(old, later)
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

func load(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

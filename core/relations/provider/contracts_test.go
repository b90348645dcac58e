package provider

import (
	"testing"
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/relations/record"
)

// TestClocksMayBeTenMinutesApart has a consumer sign by its own clock and the provider look at it by another.
func TestClocksMayBeTenMinutesApart(t *testing.T) {
	alice, bob := load(t), load(t)
	for _, tc := range []struct {
		provider time.Duration // how much its clock is ahead of the consumer's
		lasts    time.Duration // as offered
		refused  bool
	}{
		{0, time.Hour, false},
		{-record.ClockSkew + time.Second, time.Hour, false},
		{record.ClockSkew - time.Second, time.Hour, false},
		{record.ClockSkew - time.Second, record.Validity, false},
		{-record.ClockSkew + time.Second, record.Validity, false},
		{-record.ClockSkew - 2*time.Second, time.Hour, true}, // not begun there
		{time.Hour + time.Second, time.Hour, true},           // over there
		{-3 * record.ClockSkew, record.Validity, true},
	} {
		doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
			contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, tc.lasts)
		err := timely(doc, time.Now().Add(tc.provider), tc.lasts)
		if (err != nil) != tc.refused {
			t.Errorf("provider %s ahead, contract for %s: %v", tc.provider, tc.lasts, err)
		}
		again := record.Renewed(doc, time.Now(), record.RunsFor(doc))
		if err := timely(again, time.Now().Add(tc.provider), tc.lasts); (err != nil) != tc.refused {
			t.Errorf("renewal, provider %s ahead, contract for %s: %v", tc.provider, tc.lasts, err)
		}
	}
}

func TestContractMayNotRunLongerThanOffered(t *testing.T) {
	alice, bob := load(t), load(t)
	doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, 2*time.Hour)
	if timely(doc, time.Now(), time.Hour) == nil {
		t.Error("an hour was offered, two were signed")
	}
}

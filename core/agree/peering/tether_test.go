package peering

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func (m *memory) Tether(context.Context, Caller) (Tether, error) {
	return Tether{Answer: TetherAsks}, nil
}

func (m *memory) BeginTether(context.Context, Caller) (Tether, error) {
	return Tether{Answer: TetherYes, Runs: true, Grant: &TetherGrant{User: "kith:laptop:x", Namespaces: []TetherNamespace{{Name: "team", Role: "edit"}}}}, nil
}

func (m *memory) EndTether(context.Context, Caller) error { return nil }

// What a company says of a tether ends up in a laptop's screens and in URLs.
func TestWhatACompanySaysIsChecked(t *testing.T) {
	grant := func(user, namespace, role string) *TetherGrant {
		return &TetherGrant{User: user, Namespaces: []TetherNamespace{{namespace, role}}}
	}
	for name, c := range map[string]struct {
		said  message
		wants string
	}{
		"all is well":       {&Tether{Answer: TetherYes, Runs: true, Grant: grant("kith:laptop:x", "team", "edit")}, ""},
		"no answer":         {&Tether{}, "none of no, asks, yes"},
		"lines in a reason": {&Tether{Answer: TetherNo, Why: "a\nb"}, "why"},
		"a user of a path":  {&Tether{Answer: TetherYes, Grant: grant("../x", "team", "edit")}, "name of a user"},
		"a namespace":       {&Tether{Answer: TetherYes, Grant: grant("x", "Team/..", "edit")}, "name of a namespace"},
		"a role":            {&Tether{Answer: TetherYes, Grant: grant("x", "team", strings.Repeat("e", 257))}, "at most 256"},
		"too many":          {&Tether{Answer: TetherYes, Grant: &TetherGrant{User: "x", Namespaces: make([]TetherNamespace, 65)}}, "at most 64"},
		"an offer as well":  {&Outcome{State: OutcomeAccepted, Offer: &Offer{}, Tether: grant("x", "team", "edit")}, "offer as well"},
		"a grant, declined": {&Outcome{State: OutcomeDeclined, Tether: grant("x", "team", "edit")}, "if and only if accepted"},
		"another question":  {&Question{Name: "alice", Tether: "owner"}, "none of laptop, company"},
	} {
		if err := c.said.Validate(); (err == nil) != (c.wants == "") || err != nil && !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One that has no such route would take the question for one about resources.
func TestAnOlderCompanyIsToldFromANo(t *testing.T) {
	err := error(&Problem{Code: CodeNotFound, Message: "no route /kith/v2/tether"})
	if err = older(err); !errors.Is(err, &Problem{Code: CodeVersion}) || !strings.Contains(err.Error(), "older than this one") {
		t.Error(err)
	}
	if err = older(&Problem{Code: CodeUnavailable}); errors.Is(err, &Problem{Code: CodeVersion}) {
		t.Error(err)
	}
}

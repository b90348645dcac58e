package peering

import (
	"errors"
	"testing"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func TestAQuestionIsTakenBackByWhoAskedIt(t *testing.T) {
	alice, mallory, bob := someone(t), someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	q := someQuestion()
	q.Contract = contract.NewID()
	asked, err := client.Ask(within(t, patience), q, true, goOn)
	must(t, err)
	if at := bob.asks(); len(at) != 1 || at[0].question.Contract != q.Contract {
		t.Fatalf("%+v", at)
	}
	must(t, dialer(t, mallory, identity.ID{}, bob.addr).Withdraw(within(t, patience), asked.RequestID, false))
	if len(bob.asks()) != 1 {
		t.Error("somebody else took it back")
	}
	for _, mismatch := range []bool{false, true} {
		must(t, client.Withdraw(within(t, patience), asked.RequestID, mismatch))
		if bob.mismatch != mismatch {
			t.Errorf("that the codes differ: %v", bob.mismatch)
		}
		if n := len(bob.asks()); n != 0 {
			t.Errorf("%d questions", n)
		}
	}
	if _, err := client.Outcome(within(t, patience), asked.RequestID); !errors.Is(err, &Problem{Code: CodeNotFound}) {
		t.Errorf("the answer to what was taken back: %v", err)
	}
	if err := client.Withdraw(within(t, patience), "a/b", false); err == nil {
		t.Error("that is no ID of a request")
	}
	q.Contract = "../x"
	if q.Validate() == nil {
		t.Error("that is no ID of a contract")
	}
}

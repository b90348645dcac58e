package record

import (
	"testing"

	"kith.dev/core/api/v1alpha1"
)

func TestWhichPolicyAnswered(t *testing.T) {
	for by, want := range map[string]string{"owner": "", "": "", "kubectl": "", "policy default": "default"} { // as older ones wrote it
		if got := AnsweringPolicy(&v1alpha1.PeeringRequest{Status: v1alpha1.PeeringRequestStatus{AnsweredBy: by}}); got != want {
			t.Errorf("%q: %q, want %q", by, got, want)
		}
	}
	for _, c := range []struct {
		answer           v1alpha1.Answer
		policy, answerer string
	}{
		{v1alpha1.AnswerAccepted, "", "owner"}, {v1alpha1.AnswerDeclined, "lab", "policy lab"}, {v1alpha1.AnswerExpired, "", ""},
	} {
		r := &v1alpha1.PeeringRequest{Status: v1alpha1.PeeringRequestStatus{Answer: c.answer, Policy: c.policy, AnsweredBy: AnsweredBy(c.answer, c.policy)}}
		if r.Status.AnsweredBy != c.answerer || AnsweringPolicy(r) != c.policy {
			t.Errorf("%+v: %q, policy %q", c, r.Status.AnsweredBy, AnsweringPolicy(r))
		}
	}
}

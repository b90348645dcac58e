package record

import (
	"strings"

	"kith.dev/core/api/v1alpha1"
)

// byPolicy begins what is said of a request that a policy answered.
const byPolicy = "policy "

// AnsweredBy says in words who gave an answer: a policy, or where that is "" the owner.
func AnsweredBy(answer v1alpha1.Answer, policy string) string {
	switch {
	case policy != "":
		return byPolicy + policy
	case answer == v1alpha1.AnswerExpired:
		return "" // nobody
	}
	return "owner"
}

// AnsweringPolicy is the policy that answered a request by itself; "" when the owner did. A request that was answered under an older Kith
// has the words alone.
func AnsweringPolicy(r *v1alpha1.PeeringRequest) string {
	if r.Status.Policy != "" {
		return r.Status.Policy
	}
	name, found := strings.CutPrefix(r.Status.AnsweredBy, byPolicy) //outcome:older
	if !found {
		return ""
	}
	return name
}

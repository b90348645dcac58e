package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/netpolicy"
	"kith.dev/core/peering"
	"kith.dev/core/reflection"
)

// companions are what a pod needs at a peer besides itself: first of all the policies that hold it.
type companions struct {
	*reflection.Reflector
	policies *netpolicy.Peer
}

// Prepare has all of it there before the pod.
func (c companions) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if err := c.policies.Prepare(ctx); err != nil {
		return err
	}
	return c.Reflector.Prepare(ctx, pod)
}

// policies says how the peer is told which NetworkPolicies hold for the pods there.
func (t *twins) policies(translate func(netip.Addr) (netip.Addr, bool), recorder record.EventRecorder) netpolicy.Config {
	return netpolicy.Config{
		Name: t.peer, Translate: translate, Recorder: recorder, Log: t.log, Final: noPolicies,
		Put: func(ctx context.Context, m *netpolicy.Policies) (*netpolicy.Answer, error) {
			answer := &netpolicy.Answer{}
			err := t.to.Call(ctx, http.MethodPut, netpolicy.Path+"?"+url.Values{"contract": {t.contract}}.Encode(), m, answer)
			return answer, err
		},
	}
}

// noPolicies reports whether a peer will not take policies however often they are sent, and why.
func noPolicies(err error) (why string, final bool) {
	var problem *peering.Problem
	if !errors.As(err, &problem) {
		return "", false
	}
	switch problem.Code {
	case peering.CodeNotFound:
		return "the Kith there is older and knows none", true
	case peering.CodeForbidden, peering.CodeBadRequest, peering.CodeTooLarge:
		return problem.Message, true
	}
	return "", false
}

package consumer

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

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

func (c companions) open(home, twin string, isNew bool) {
	c.policies.Open(home)
	c.Reflector.Open(home, twin, isNew)
}

func (c companions) close(home string) {
	c.policies.Close(home)
	c.Reflector.Close(home)
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

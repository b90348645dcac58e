package guests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/hostingtest"
)

func TestEveryFieldOfAGuestIsAccountedFor(t *testing.T) {
	check, err := newRules()
	if err != nil {
		t.Fatal(err)
	}
	terms := bobsTerms(v1alpha1.PodSecurityBaseline)
	terms.UserNamespaces = true
	hostingtest.PodFields(t, map[string]string{
		// Decided by home's scheduler, and here by this cluster's.
		"nodeName": hostingtest.LeftOut, "nodeSelector": hostingtest.Other, "affinity": hostingtest.LeftOut, "tolerations": hostingtest.LeftOut, "topologySpreadConstraints": hostingtest.LeftOut,
		"schedulerName": hostingtest.LeftOut, "schedulingGates": hostingtest.LeftOut, "schedulingGroup": hostingtest.LeftOut,
		// What they come to counts in makeRoom.
		"priority": hostingtest.LeftOut, "priorityClassName": hostingtest.Other, "preemptionPolicy": hostingtest.LeftOut,
		// Classes of home, and what they cost there; those here are the owner's.
		"runtimeClassName": hostingtest.LeftOut, "overhead": hostingtest.LeftOut,
		// What home alone knows, or does.
		"serviceAccountName": hostingtest.LeftOut, "serviceAccount": hostingtest.LeftOut, "automountServiceAccountToken": hostingtest.Other, "readinessGates": hostingtest.LeftOut,
		"ephemeralContainers": hostingtest.LeftOut, // until the pod is there
		// Beyond the level, and what is not to be had.
		"hostNetwork": hostingtest.Refused, "hostPID": hostingtest.Refused, "hostIPC": hostingtest.Refused, "resourceClaims": hostingtest.Refused,
		// With more than they ask for.
		"hostUsers": hostingtest.Other, "containers": hostingtest.Other, "initContainers": hostingtest.Other, "securityContext": hostingtest.Other,
	}, func(home *corev1.PodSpec) (*corev1.PodSpec, string) {
		pod := podFor(offloadedOf(corev1.PodTemplateSpec{Spec: *home}), terms)
		if no := check.check(pod, v1alpha1.PodSecurityBaseline); no != nil {
			return nil, no.Message
		}
		return &pod.Spec, ""
	})
}

package virtualnode

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/test/hostingtest"
)

func TestEveryFieldOfAPodIsAccountedFor(t *testing.T) {
	hostingtest.PodFields(t, map[string]string{
		// Decided by home's scheduler, among nodes of home.
		"nodeName": hostingtest.LeftOut, "nodeSelector": hostingtest.Other, "affinity": hostingtest.LeftOut, "tolerations": hostingtest.LeftOut, "topologySpreadConstraints": hostingtest.LeftOut,
		"schedulerName": hostingtest.LeftOut, "schedulingGates": hostingtest.LeftOut,
		// Classes of home; the priority that one comes to is told.
		"priorityClassName": hostingtest.LeftOut, "overhead": hostingtest.LeftOut,
		// What home alone knows, or does.
		"serviceAccountName": hostingtest.LeftOut, "serviceAccount": hostingtest.LeftOut, "automountServiceAccountToken": hostingtest.Other, "readinessGates": hostingtest.LeftOut,
	}, func(home *corev1.PodSpec) (*corev1.PodSpec, string) {
		abroad := template(homePod(func(p *corev1.Pod) { p.Spec = *home }))
		return &abroad.Spec, ""
	})
}

package v1alpha1

import "testing"

func TestAnnotationsTravelByList(t *testing.T) {
	for key, want := range map[string]struct{ travels, power bool }{
		"note": {true, false}, "kubectl.kubernetes.io/default-container": {true, false},
		"container.apparmor.security.beta.kubernetes.io/web": {true, false},
		"prometheus.io/scrape":                               {}, "cluster-autoscaler.kubernetes.io/safe-to-evict": {},
		"kubectl.kubernetes.io/default-container/x": {}, "kubectl.kubernetes.io/last-applied-configuration": {},
		"kith.dev/consumer": {}, "sidecar.istio.io/inject": {},
		"k8s.v1.cni.cncf.io/networks": {false, true}, "io.containerd.x": {false, true}, "cdi.k8s.io/gpu": {false, true},
	} {
		if AnnotationTravels(key) != want.travels || AnnotationOfPower(key) != want.power {
			t.Errorf("%s: travels %t, of power %t", key, AnnotationTravels(key), AnnotationOfPower(key))
		}
	}
}

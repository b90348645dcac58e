package guests

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/net/netplan"
)

func TestHomeKnowsAGuestByItsAddressThere(t *testing.T) {
	of := netplan.Translation{
		{Real: netip.MustParsePrefix("198.18.0.0/16"), Alias: netip.MustParsePrefix("10.42.0.0/16")},
		{Real: netip.MustParsePrefix("10.42.0.0/16"), Alias: netip.MustParsePrefix("10.71.0.0/16")},
	}
	for name, c := range map[string]struct {
		t         netplan.Translation
		here, out []string
	}{
		"as it is":         {nil, []string{"10.42.0.9"}, []string{"10.42.0.9"}},
		"moved":            {of, []string{"10.42.0.9"}, []string{"198.18.0.9"}},
		"of two families":  {of, []string{"fd00::9", "10.42.0.9"}, []string{"198.18.0.9"}},
		"none yet":         {of, nil, nil},
		"of the host's":    {of, []string{"192.0.2.12"}, nil},
		"what is no place": {of, []string{"x"}, nil},
	} {
		var s corev1.PodStatus
		for _, a := range c.here {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a})
		}
		if len(c.here) > 0 {
			s.PodIP = c.here[0]
		}
		before := slices.Clone(s.PodIPs)
		cached := s
		ToHome(&s, c.t)
		var got []string
		for _, ip := range s.PodIPs {
			got = append(got, ip.IP)
		}
		if !slices.Equal(got, c.out) || len(got) > 0 && s.PodIP != got[0] || len(got) == 0 && s.PodIP != "" {
			t.Errorf("%s: %s, %v; want %v", name, s.PodIP, got, c.out)
		}
		if !slices.Equal(cached.PodIPs, before) {
			t.Errorf("%s: changed what the cache holds", name)
		}
	}
}

// TestAGuestFindsHomesAPIServerByName: its certificate has no address that leads there from here.
func TestAGuestFindsHomesAPIServerByName(t *testing.T) {
	twin := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: kinds.APIServerAbroad, Annotations: map[string]string{kinds.AnnotationClusterIP: "10.43.0.1"}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.43.9.9"},
	}
	told := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: "10.43.0.1"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "443"}, {Name: "KUBERNETES_PORT", Value: "tcp://10.43.0.1:443"},
		{Name: "KUBERNETES_NEXT", Value: "10.43.0.10"}, {Name: "MINE", Value: "10.43.0.1"},
	}
	pod := func() *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop}}
		p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{{Env: told}}, []corev1.Container{{Env: told}}
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"own"}}}
		return p
	}
	before := slices.Clone(told)
	r, found := newProvider(t, twin).host(events.NewFakeRecorder(1)), pod()
	if err := r.leadHome(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(told)
	want[0].Value, want[2].Value = "kubernetes.default.svc", "tcp://kubernetes.default.svc:443"
	if got := found.Spec; !slices.Equal(got.Containers[0].Env, want) || !slices.Equal(got.InitContainers[0].Env, want) || len(got.HostAliases) != 2 ||
		got.HostAliases[1].IP != "10.43.9.9" || !slices.Contains(got.HostAliases[1].Hostnames, "kubernetes.default.svc") {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(told, before) {
		t.Error("the template itself was changed")
	}
	r, found = newProvider(t).host(events.NewFakeRecorder(1)), pod()
	if err := r.leadHome(t.Context(), found); err != nil || !reflect.DeepEqual(found, pod()) {
		t.Errorf("without a way home: %v, %+v", err, found.Spec)
	}
}

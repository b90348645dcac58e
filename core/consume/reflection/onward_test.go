package reflection

import (
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"kith.dev/core/agree/kinds"
)

// TestWhatHostingPutThereDoesNotGoOn: the DNS of this cluster, and where its twins' addresses are told, are for guests that run here.
func TestWhatHostingPutThereDoesNotGoOn(t *testing.T) {
	const dns = "10.43.0.10"
	ndots := []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}
	searches := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for what, c := range map[string]struct {
		config *corev1.PodDNSConfig
		policy corev1.DNSPolicy
		want   *corev1.PodDNSConfig
		as     corev1.DNSPolicy
	}{
		"as usual":            {&corev1.PodDNSConfig{Nameservers: []string{dns}, Searches: searches, Options: ndots}, corev1.DNSNone, nil, corev1.DNSClusterFirst},
		"the host's":          {&corev1.PodDNSConfig{Nameservers: []string{dns}}, corev1.DNSNone, nil, corev1.DNSDefault},
		"with more of home's": {&corev1.PodDNSConfig{Nameservers: []string{dns, "192.0.2.53"}, Searches: append(searches[:3:3], "example.com"), Options: ndots}, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{}}, corev1.DNSClusterFirst},
		"its own":             {&corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}, corev1.DNSNone},
		"none":                {nil, corev1.DNSClusterFirst, nil, corev1.DNSClusterFirst},
	} {
		links := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: kinds.ServiceLinks}}}
		own := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}
		from := []corev1.EnvFromSource{links, own}
		spec := &corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.config, EnableServiceLinks: new(bool), Containers: []corev1.Container{{EnvFrom: from}}}
		before := c.config.DeepCopy()
		unhost(spec, netip.MustParseAddr(dns))
		if spec.DNSPolicy != c.as || !reflect.DeepEqual(spec.DNSConfig, c.want) || !reflect.DeepEqual(c.config, before) {
			t.Errorf("%s: %s %+v, want %s %+v", what, spec.DNSPolicy, spec.DNSConfig, c.as, c.want)
		}
		if !reflect.DeepEqual(spec.Containers[0].EnvFrom, []corev1.EnvFromSource{own}) || spec.EnableServiceLinks != nil || from[0] != links {
			t.Errorf("%s: %+v", what, spec.Containers[0].EnvFrom)
		}
	}
	silent := &corev1.PodSpec{EnableServiceLinks: new(bool), Containers: []corev1.Container{{}}}
	if unhost(silent, netip.MustParseAddr(dns)); silent.EnableServiceLinks == nil {
		t.Error("one that wants to be told of no services is told of them")
	}
}

func TestAServiceThatGoesOnHasTheAddressOfItsHome(t *testing.T) {
	home := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kinds.AnnotationClusterIP: "10.43.7.8", "a": "b"}}}
	abroad := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kinds.AnnotationClusterIP: "10.43.99.1", kinds.AnnotationClusterIPv6: "fd00::1"}}}
	if keepAddresses(home, abroad); !reflect.DeepEqual(abroad.Annotations, map[string]string{kinds.AnnotationClusterIP: "10.43.7.8"}) {
		t.Errorf("%v", abroad.Annotations)
	}
	headless := &corev1.Service{}
	if keepAddresses(&corev1.Service{}, headless); len(headless.Annotations) != 0 {
		t.Errorf("%v", headless.Annotations)
	}
}

// TestWhoseANamespaceIsIsPartOfWhatWasWritten: what was made of it while nobody knew is made again.
func TestWhoseANamespaceIsIsPartOfWhatWasWritten(t *testing.T) {
	scheme := metafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: map[string]string{kinds.AnnotationClusterIP: "10.43.7.8"}}, Spec: corev1.ServiceSpec{ClusterIP: "10.43.99.1"}}
	home := &Home{core: fake.NewClientset(service), meta: metafake.NewSimpleMetadataClient(scheme)}
	m, err := home.join(func(*kinds.Kind, metav1.Object, metav1.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	defer m.leave()
	if !cache.WaitFor(t.Context(), "", m.synced...) {
		t.Fatal("not everything was seen")
	}
	r, tw, it := reflector(t, home), newTwin("shop", "shop-x"), item{kinds.Service, "shop", "web"}
	s := &session{ctx: t.Context(), member: m, ready: make(chan struct{})}
	close(s.ready)
	stamp := func(onward bool) string {
		r.cfg.Onward = func(string) bool { return onward }
		return r.source(tw, s, it, nil).stamp
	}
	if own, others := stamp(false), stamp(true); own == others || others != stamp(true) {
		t.Error("what is another's is taken for what was this cluster's own")
	}
}

package reflection

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/kinds"
)

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// injected is the volume that admission adds to every pod.
func injected() corev1.Volume {
	return corev1.Volume{Name: "kube-api-access-x1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(420)), Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: kinds.RootCA}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}}
}

func homePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", UID: "u1"},
		Spec: corev1.PodSpec{
			NodeName: "kith-bob", ServiceAccountName: "reader",
			Volumes:        []corev1.Volume{injected()},
			InitContainers: []corev1.Container{{Name: "init", Env: []corev1.EnvVar{fieldEnv("NODE", "spec.nodeName")}}},
			Containers: []corev1.Container{{Name: "web", Env: []corev1.EnvVar{
				fieldEnv("NS", "metadata.namespace"), fieldEnv("UID", "metadata.uid"), fieldEnv("SA", "spec.serviceAccountName"),
				fieldEnv("NAME", "metadata.name"), fieldEnv("IP", "status.podIP"), fieldEnv("HOST", "status.hostIP"), {Name: "KUBERNETES_SERVICE_PORT", Value: "mine"},
			}}},
			DNSConfig: &corev1.PodDNSConfig{Searches: []string{"shop.svc.cluster.local", "shop.svcs.example", "svc.cluster.local"}},
		},
	}
}

func TestThePodKnowsOfItselfWhatHomeKnows(t *testing.T) {
	pod := homePod()
	spec := pod.Spec.DeepCopy()
	adapt(pod, surroundings{home: "shop", twin: "shop-abc", api: netip.MustParseAddr("10.43.0.1"), node: netip.MustParseAddr("10.42.255.1")}, spec)
	if !reflect.DeepEqual(pod, homePod()) {
		t.Error("the home pod was changed")
	}
	env := map[string]corev1.EnvVar{}
	for _, e := range append(spec.InitContainers[0].Env, spec.Containers[0].Env...) {
		if _, twice := env[e.Name]; twice && !strings.HasPrefix(e.Name, "KUBERNETES_") {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = e
	}
	for name, want := range map[string]string{
		"NODE": "kith-bob", "NS": "shop", "UID": "u1", "SA": "reader", "HOST": "10.42.255.1",
		"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "mine", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.43.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.43.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.43.0.1",
	} {
		if got := env[name]; got.Value != want || got.ValueFrom != nil {
			t.Errorf("%s is %+v, want %q", name, got, want)
		}
	}
	for _, name := range []string{"NAME", "IP"} { // the kubelet there knows better
		if env[name].ValueFrom == nil {
			t.Errorf("%s is %+v", name, env[name])
		}
	}
	if first := spec.Containers[0].Env[0].Name; first != "KUBERNETES_SERVICE_HOST" || len(spec.HostAliases) > 0 {
		t.Errorf("variables begin with %s, so others before it cannot refer to it; hostAliases %+v", first, spec.HostAliases)
	}
	if got, want := spec.DNSConfig.Searches, []string{"shop-abc.svc.cluster.local", "shop.svcs.example", "svc.cluster.local"}; !reflect.DeepEqual(got, want) {
		t.Errorf("searches %v, want %v", got, want)
	}
}

func TestTheTokenVolumeBecomesASecretOfTheSameFiles(t *testing.T) {
	pod := homePod()
	spec := pod.Spec.DeepCopy()
	c := adaptVolumes(pod, spec)
	if want := (companion{tokens: []token{{key: "token-0", seconds: 3607}}, ca: true, namespace: true}); !reflect.DeepEqual(c, want) {
		t.Errorf("companion %+v, want %+v", c, want)
	}
	files := map[string]string{}
	for _, source := range spec.Volumes[0].Projected.Sources {
		if source.Secret == nil || source.Secret.Name != "kith-pod-web-1" {
			t.Fatalf("source %+v", source)
		}
		for _, item := range source.Secret.Items {
			files[item.Path] = item.Key
		}
	}
	if want := map[string]string{"token": "token-0", "ca.crt": "ca.crt", "namespace": "namespace"}; !reflect.DeepEqual(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
}

func TestVolumesOfTheDownwardAPI(t *testing.T) {
	pod := homePod()
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "own", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			{Path: "uid", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}, Mode: new(int32(256))},
		}}}},
		{Name: "other", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		}}}},
	}
	spec := pod.Spec.DeepCopy()
	if c := adaptVolumes(pod, spec); !reflect.DeepEqual(c, companion{uid: true}) {
		t.Errorf("companion %+v", c)
	}
	own := spec.Volumes[0]
	if own.DownwardAPI != nil || len(own.Projected.Sources) != 2 || own.Projected.Sources[0].Secret.Items[0].Key != "uid" || len(own.Projected.Sources[1].DownwardAPI.Items) != 1 {
		t.Errorf("volume %+v", own)
	}
	if spec.Volumes[1].DownwardAPI == nil {
		t.Error("a volume that says the same everywhere was changed")
	}
}

// A guest has labels and annotations of Kith's, and not all that the pod at home has.
func TestLabelsAndAnnotationsAreThoseOfHome(t *testing.T) {
	pod := homePod()
	pod.Labels = map[string]string{"app": "web", "b": "it's \"b\""}
	pod.Annotations = map[string]string{"note": "two\nlines", "example.org/word": "w", "kith.dev/odd": "o"}
	file := func(path, field string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	env := func(name, field string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		file("labels", "metadata.labels"), file("annotations", "metadata.annotations"), file("app", "metadata.labels['app']"), file("word", "metadata.annotations['example.org/word']"),
	}}}}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Env: []corev1.EnvVar{env("WORD", "metadata.annotations['example.org/word']")}}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{
		env("APP", "metadata.labels['app']"), env("NOTE", "metadata.annotations['note']"), env("CONSUMER", "metadata.labels['kith.dev/consumer']"),
		env("HOME", "metadata.annotations['kith.dev/home-pod']"), env("NAME", "metadata.name"),
	}}}
	c := companionOf(pod)
	values := map[string]string{}
	for _, path := range c.fields {
		values[path] = fieldValue(pod, path)
	}
	want := map[string]string{
		"metadata.labels":                           "app=\"web\"\nb=\"it's \\\"b\\\"\"",
		"metadata.annotations":                      "example.org/word=\"w\"\nkith.dev/odd=\"o\"\nnote=\"two\\nlines\"",
		"metadata.annotations['example.org/word']":  "w",
		"metadata.labels['kith.dev/consumer']":      "",
		"metadata.annotations['kith.dev/home-pod']": "",
	}
	if !maps.Equal(values, want) {
		t.Errorf("the companion holds %q, want %q", values, want)
	}
	spec := pod.Spec.DeepCopy()
	adapt(pod, surroundings{home: "shop", twin: "shop-x"}, spec)
	fromCompanion := func(e corev1.EnvVar) bool {
		return e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == companionName(pod.Name)
	}
	for _, e := range append(spec.InitContainers[0].Env, spec.Containers[0].Env...) {
		if got, want := fromCompanion(e), slices.Contains([]string{"WORD", "CONSUMER", "HOME"}, e.Name); got != want || want && e.ValueFrom.FieldRef != nil {
			t.Errorf("%s: %+v", e.Name, e.ValueFrom)
		}
	}
	sources := spec.Volumes[0].Projected.Sources
	if len(sources) != 2 || len(sources[0].Secret.Items) != 3 || sources[1].DownwardAPI.Items[0].Path != "app" {
		t.Errorf("volume %+v", sources)
	}

	// What was written before is known again after a restart, and changes with the pod.
	before := c.fieldsStamp(pod)
	pod.Labels["more"] = "yes"
	if again := companionOf(pod); again.fieldsStamp(pod) == before || !slices.Equal(again.fields, c.fields) {
		t.Error("a changed label is not seen")
	}
	if none := (&companion{}).fieldsStamp(pod); none != "" {
		t.Errorf("a pod that asks for nothing has the stamp %s", none)
	}
}

func TestTokensOfOneKindAreMadeOnce(t *testing.T) {
	pod := homePod()
	vault := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "vault"}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, injected(), corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{vault}}}})
	if c := companionOf(pod); !reflect.DeepEqual(c.tokens, []token{{key: "token-0", seconds: 3607}, {key: "token-1", audience: "vault"}}) {
		t.Errorf("tokens %+v", c.tokens)
	}
}

func TestReferencesOfAPod(t *testing.T) {
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := homePod()
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{local("pull"), {}}
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		corev1.Volume{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("cm-volume")}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret-volume"}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("cm-projected")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("secret-projected")}},
		}}}})
	pod.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("cm-envfrom")}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("secret-envfrom")}}}
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
		corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("cm-env")}}},
		corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("secret-env")}}},
		corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("secret-env")}}})
	got := map[item]bool{}
	for _, it := range references(pod) {
		if got[it] {
			t.Errorf("%v is there twice", it)
		}
		got[it] = true
	}
	want := map[item]bool{}
	for _, name := range []string{"cm-volume", "cm-projected", "cm-envfrom", "cm-env"} {
		want[item{kinds.ConfigMap, "shop", name}] = true
	}
	for _, name := range []string{"pull", "secret-volume", "secret-projected", "secret-envfrom", "secret-env"} {
		want[item{kinds.Secret, "shop", name}] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestCompanionNamesFit(t *testing.T) {
	long := strings.Repeat("a", 253)
	if n := companionName(long); len(n) > 253 || n == companionName(long[:252]+"b") {
		t.Errorf("%d characters: %s", len(n), n)
	}
}

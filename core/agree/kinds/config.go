package kinds

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap and Secret go where a pod refers to them.
var (
	ConfigMap = &Kind{
		Name: "ConfigMap", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Type: &corev1.ConfigMap{}, Direction: Out, ByReference: true,
		Quota:          Quota{Name: corev1.ResourceConfigMaps, Most: 250},
		MetadataPolicy: "tenants-objects",
		Bounds:         []Bound{{Name: "tenants-configmaps", Rules: []Rule{entriesRule("data"), entriesRule("binaryData")}}},
		Stays:          func(home metav1.Object) bool { return home.GetName() == RootCA },
		Map:            mapping(mapConfigMap),
		TakeOut: takingOut(func(got, want *corev1.ConfigMap) bool {
			found := !sameKeys(got.Data, want.Data) || !sameKeys(got.BinaryData, want.BinaryData) || got.Immutable != nil
			got.Data, got.BinaryData, got.Immutable = want.Data, want.BinaryData, nil
			return found
		}),
	}
	Secret = &Kind{
		Name: "Secret", Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Type: &corev1.Secret{}, Direction: Out, ByReference: true,
		Quota:          Quota{Name: corev1.ResourceSecrets, Most: 250, PerPod: 1}, // each pod's own, and those that pods refer to
		MetadataPolicy: "tenants-objects",
		Bounds: []Bound{{Name: "tenants-secrets", Rules: []Rule{entriesRule("data"), {
			`!has(object.type) || object.type in ["Opaque", "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg", "kubernetes.io/tls", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"]`,
			"type: this type of Secret means something in this cluster",
		}}}},
		Map: mapping(mapSecret),
		TakeOut: takingOut(func(got, want *corev1.Secret) bool {
			found := !sameKeys(got.Data, want.Data) || got.Immutable != nil
			got.Data, got.Immutable = want.Data, nil
			return found
		}),
	}
)

// RootCA is in every namespace of every cluster, with that cluster's own certificate.
const RootCA = "kube-root-ca.crt"

const maxEntries = 1000

// entriesRule bounds what a ConfigMap or Secret holds.
func entriesRule(field string) Rule {
	return Rule{fmt.Sprintf(`!has(object.%[1]s) || size(object.%[1]s) <= %[2]d`, field, maxEntries), fmt.Sprintf("%s: more than %d entries", field, maxEntries)}
}

func sameKeys[V any](a, b map[string]V) bool {
	return len(a) == len(b) && slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}

// mapConfigMap gives the ConfigMap abroad. It is never immutable there: one that was deleted and made again at home
// would be stuck.
func mapConfigMap(home *corev1.ConfigMap, there *There) (*corev1.ConfigMap, string) {
	return &corev1.ConfigMap{ObjectMeta: Marked(there.Twin, home.Name), Data: home.Data, BinaryData: home.BinaryData}, ""
}

// plainTypes of Secrets mean data and nothing else. A token of a service account of home, under that type, would be
// taken by the peer's controllers for one of theirs; all others become Opaque.
var plainTypes = []corev1.SecretType{
	corev1.SecretTypeOpaque, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeTLS, corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth,
	corev1.SecretTypeDockercfg,
}

// ServiceLinks is the ConfigMap in a twin, hosting's own, with the variables that tell guests where the services of their namespace are.
const ServiceLinks = "kith-service-links"

func mapSecret(home *corev1.Secret, there *There) (*corev1.Secret, string) {
	s := &corev1.Secret{ObjectMeta: Marked(there.Twin, home.Name), Type: home.Type, Data: home.Data}
	if !slices.Contains(plainTypes, s.Type) {
		s.Type = corev1.SecretTypeOpaque
	}
	return s, ""
}

package reflection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mapConfigMap gives the ConfigMap abroad. It is never immutable there: one that was deleted and made again at home
// would be stuck.
func mapConfigMap(home *corev1.ConfigMap, twin string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: marked(twin, home.Name), Data: home.Data, BinaryData: home.BinaryData}
}

// plainTypes of Secrets mean data and nothing else. A token of a service account of home, under that type, would be
// taken by the peer's controllers for one of theirs; all others become Opaque.
var plainTypes = []corev1.SecretType{
	corev1.SecretTypeOpaque, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeTLS, corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth,
	corev1.SecretTypeDockercfg,
}

func mapSecret(home *corev1.Secret, twin string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: marked(twin, home.Name), Type: home.Type, Data: home.Data}
	if !slices.Contains(plainTypes, s.Type) {
		s.Type = corev1.SecretTypeOpaque
	}
	return s
}

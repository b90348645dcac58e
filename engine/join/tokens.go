package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrap "k8s.io/cluster-bootstrap/token/util"
)

// LongestTTL is how long a token is good at most. It is to be used soon; a node that joined needs none.
const LongestTTL = 30 * 24 * time.Hour

// KnownToken is one that the cluster has. What it could be joined with stays in the Secret.
type KnownToken struct {
	ID          string
	Expires     time.Time // zero: never
	Description string
}

// CreateToken makes a token that is good for ttl.
func CreateToken(ctx context.Context, client kubernetes.Interface, ttl time.Duration, description string) (Token, error) {
	if ttl < time.Minute || ttl > LongestTTL {
		return Token{}, fmt.Errorf("ttl %s: want 1m to %.0fh", ttl, LongestTTL.Hours())
	}
	text, err := bootstrap.GenerateBootstrapToken()
	if err != nil {
		return Token{}, err
	}
	t, err := ParseToken(text)
	if err != nil {
		return t, err
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secretOf(t, time.Now().Add(ttl), description), metav1.CreateOptions{FieldManager: "kith-k8s"})
	return t, err
}

func secretOf(t Token, expires time.Time, description string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstrap.BootstrapTokenSecretName(t.ID), Namespace: metav1.NamespaceSystem},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey: t.ID, bootstrapapi.BootstrapTokenSecretKey: t.Secret, bootstrapapi.BootstrapTokenDescriptionKey: description,
			bootstrapapi.BootstrapTokenExpirationKey:       expires.UTC().Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageAuthentication: "true", bootstrapapi.BootstrapTokenUsageSigningKey: "true",
		},
	}
}

// ListTokens lists the tokens that the cluster has; expired ones are gone within a minute or so.
func ListTokens(ctx context.Context, client kubernetes.Interface) (list []KnownToken, err error) {
	secrets, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(bootstrapapi.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		t := KnownToken{ID: string(s.Data[bootstrapapi.BootstrapTokenIDKey]), Description: string(s.Data[bootstrapapi.BootstrapTokenDescriptionKey])}
		t.Expires, _ = time.Parse(time.RFC3339, string(s.Data[bootstrapapi.BootstrapTokenExpirationKey])) // zero: never
		list = append(list, t)
	}
	return list, nil
}

// DeleteToken takes a token back, named by its ID or whole. Nodes that joined by it stay.
func DeleteToken(ctx context.Context, client kubernetes.Interface, name string) error {
	if t, err := ParseToken(name); err == nil {
		name = t.ID
	}
	if !bootstrap.IsValidBootstrapTokenID(name) {
		return fmt.Errorf("token %q: want its ID, the six characters that kith-k8s token list shows", name)
	}
	err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, bootstrap.BootstrapTokenSecretName(name), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no token %s: kith-k8s token list shows those that there are", name)
	}
	return err
}

// Way is where and by which hash of its authority the cluster is joined, as cluster-info has it.
func Way(ctx context.Context, client kubernetes.Interface) (server, hash string, err error) {
	info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, infoName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", errors.New("this cluster lets no nodes join: start its server with --agents")
	}
	if err != nil {
		return "", "", err
	}
	config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return "", "", fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespacePublic, infoName, err)
	}
	for _, c := range config.Clusters {
		authorities, err := cert.ParseCertsPEM(c.CertificateAuthorityData)
		if err != nil {
			return "", "", fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespacePublic, infoName, err)
		}
		return c.Server, Hash(authorities[0]), nil
	}
	return "", "", fmt.Errorf("ConfigMap %s/%s names no cluster", metav1.NamespacePublic, infoName)
}

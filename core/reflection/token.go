package reflection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kith.dev/core/kinds"
)

// companion makes the Secret of one pod. Its tokens are bound to the home pod: when that is gone, they open nothing.
func (r *Reflector) companion(ctx context.Context, t *twin, pod *corev1.Pod, c companion) (kinds.Object, string, error) {
	secret := &corev1.Secret{ObjectMeta: kinds.Marked(t.name, companionName(pod.Name)), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{}}
	secret.Annotations = map[string]string{annotationPod: pod.Name, annotationPodUID: string(pod.UID)}
	for _, path := range c.fields {
		secret.Data[fieldKey(path)] = []byte(fieldValue(pod, path))
	}
	if stamp := c.fieldsStamp(pod); stamp != "" {
		secret.Annotations[annotationFields] = stamp
	}
	var renew time.Time
	for _, want := range c.tokens {
		token, expires, err := r.token(ctx, pod, want)
		if err != nil {
			return nil, "", err
		}
		secret.Data[want.key] = []byte(token)
		if at := renewAt(time.Now(), expires); renew.IsZero() || at.Before(renew) {
			renew = at
		}
	}
	if !renew.IsZero() {
		secret.Annotations[annotationRenew] = renew.UTC().Format(time.RFC3339)
	}
	if c.namespace {
		secret.Data[keyNamespace] = []byte(pod.Namespace)
	}
	if c.uid {
		secret.Data[keyUID] = []byte(pod.UID)
	}
	if c.ca {
		ca, err := t.authority(ctx, r.cfg.Home.core)
		if err != nil {
			return nil, "", err
		}
		secret.Data[keyCA] = []byte(ca)
	}
	return secret, "", nil
}

// authority gives the certificate authority of home as its namespace has it, read again when that changed.
func (t *twin) authority(ctx context.Context, core kubernetes.Interface) (string, error) {
	var version string
	if s := t.current(); s != nil {
		if seen := s.member.get(item{kinds.ConfigMap, t.home, kinds.RootCA}); seen != nil {
			version = seen.GetResourceVersion()
		}
	}
	t.mu.Lock()
	known := t.ca
	t.mu.Unlock()
	if version != "" && version == known.version {
		return known.pem, nil
	}
	now, err := core.CoreV1().ConfigMaps(t.home).Get(ctx, kinds.RootCA, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read ConfigMap %s/%s: %w", t.home, kinds.RootCA, hideNotFound(err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ca = authority{now.ResourceVersion, now.Data[keyCA]}
	return t.ca.pem, nil
}

// renewAt is when the kubelet would renew a token too: after four fifths of its life, at most a day, and not all at once.
// Source: requiresRefresh in k8s.io/kubernetes/pkg/kubelet/token.
func renewAt(now, expires time.Time) time.Time {
	life := min(expires.Sub(now)*8/10, 24*time.Hour)
	return now.Add(life - rand.N(max(life/20, 1)))
}

func (r *Reflector) token(ctx context.Context, pod *corev1.Pod, want token) (string, time.Time, error) {
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if want.audience != "" {
		request.Spec.Audiences = []string{want.audience}
	}
	if want.seconds > 0 {
		request.Spec.ExpirationSeconds = &want.seconds
	}
	answer, err := r.cfg.Home.core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("token of service account %s for pod %s: %w", account, pod.Name, hideNotFound(err))
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// hideNotFound: that something the pod needs is missing does not mean that the pod is.
func hideNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}

package reflection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"kith.dev/core/agree/kinds"
)

// Keys in a companion, the Secret abroad that holds what one pod gets from home.
const (
	keyCA        = "ca.crt"
	keyNamespace = "namespace"
	keyUID       = "uid"
)

// token is one that a pod mounts.
type token struct {
	key      string
	audience string // empty: the home API server
	seconds  int64  // how long it is valid; 0: as the API server likes
}

// companion says what a pod's own Secret at the peer must hold.
type companion struct {
	tokens             []token
	ca, namespace, uid bool
	fields             []string // of the downward API, by their paths
}

func (c companion) empty() bool {
	return len(c.tokens) == 0 && !c.ca && !c.namespace && !c.uid && len(c.fields) == 0
}

// companionOf gives what the pod needs; adaptVolumes and adaptFields have it get that.
func companionOf(pod *corev1.Pod) companion {
	spec := pod.Spec.DeepCopy()
	c := adaptVolumes(pod, spec)
	c.adaptFields(pod, spec)
	return c
}

// companionName is the Secret's name. It follows from the pod's name, and must never change between versions.
func companionName(pod string) string {
	const prefix = "kith-pod-"
	if len(prefix)+len(pod) <= validation.DNS1123SubdomainMaxLength {
		return prefix + pod
	}
	sum := sha256.Sum256([]byte(pod))
	return prefix + hex.EncodeToString(sum[:16])
}

// adaptVolumes mounts the companion where the pod at home mounts a token of its service account, home's certificate
// authority, or fields of the downward API that are others abroad. File names and modes stay.
func adaptVolumes(pod *corev1.Pod, spec *corev1.PodSpec) companion {
	var c companion
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if own := v.DownwardAPI; own != nil && slices.ContainsFunc(own.Items, atHomeOnly) {
			v.Projected = &corev1.ProjectedVolumeSource{DefaultMode: own.DefaultMode, Sources: []corev1.VolumeProjection{
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: own.Items}},
			}}
			v.DownwardAPI = nil
		}
		if v.Projected == nil {
			continue
		}
		var sources []corev1.VolumeProjection
		for _, source := range v.Projected.Sources {
			sources = append(sources, c.adapt(pod, source)...)
		}
		v.Projected.Sources = sources
	}
	return c
}

func (c *companion) adapt(pod *corev1.Pod, source corev1.VolumeProjection) []corev1.VolumeProjection {
	switch {
	case source.ServiceAccountToken != nil:
		t := source.ServiceAccountToken
		return mount(pod, corev1.KeyToPath{Key: c.token(t), Path: t.Path})
	case source.ConfigMap != nil && source.ConfigMap.Name == kinds.RootCA:
		c.ca = true
		items := slices.Clone(source.ConfigMap.Items)
		if len(items) == 0 {
			items = []corev1.KeyToPath{{Key: keyCA, Path: keyCA}}
		}
		return mount(pod, items...)
	case source.DownwardAPI != nil && slices.ContainsFunc(source.DownwardAPI.Items, atHomeOnly):
		return c.downward(pod, source.DownwardAPI.Items)
	}
	return []corev1.VolumeProjection{source}
}

func (c *companion) token(t *corev1.ServiceAccountTokenProjection) string {
	want := token{key: fmt.Sprintf("token-%d", len(c.tokens)), audience: t.Audience}
	if t.ExpirationSeconds != nil {
		want.seconds = *t.ExpirationSeconds
	}
	for _, has := range c.tokens {
		if has.audience == want.audience && has.seconds == want.seconds {
			return has.key
		}
	}
	c.tokens = append(c.tokens, want)
	return want.key
}

// downward splits the items into those the kubelet abroad knows as well as home and those of home.
func (c *companion) downward(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile) []corev1.VolumeProjection {
	var there []corev1.DownwardAPIVolumeFile
	var here []corev1.KeyToPath
	for _, item := range items {
		if !atHomeOnly(item) {
			there = append(there, item)
			continue
		}
		var key string
		switch path := item.FieldRef.FieldPath; path {
		case "metadata.namespace":
			key, c.namespace = keyNamespace, true
		case "metadata.uid":
			key, c.uid = keyUID, true
		default:
			key = c.field(path)
		}
		here = append(here, corev1.KeyToPath{Key: key, Path: item.Path, Mode: item.Mode})
	}
	out := mount(pod, here...)
	if len(there) > 0 {
		out = append(out, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: there}})
	}
	return out
}

func atHomeOnly(item corev1.DownwardAPIVolumeFile) bool {
	if item.FieldRef == nil {
		return false
	}
	path := item.FieldRef.FieldPath
	return path == "metadata.namespace" || path == "metadata.uid" || differs(path)
}

func mount(pod *corev1.Pod, items ...corev1.KeyToPath) []corev1.VolumeProjection {
	return []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: companionName(pod.Name)}, Items: items,
	}}}
}

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
		if seen := s.member.get(item{kinds.ConfigMap, t.home, kinds.RootCA}, false); seen != nil {
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

package reflection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/kinds"
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

// companion says what a pod's Secret abroad must hold.
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

// companionName is the Secret's name, the same for ever for a pod's name.
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

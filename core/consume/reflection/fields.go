package reflection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

// Labels and annotations of a guest are not those of the pod at home: Kith's own are among them, and those that mean something to
// programs of home only are not. What a pod reads of them by the downward API it gets from its companion.

// differs reports whether a field of the downward API is another abroad, other than by its namespace or UID.
func differs(path string) bool {
	if path == "metadata.labels" || path == "metadata.annotations" {
		return true
	}
	field, key := subscript(path)
	return field == "metadata.labels" && ofKith(key) || field == "metadata.annotations" && !v1alpha1.AnnotationTravels(key)
}

// ofKith reports whether the key of a label is one that the provider takes from nobody (ownDomain in core/provide/hosting).
func ofKith(key string) bool {
	return strings.HasPrefix(key, "kith.dev/") || strings.Contains(key, ".kith.dev/")
}

// subscript splits metadata.labels['key'].
func subscript(path string) (field, key string) {
	field, rest, found := strings.Cut(path, "['")
	if !found {
		return path, ""
	}
	return field, strings.TrimSuffix(rest, "']")
}

// fieldKey is the key in the companion for a field; the same for ever, as it stands in the pod's template.
func fieldKey(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "field-" + hex.EncodeToString(sum[:8])
}

// field has the companion hold the field, and gives the key in it.
func (c *companion) field(path string) string {
	if !slices.Contains(c.fields, path) {
		c.fields = append(c.fields, path)
	}
	return fieldKey(path)
}

// adaptFields has variables read from the companion.
func (c *companion) adaptFields(pod *corev1.Pod, spec *corev1.PodSpec) {
	eachContainer(spec, func(container *corev1.Container) {
		container.Env = slices.Clone(container.Env)
		for i := range container.Env {
			from := container.Env[i].ValueFrom
			if from == nil || from.FieldRef == nil || !differs(from.FieldRef.FieldPath) {
				continue
			}
			container.Env[i].ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: companionName(pod.Name)}, Key: c.field(from.FieldRef.FieldPath),
			}}
		}
	})
}

// fieldValue is what the kubelet at home would give for the field (ExtractFieldPathAsString in k8s.io/kubernetes/pkg/fieldpath).
func fieldValue(pod *corev1.Pod, path string) string {
	field, key := subscript(path)
	of := pod.Labels
	if field == "metadata.annotations" {
		of = pod.Annotations
	}
	if key != "" {
		return of[key]
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, of[key]))
	}
	return strings.Join(lines, "\n")
}

// fieldsStamp changes whenever the fields in the companion do; it is empty without any.
func (c *companion) fieldsStamp(pod *corev1.Pod) string {
	if len(c.fields) == 0 {
		return ""
	}
	h := sha256.New()
	for _, path := range c.fields {
		fmt.Fprintf(h, "%q", fieldValue(pod, path))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

package v1alpha1

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ShortIDs are how many characters of a consumer's compact ID end the names of its twin namespaces: the first, and what is tried
// when somebody made a namespace of that name.
var ShortIDs = []int{7, 14}

// TwinName gives "<name>-<id>". A name too long for that is cut, and a hash of the whole stands for what was
// cut off: two long names that begin alike stay two.
func TwinName(home, id string) string {
	const most = validation.DNS1123LabelMaxLength
	if len(home)+1+len(id) <= most {
		return home + "-" + id
	}
	sum := sha256.Sum256([]byte(home))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-" + id
	return strings.TrimRight(home[:most-len(tail)], "-") + tail
}

// IsTwinName reports whether a twin of home may be called name.
func IsTwinName(name, home, compact string) bool {
	return name == home || slices.ContainsFunc(ShortIDs, func(n int) bool { return len(compact) >= n && name == TwinName(home, compact[:n]) })
}

// IsTwin reports whether a namespace with the labels of a twin is one. Whoever reads them asks this: labels are copied with manifests,
// and handed down by controllers, to namespaces that Kith never made. A name with the consumer's ID at its end is
// nobody else's; a bare one is believed if the label is Kith's own word and nobody's who edited it since.
func IsTwin(ns *corev1.Namespace) bool {
	home, consumer := ns.Labels[LabelHomeNamespace], ns.Labels[LabelConsumer]
	if home == "" || consumer == "" || !IsTwinName(ns.Name, home, consumer) {
		return false
	}
	return ns.Name != home || slices.ContainsFunc(ns.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == ManagedBy && e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:`+LabelConsumer+`"`))
	})
}

// GuestClass is the provider's class for volumes of guests that are of a class of its cluster; GuestStorageClass for "", the default class.
func GuestClass(class string) string {
	if class == "" {
		return GuestStorageClass
	}
	return class + "." + GuestStorageClass
}

// ClassOfGuests gives the class whose volumes those of a class for guests are, "" for the default class; false for every other class.
func ClassOfGuests(name string) (class string, is bool) {
	if name == GuestStorageClass {
		return "", true
	}
	return strings.CutSuffix(name, "."+GuestStorageClass)
}

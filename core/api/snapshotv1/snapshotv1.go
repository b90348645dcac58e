// Package snapshotv1 is what Kith reads and writes of Kubernetes' volume snapshots (snapshot.storage.k8s.io/v1): kinds, and the fields that matter here,
// with the names that they have there. Objects are changed by patches alone, so that fields which are not named here stay.
//
// The kinds' own module is not linked: it brings a client for each kind, and all that is needed of it are these names.
package snapshotv1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// GroupVersion of the kinds.
var GroupVersion = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// The kinds, and the names of their collections.
var (
	Snapshots = GroupVersion.WithResource("volumesnapshots")
	Contents  = GroupVersion.WithResource("volumesnapshotcontents")
	Classes   = GroupVersion.WithResource("volumesnapshotclasses")
)

// The kinds' names.
const (
	KindSnapshot = "VolumeSnapshot"
	KindContent  = "VolumeSnapshotContent"
	KindClass    = "VolumeSnapshotClass"
)

// Finalizers that Kubernetes' own controllers of snapshots use, and the annotation of a class that snapshots without one have.
const (
	FinalizerSnapshot = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	FinalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	AnnotationDefault = "snapshot.storage.kubernetes.io/is-default-class"
)

// Driver makes the snapshots of volumes of the built-in Kubernetes.
const Driver = "kith.dev/local"

// Deletion policies: what becomes of the files when the VolumeSnapshot is deleted.
const (
	Delete = "Delete"
	Retain = "Retain"
)

// Snapshot is a VolumeSnapshot.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Source struct {
			Claim   string `json:"persistentVolumeClaimName,omitempty"`
			Content string `json:"volumeSnapshotContentName,omitempty"`
		} `json:"source"`
		Class string `json:"volumeSnapshotClassName,omitempty"`
	} `json:"spec"`
	Status SnapshotStatus `json:"status,omitzero"`
}

// SnapshotStatus is what a VolumeSnapshot says of its content.
type SnapshotStatus struct {
	Content      string             `json:"boundVolumeSnapshotContentName,omitempty"`
	CreationTime *metav1.Time       `json:"creationTime,omitempty"`
	Ready        bool               `json:"readyToUse"`
	RestoreSize  *resource.Quantity `json:"restoreSize,omitempty"`
	Error        *Error             `json:"error"` // null takes an old one away
}

// Content is a VolumeSnapshotContent.
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ContentSpec   `json:"spec"`
	Status            ContentStatus `json:"status,omitzero"`
}

// ContentSpec is what a content is wanted to be.
type ContentSpec struct {
	Snapshot       corev1.ObjectReference       `json:"volumeSnapshotRef"`
	DeletionPolicy string                       `json:"deletionPolicy"`
	Driver         string                       `json:"driver"`
	Class          string                       `json:"volumeSnapshotClassName,omitempty"`
	Source         ContentSource                `json:"source"`
	Mode           *corev1.PersistentVolumeMode `json:"sourceVolumeMode,omitempty"`
}

// ContentSource is what a content is of: a volume, or what is there already. One of them is set.
type ContentSource struct {
	Volume   string `json:"volumeHandle,omitempty"`
	Snapshot string `json:"snapshotHandle,omitempty"`
}

// ContentStatus is what is there of a content.
type ContentStatus struct {
	Handle       string `json:"snapshotHandle,omitempty"`
	CreationTime int64  `json:"creationTime,omitempty"` // nanoseconds since 1970
	RestoreSize  *int64 `json:"restoreSize,omitempty"`  // bytes
	Ready        bool   `json:"readyToUse"`
	Error        *Error `json:"error"`
}

// Error is why a snapshot is not ready yet.
type Error struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Class is a VolumeSnapshotClass.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Driver            string `json:"driver"`
	DeletionPolicy    string `json:"deletionPolicy"`
}

// Read reads an object of one of the kinds into its type here.
func Read[T any](u *unstructured.Unstructured) (*T, error) {
	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return o, nil
}

// Write is an object of one of the kinds as it is sent.
func Write(o any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	u := new(unstructured.Unstructured)
	return u, json.Unmarshal(text, &u.Object)
}

// ContentFor is the name of the content of a snapshot that is made for it.
func ContentFor(snapshot types.UID) string { return "snapcontent-" + string(snapshot) }

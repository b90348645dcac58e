package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/snapshotv1"
)

// contentNamed makes a content for monday, as somebody else does.
func (s *shop) contentNamed(name, driver string, source snapshotv1.ContentSource) {
	s.Helper()
	u, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": metav1.ObjectMeta{Name: name, Finalizers: []string{snapshotv1.FinalizerContent}},
		"spec": snapshotv1.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "monday"}, Driver: driver, DeletionPolicy: snapshotv1.Delete, Source: source},
	})
	if err == nil {
		_, err = s.kinds.Resource(snapshotv1.Contents).Create(s.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// Files that two contents name go with the last of them.
func TestFilesThatTwoContentsName(t *testing.T) {
	s := newShop(t)
	if err := os.MkdirAll(filepath.Join(s.at, "snapcontent-old", inSnapshot), 0o700); err != nil {
		t.Fatal(err)
	}
	old := snapshotv1.ContentSource{Snapshot: "snapcontent-old"}
	s.contentNamed("first", snapshotv1.Driver, old)
	s.contentNamed("second", snapshotv1.Driver, old)
	s.contentNamed("another", "example.com/disk", old)
	s.deleted(snapshotv1.Contents, asked{Name: "first"})
	if err := s.content(t.Context(), "first"); err != nil || len(s.there()) != 1 {
		t.Errorf("the first: %v, %q", err, s.there())
	}
	s.deleted(snapshotv1.Contents, asked{Name: "second"})
	if err := s.content(t.Context(), "second"); err != nil || len(s.there()) > 0 {
		t.Errorf("the last: %v, %q", err, s.there())
	}
}

// What was retained is as large as it was when it is had again.
func TestWhatIsHadAgainIsAsLargeAsItWas(t *testing.T) {
	s := newShop(t)
	s.wants(ofData)
	if _, err := s.look(); err != nil {
		t.Fatal(err)
	}
	s.contentNamed("mine", snapshotv1.Driver, snapshotv1.ContentSource{Snapshot: "snapcontent-1"})
	if err := s.content(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if c, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "mine"}); err != nil || !c.Status.Ready || c.Status.RestoreSize == nil || *c.Status.RestoreSize != 1<<30 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A content of a volume that somebody else made is never ready, and says so.
func TestAContentOfAVolumeSaysThatItIsNone(t *testing.T) {
	s := newShop(t)
	s.contentNamed("mine", snapshotv1.Driver, snapshotv1.ContentSource{Volume: "pvc-1"})
	if err := s.content(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if c, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "mine"}); err != nil || c.Status.Ready || c.Status.Error == nil || !strings.Contains(c.Status.Error.Message, "source.snapshotHandle") {
		t.Errorf("%+v, %v", c, err)
	}
}

package remote

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// Closed is the peer's word for why none of its nodes takes pods, such as "cordoned"; "" when one does, or it says nothing of that.
// It is what was told last, while the peer cannot be reached.
func (v *View) Closed() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

// OnClosed has f called when Closed changed. It must be called before the view runs.
func (v *View) OnClosed(f func()) { v.onClosed = append(v.onClosed, f) }

func (v *View) takeClosed(gone bool, object []byte) error {
	is := &metav1.PartialObjectMetadata{}
	if err := v.reader.Read(object, is); err != nil {
		return err
	}
	why := is.Labels[v1alpha1.TaintClosed]
	switch {
	case gone:
		why = ""
	case why == "":
		why = "unknown"
	}
	v.setClosed(why)
	return nil
}

func (v *View) setClosed(why string) {
	v.mu.Lock()
	changed := v.closed != why
	v.closed, v.closedRound = why, v.round
	v.mu.Unlock()
	if changed {
		for _, f := range v.onClosed {
			f()
		}
	}
}

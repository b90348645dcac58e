package offloading

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

func shopWith(refused string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{v1alpha1.AnnotationRefused: refused, "mine": "too"}}}
}

func TestARefusalIsNotedOnceAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := world(t, shopWith(""))
		r := New(c, c, &released{}, slog.New(slog.DiscardHandler))
		noted := func() string {
			t.Helper()
			var ns corev1.Namespace
			if err := c.Get(t.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil || ns.Annotations["mine"] != "too" {
				t.Fatal(ns.Annotations, err)
			}
			return ns.Annotations[v1alpha1.AnnotationRefused]
		}
		avoid := func(owner types.UID, peer string) time.Time {
			t.Helper()
			since, err := Avoid(t.Context(), c, "shop", owner, peer)
			if err != nil {
				t.Fatal(err)
			}
			return since
		}
		first := avoid("rs", "bob")
		time.Sleep(time.Minute)
		if again := avoid("rs", "bob"); !again.Equal(first) {
			t.Errorf("noted at %s, and again at %s", first, again)
		}
		second := avoid("rs", "carol")
		if want := fmt.Sprintf("rs/bob/%d,rs/carol/%d", first.Unix(), second.Unix()); noted() != want {
			t.Errorf("%q, want %q", noted(), want)
		}
		result, err := r.Reconcile(t.Context(), shop)
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > AvoidedFor-time.Minute {
			t.Errorf("looked at again after %s (%v), want it when the first note ends", result.RequeueAfter, err)
		}
		time.Sleep(result.RequeueAfter)
		if result, err = r.Reconcile(t.Context(), shop); err != nil || noted() != fmt.Sprintf("rs/carol/%d", second.Unix()) {
			t.Errorf("%q after the first note's end (%v)", noted(), err)
		}
		time.Sleep(result.RequeueAfter)
		if result, err = r.Reconcile(t.Context(), shop); err != nil || noted() != "" || result.RequeueAfter != 0 {
			t.Errorf("%q after the last note's end, looked at again after %s (%v)", noted(), result.RequeueAfter, err)
		}
	})
}

// Who may write the namespace may write the note.
func TestNotesOfRefusalsAreReadWithCare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	many := strings.Repeat(fmt.Sprintf("x/bob/%d,", now.Unix()-1), 10*maxAvoided)
	for text, want := range map[string]int{
		"": 0, ",": 0, "rs/bob": 0, "rs/bob/x": 0, "rs/bob/99999999999999999999": 0, "a/b/c/d": 0,
		fmt.Sprintf("rs/bob/%d", now.Unix()+60): 0,
		fmt.Sprintf("rs/bob/%d", now.Unix()):    1,
		many:                                    10 * maxAvoided,
	} {
		if notes := notesOf(shopWith(text), now); len(notes) != want {
			t.Errorf("%.40q: %d notes, want %d", text, len(notes), want)
		}
	}
	c := world(t, shopWith(strings.ReplaceAll(many, fmt.Sprint(now.Unix()-1), fmt.Sprint(time.Now().Unix()-1))))
	if _, err := Avoid(t.Context(), c, "shop", "rs", "bob"); err != nil {
		t.Fatal(err)
	}
	var ns corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil {
		t.Fatal(err)
	}
	notes := notesOf(&ns, time.Now())
	if len(notes) != maxAvoided || notes[maxAvoided-1].owner != "rs" {
		t.Errorf("%d notes, the last %+v", len(notes), notes[len(notes)-1])
	}
}

func TestTheEndOfAnOffloadingTakesTheNotesAlong(t *testing.T) {
	ns := shopWith("rs/bob/1")
	ns.Labels = map[string]string{v1alpha1.LabelOffload: "true"}
	c := world(t, ns)
	if err := New(c, c, &released{}, slog.New(slog.DiscardHandler)).mark(t.Context(), ns, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil || ns.Annotations[v1alpha1.AnnotationRefused] != "" {
		t.Errorf("%v, %v", ns.Annotations, err)
	}
}

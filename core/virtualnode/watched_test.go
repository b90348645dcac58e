package virtualnode

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestDenialIsToldUntilAListIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		lists := 0
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if lists++; lists < 3 {
					return nil, forbidden
				}
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil {
					return nil, forbidden // lists only
				}
				return watch.NewFake(), nil
			},
		}
		w := newWatched(func(_, _ *corev1.Pod) {})
		denied, done := make(chan bool), make(chan error)
		w.listed = func() { denied <- w.isDenied() }
		go func() { done <- w.run(ctx, lw, &corev1.Pod{}, slog.New(slog.DiscardHandler)) }()
		if told := []bool{<-denied, <-denied, <-denied}; !slices.Equal(told, []bool{true, true, false}) {
			t.Errorf("denied: %v", told)
		}
		if !w.isFresh() {
			t.Error("not fresh after a list")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

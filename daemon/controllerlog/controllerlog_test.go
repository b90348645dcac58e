package controllerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestControllerErrorsAreWarningsWithOurKeys(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	log := logr.New(sink{
		log:  slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})),
		said: &said{last: map[string]*saying{}, now: func() time.Time { return now }},
	})
	said := func() string {
		defer out.Reset()
		return strings.TrimSpace(out.String())
	}
	reconciling := func(kind, namespace, name string) logr.Logger {
		return log.WithName("x").WithValues("controller", strings.ToLower(kind), "controllerGroup", "kith.dev", "controllerKind", kind,
			kind, fmt.Sprint(namespace, "/", name), "namespace", namespace, "name", name, "reconcileID", "1234")
	}
	log.Info("Starting workers", "worker count", 8)
	if got := said(); got != "" {
		t.Errorf("an owner reads %s", got)
	}
	failed := errors.New("the peer does not answer")
	reconciling("Peer", "", "bob").Error(failed, "Reconciler error")
	if got := said(); !strings.HasSuffix(got, `level=WARN msg="Reconciler error" controller=peer peer=bob err="the peer does not answer"`) {
		t.Error(got)
	}
	reconciling("OffloadedPod", "shop", "web-0").Error(failed, "Reconciler error")
	if got := said(); !strings.Contains(got, "namespace=shop pod=web-0") {
		t.Error(got)
	}
	for range 5 {
		reconciling("Peer", "", "bob").Error(failed, "Reconciler error")
	}
	if got := said(); got != "" {
		t.Errorf("within a minute it is said again: %s", got)
	}
	reconciling("Peer", "", "carol").Error(failed, "Reconciler error")
	if got := said(); !strings.Contains(got, "peer=carol") {
		t.Errorf("the next object is not told of: %s", got)
	}
	now = now.Add(sayAgain)
	reconciling("Peer", "", "bob").Error(failed, "Reconciler error")
	if got := said(); !strings.Contains(got, "unsaid=5") {
		t.Errorf("after a minute: %s", got)
	}
	reconciling("Peer", "", "dave").Error(apierrors.NewConflict(schema.GroupResource{}, "dave", nil), "Reconciler error")
	reconciling("Peer", "", "erin").Error(fmt.Errorf("reading: %w", context.Canceled), "Reconciler error")
	if got := said(); got != "" {
		t.Errorf("a conflict, or the end of kithd, is told to the owner: %s", got)
	}
}

func TestWhatWasSaidIsForgottenInTime(t *testing.T) {
	s := &said{last: map[string]*saying{}, now: time.Now}
	for i := range 10 * mostSaid {
		s.of(fmt.Sprint(i))
	}
	if n := len(s.last); n > mostSaid {
		t.Errorf("%d are remembered", n)
	}
}

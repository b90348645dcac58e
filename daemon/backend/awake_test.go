package backend

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/core/local/laptop"
)

func guestPod(name, of string, phase corev1.PodPhase) client.Object {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	if of != "" {
		p.Labels = map[string]string{v1alpha1.LabelConsumer: of}
	}
	return p
}

// hosts is a backend with such pods, and what it published.
func hosts(t *testing.T, pods ...client.Object) (*Backend, *[]api.Event) {
	var said []api.Event
	c := &Cluster{Client: ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(pods...).Build())}
	return &Backend{
		Cluster: func() *Cluster { return c }, Directory: directory.New(nil, nil, nil, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler),
		Publish: func(e api.Event) { said = append(said, e) },
	}, &said
}

func TestGuestsThatEndedAreNotWaitedFor(t *testing.T) {
	b, _ := hosts(t, guestPod("a", "AA", corev1.PodRunning), guestPod("b", "AA", corev1.PodPending), guestPod("c", "BB", corev1.PodSucceeded),
		guestPod("d", "BB", corev1.PodFailed), guestPod("own", "", corev1.PodRunning))
	if n, known := b.GuestCount(); n != 2 || !known {
		t.Errorf("%d guests, known: %v", n, known)
	}
	b.Cluster = func() *Cluster { return nil }
	if n, known := b.GuestCount(); n != 0 || known == (b.Engine != nil) {
		t.Errorf("without a cluster: %d, %v", n, known)
	}
}

func TestItIsToldWhoStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, said := hosts(t, guestPod("a", "AA", corev1.PodRunning), guestPod("b", "AA", corev1.PodRunning), guestPod("c", "BB", corev1.PodRunning))
		b.WakesUp() // nobody said that it sleeps
		b.FallsAsleep(t.Context())
		time.Sleep(worthTelling - time.Second) // called off
		b.WakesUp()
		if len(*said) != 0 {
			t.Errorf("%+v", *said)
		}
		b.FallsAsleep(t.Context())
		time.Sleep(42 * time.Minute)
		b.WakesUp()
		b.WakesUp() // logind may say so twice
		if len(*said) != 1 || (*said)[0].Type != api.EventStoodStill || (*said)[0].Message != "3 pods of a peer and a peer stood still for 42 min, while this laptop slept" {
			t.Errorf("%+v", *said)
		}

		b, said = hosts(t, guestPod("own", "", corev1.PodRunning))
		b.FallsAsleep(t.Context())
		time.Sleep(time.Hour)
		b.WakesUp()
		if len(*said) != 0 {
			t.Errorf("nobody's pods stood still: %+v", *said)
		}
	})
}

func TestWhyItIsNotKeptAwakeIsSaid(t *testing.T) {
	b, said := hosts(t)
	if is := b.awakeNow(); is != nil {
		t.Errorf("%+v", is)
	}
	b.Laptop = laptop.New(laptop.Config{Log: slog.New(slog.DiscardHandler)}) // and no bus
	if is := b.awakeNow(); is != nil {
		t.Errorf("%+v", is)
	}
	if _, err := b.KeepAwake(t.Context(), api.AwakeOptions{UntilGuestsEnd: true}); !errors.Is(err, &api.Error{Code: api.CodeUnsupported}) {
		t.Error(err)
	}
	if is, err := b.KeepAwake(t.Context(), api.AwakeOptions{Off: true}); err != nil || is.Kept {
		t.Error(is, err)
	}
	for err, code := range map[error]api.Code{laptop.ErrCannot: api.CodeUnsupported, laptop.ErrNoGuests: api.CodeConflict, laptop.ErrBattery: api.CodeConflict, errors.New("denied"): api.CodeConflict} {
		if got := cannotKeep(err); !errors.Is(got, &api.Error{Code: code}) {
			t.Errorf("%v: %v", err, got)
		}
	}
	until := time.Now().Add(time.Hour)
	b.TellAwake(laptop.Kept{Since: time.Now(), Until: until, Guests: true}, "")
	ended := map[laptop.Ended]api.EventReason{
		laptop.EndedOwner: api.ReasonByOwner, laptop.EndedGuests: api.ReasonGuestsEnded, laptop.EndedTime: api.ReasonTimeIsUp,
		laptop.EndedBattery: api.ReasonBatteryLow, laptop.EndedLogind: api.ReasonNoLogind, laptop.EndedStopped: "",
	}
	for why, reason := range ended {
		b.TellAwake(laptop.Kept{}, why)
		e := (*said)[len(*said)-1]
		if e.Type != api.EventMaySleep || e.Reason != reason || strings.HasSuffix(e.Message, ": ") {
			t.Errorf("%s: %+v", why, e)
		}
	}
	if e := (*said)[0]; e.Type != api.EventKeptAwake || !strings.Contains(e.Message, "until its guests end, until "+until.Local().Format("15:04")) {
		t.Errorf("%+v", e)
	}
}

package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/agree/presence"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/remote"
)

func TestFeaturesOfTheNodeAreSortedAndThoseOfItsOwnEndpointAreNotThePeers(t *testing.T) {
	m := remote.Machine{DeclaredFeatures: []string{"Zwei", "ExtendWebSocketsToKubelet", "Eins", "Zwei"}}
	if got, want := features(m), []string{"Eins", "Zwei"}; !slices.Equal(got, want) {
		t.Errorf("features of the node: %v, want %v", got, want)
	}
}

func TestTheMachineIsAskedForUntilItIsKnownAndWhenThePeerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var answers atomic.Bool
		n, err := New(Config{
			Home: fake.NewClientset(), Abroad: peerAt(t, "http://peer.invalid", http.DefaultTransport), View: noView(), Twins: &askedTwins{}, PeerName: "bob", NodeName: "kith-bob",
			NodeIP: netip.MustParseAddr("10.42.255.1"), KubeletPort: 10260, Recorder: record.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler),
			Permit: func(context.Context, string) (offloading.Permit, string, error) { return offloading.Granted, "", nil },
			Machine: func(context.Context) (remote.Machine, error) {
				asked.Add(1)
				if !answers.Load() {
					return remote.Machine{}, errors.New("no answer")
				}
				return remote.Machine{KernelVersion: fmt.Sprintf("6.%d", asked.Load()), DeclaredFeatures: []string{"A"}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.learnMachine(ctx) }()
		time.Sleep(time.Hour)
		if n := asked.Load(); n < 10 || n > 25 {
			t.Errorf("asked %d times within an hour in which no answer came", n)
		}
		if node := n.node("v1"); node.Status.NodeInfo.KernelVersion != "" {
			t.Errorf("%+v", node.Status.NodeInfo)
		}
		answers.Store(true)
		time.Sleep(maxMachineDelay)
		synctest.Wait()
		known := asked.Load()
		time.Sleep(time.Hour)
		if asked.Load() != known {
			t.Error("asked again for what is known")
		}
		answers.Store(false)
		n.SetPresence(presence.Presence{State: presence.Unreachable, Why: "it is away"})
		n.back <- struct{}{} // back for a moment only
		time.Sleep(time.Hour)
		if known++; asked.Load() != known {
			t.Errorf("asked %d times while it is away", asked.Load()-known)
		}
		answers.Store(true)
		n.SetPresence(presence.Presence{State: presence.Reachable})
		synctest.Wait()
		node := n.node("v1")
		if want := fmt.Sprintf("6.%d", known+1); node.Status.NodeInfo.KernelVersion != want || !slices.Equal(node.Status.DeclaredFeatures, []string{"A"}) {
			t.Errorf("%+v, want kernel %s", node.Status, want)
		}
		if again := shownBy(&corev1.Node{Status: node.Status}); again.KernelVersion != node.Status.NodeInfo.KernelVersion || !slices.Equal(again.DeclaredFeatures, []string{"A"}) {
			t.Errorf("after a restart: %+v", again)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.queue.ShutDown()
		n.events.queue.ShutDown()
	})
}

package virtualnode

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"kith.dev/core/consume/remote"
)

// peerAt is the API server of a peer at a URL.
func peerAt(t testing.TB, url string, transport http.RoundTripper) *remote.API {
	t.Helper()
	api, err := remote.NewAPI(url, transport, transport)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func noView() *remote.View {
	return remote.NewView(remote.ViewConfig{Log: slog.New(slog.DiscardHandler)})
}

// emptyView is that of a peer that keeps nothing. run has it known, and ends it with the test.
func emptyView() (v *remote.View, run func(*testing.T)) {
	v = remote.NewView(remote.ViewConfig{Log: slog.New(slog.DiscardHandler), Open: func(ctx context.Context) (io.ReadCloser, error) {
		body, in := io.Pipe()
		go func() {
			_, _ = io.WriteString(in, synced+"\n")
			<-ctx.Done()
			_ = in.CloseWithError(ctx.Err())
		}()
		return body, nil
	}})
	return v, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = v.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		<-v.Known()
	}
}

// The write of a pod's last status comes back as an event before the event of its deletion does.
func TestAPodThatWasLetGoIsLeftAlone(t *testing.T) {
	now := metav1.Now()
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: uid, DeletionTimestamp: &now, Finalizers: []string{"a.job/waits"}}}
	}
	first := pod("first")
	home := fake.NewClientset(first)
	n, err := New(Config{
		Home: home, Abroad: peerAt(t, "https://bob.invalid", http.DefaultTransport), View: noView(), Twins: &askedTwins{}, Permit: anybody, PeerName: "bob", NodeName: "kith-bob",
		NodeIP: netip.MustParseAddr("10.0.0.1"), KubeletPort: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	finish := func(pod *corev1.Pod) (requests int) {
		t.Helper()
		home.ClearActions()
		if err := n.finish(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
		return len(home.Actions())
	}
	if err := n.pods.put(first); err != nil {
		t.Fatal(err)
	}
	if got := finish(first); got != 2 {
		t.Errorf("%d requests let the pod go, want a status and a deletion", got)
	}
	if got := finish(first); got != 0 {
		t.Errorf("%d requests for a pod that was let go", got)
	}
	// The next of that name, as of a StatefulSet.
	second := pod("second")
	if err := n.pods.Delete(first); err != nil {
		t.Fatal(err)
	}
	if err := n.pods.put(second); err != nil {
		t.Fatal(err)
	}
	if got := finish(second); got != 2 {
		t.Errorf("%d requests let the next pod of that name go", got)
	}
	if err := n.pods.Delete(second); err != nil {
		t.Fatal(err)
	}
	if len(n.finished) != 0 {
		t.Errorf("still remembered: %v", n.finished)
	}
}

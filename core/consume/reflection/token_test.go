package reflection

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/agree/kinds"
)

// TestShortTokensAreRenewedWhileTheyHold: a pod abroad never has a token that ran out, for hours.
func TestShortTokensAreRenewedWhileTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		var expires time.Time
		core := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: kinds.RootCA}, Data: map[string]string{keyCA: "PEM"}})
		core.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			request := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
			if bound := request.Spec.BoundObjectRef; bound == nil || bound.UID != "u1" || *request.Spec.ExpirationSeconds != 600 {
				t.Errorf("asked for %+v", request.Spec)
			}
			made++
			expires = time.Now().Add(10 * time.Minute)
			request.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("token %d", made), ExpirationTimestamp: metav1.NewTime(expires)}
			return true, request, nil
		})
		r, err := New(Config{
			Home: &Home{core: core}, Abroad: peerAt(t, "https://bob"), View: noView(), PeerName: "bob", NodeName: "kith-bob",
			Permit: func(string) bool { return true }, GuestNode: func(string, string) string { return "" }, Reaches: always, Recorder: &record.FakeRecorder{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.queue.ShutDown()

		pod := homePod()
		pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = new(int64(600))
		it, tw := item{kinds.Pod, "shop", "web-1"}, newTwin("shop", "shop-x")
		began := time.Now()
		for round := 1; time.Since(began) < 3*time.Hour; round++ {
			src := r.ofPod(tw, pod, &source{})
			abroad, why, err := src.build(t.Context())
			if err != nil || why != "" || string(abroad.(*corev1.Secret).Data["token-0"]) != fmt.Sprintf("token %d", round) {
				t.Fatalf("round %d: %v, %q, %v", round, abroad, why, err)
			}
			if !src.fresh(abroad) {
				t.Fatalf("round %d: out of date at once", round)
			}
			r.again(it, abroad)
			got, _ := r.queue.Get() // sleeps until it is due
			r.queue.Done(got)
			if left := time.Until(expires); got != it || left < time.Minute || left > 4*time.Minute {
				t.Fatalf("round %d: %v is looked at %s before its token runs out", round, got, left)
			}
			if src.fresh(abroad) {
				t.Errorf("round %d: looked at, and taken for fresh", round)
			}
		}
	})
}

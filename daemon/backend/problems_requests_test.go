package backend

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/core/trust/identity"
)

func TestWhatWaitsForTheOwnerSaysWhatAYesGives(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Labels: map[string]string{v1alpha1.LabelFenced: "true"}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"),
	}}}
	alice := &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: "alice-a1b2"}, Spec: v1alpha1.PeeringRequestSpec{
		PeerID: identity.ID{1}.String(), PeerName: "alice", Code: "069210", Expires: metav1.NewTime(time.Now().Add(time.Minute)),
		Resources: corev1.ResourceList{"cpu": resource.MustParse("100000")},
	}}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(node, alice, sharing.Default(50)).Build())
	c := &Cluster{Client: objects, Fresh: objects, Provider: provider.New(provider.Config{Client: objects, Fresh: objects, Name: "bob", Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	bob := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{Request: &v1alpha1.ResourceRequest{Attempt: 1}}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{
		Attempt: 1, Code: "069210", Confirm: &v1alpha1.Confirmation{Code: "069210"}}}}
	peers := []directory.Known{{Name: "carol"}, {Name: "bob", Peer: bob}}
	if list := c.waiting(t.Context(), peers); len(list) != 2 || list[1].What != "bob accepted, and you have to compare the code" || list[1].Do != "kith confirm bob" {
		t.Errorf("%+v", list)
	}
	bob.Spec.Request.Confirm = &v1alpha1.Confirm{Attempt: 1, Code: "069210"} // answered
	list := c.waiting(t.Context(), peers)
	if len(list) != 1 || list[0].What != "alice asks to use this laptop, and would get cpu 4 (asked 100000), memory 8Gi, pods 55" {
		t.Errorf("%+v", list)
	}
}

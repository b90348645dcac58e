package metrics

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	registered "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

func TestTheAPIIsRegisteredUnlessAnotherServerIs(t *testing.T) {
	const name = "v1beta1.metrics.k8s.io"
	services, client := registered.NewSimpleClientset().ApiregistrationV1().APIServices(), fake.NewClientset()
	objects := func(on bool) *apiregistrationv1.APIService {
		t.Helper()
		if err := Objects(t.Context(), client, services, on); err != nil {
			t.Fatal(err)
		}
		s, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if objects(false) != nil {
		t.Error("turned off, it is registered")
	}
	if s := objects(true); s == nil || s.Spec.Service != nil || s.Spec.Group != "metrics.k8s.io" {
		t.Errorf("it is registered as %+v", s)
	}
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), reader, metav1.GetOptions{})
	if err != nil || role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("role %+v, %v", role, err)
	}
	if objects(false) != nil {
		t.Error("turned off, it is still registered")
	}

	theirs := objects(true)
	theirs.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server"}
	if _, err := services.Update(t.Context(), theirs, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if s := objects(on); s == nil || s.Spec.Service == nil {
			t.Errorf("on %t: the owner's own metrics-server lost its place: %+v", on, s)
		}
	}
}

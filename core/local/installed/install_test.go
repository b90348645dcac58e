package installed

import (
	"context"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Somebody made the class anew while kithd was down: it would not come up.
func TestAnObjectThatCannotBeChangedIsMadeAnew(t *testing.T) {
	class := func(handler string) *nodev1.RuntimeClass {
		return &nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: "kith-guest"}, Handler: handler}
	}
	refuse := func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		var live nodev1.RuntimeClass
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), &live); err == nil && live.Handler != "kith-guest" {
			return apierrors.NewInvalid(schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}, obj.GetName(), nil)
		}
		return c.Patch(ctx, obj, patch, opts...)
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(class("runc")).Build(), interceptor.Funcs{Patch: refuse})
	if err := Apply(t.Context(), c, class("kith-guest")); err != nil {
		t.Fatal(err)
	}
	var live nodev1.RuntimeClass
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kith-guest"}, &live); err != nil || live.Handler != "kith-guest" {
		t.Errorf("%+v, %v", live, err)
	}
}

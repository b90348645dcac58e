package installed

import (
	"context"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	refused := 0
	refuse := func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		var live nodev1.RuntimeClass
		if err := c.Get(ctx, client.ObjectKey{Name: "kith-guest"}, &live); err == nil && live.Handler != "kith-guest" {
			refused++
			return apierrors.NewInvalid(schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}, "kith-guest", nil)
		}
		return c.Apply(ctx, obj, opts...)
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(class("runc")).Build(), interceptor.Funcs{Apply: refuse})
	if err := Apply(t.Context(), c, class("kith-guest")); err != nil {
		t.Fatal(err)
	}
	var live nodev1.RuntimeClass
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kith-guest"}, &live); err != nil || live.Handler != "kith-guest" || refused != 1 {
		t.Errorf("%+v, %v, %d refusals", live, err, refused)
	}
}

// What was applied is not applied again: only what is new, what is another now, or what is not as it was put there by its digest.
func TestWhatIsThereAlreadyIsNotApplied(t *testing.T) {
	applied := 0
	count := func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		applied++
		return c.Apply(ctx, obj, opts...)
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{Apply: count})
	apply := func(what string, rules, want int) {
		t.Helper()
		object := role()
		for range rules {
			object.Rules = append(object.Rules, object.Rules[0])
		}
		before := applied
		if err := Apply(t.Context(), c, object); err != nil {
			t.Fatal(err)
		}
		var live rbacv1.ClusterRole
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), &live); err != nil || applied-before != want || len(live.Rules) != len(object.Rules) {
			t.Errorf("%s: %v, %d times applied, %d rules", what, err, applied-before, len(live.Rules))
		}
	}
	apply("new", 0, 1)
	apply("the same", 0, 0)
	apply("another", 1, 1)
	apply("as before that", 0, 1)
	var live rbacv1.ClusterRole
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(role()), &live); err != nil {
		t.Fatal(err)
	}
	delete(live.Annotations, ContentAnnotation)
	if err := c.Update(t.Context(), &live); err != nil {
		t.Fatal(err)
	}
	apply("of a Kith that names no content", 0, 1)
	if err := c.Delete(t.Context(), role()); err != nil {
		t.Fatal(err)
	}
	apply("deleted", 0, 1)
}

package daemon

import (
	"context"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/local/guards"
)

// An API server refuses a policy about a kind that it does not know, and its binding, of everybody but an administrator.
func TestPoliciesAboutKithsKindsAreMadeAfterThem(t *testing.T) {
	all := slices.Concat(offloading.Objects(), guards.Objects("x"), volumes.Objects())
	now, later := byKinds(all)
	if len(now)+len(later) != len(all) || len(later) < 2 {
		t.Fatalf("%d of %d wait", len(later), len(all))
	}
	for _, o := range now {
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			if o.Spec.ParamKind != nil {
				t.Errorf("policy %s does not wait for its kind", o.Name)
			}
		case *admissionv1.MutatingAdmissionPolicy:
			if o.Spec.ParamKind != nil {
				t.Errorf("policy %s does not wait for its kind", o.Name)
			}
		}
	}
	if _, is := later[0].(*admissionv1.ValidatingAdmissionPolicy); !is {
		t.Errorf("%T comes before its policy", later[0])
	}

	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	asked := 0
	refuse := func(o string) error {
		if asked++; asked < 3 {
			return apierrors.NewInvalid(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy").GroupKind(), o, nil)
		}
		return nil
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := refuse("x"); err != nil {
				return err
			}
			return c.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := refuse(o.GetName()); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	if err := applyToKinds(t.Context(), c, later[0]); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(later[0]), &admissionv1.ValidatingAdmissionPolicy{}); err != nil {
		t.Error(err)
	}
}

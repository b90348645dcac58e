package backend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// writes are what an API server was asked to write: in earnest, or only whether it would.
type writes struct{ done, tried []string }

func (w *writes) note(what string, o client.Object, dry []string) {
	if what += " " + o.GetName(); len(dry) > 0 {
		w.tried = append(w.tried, what)
	} else {
		w.done = append(w.done, what)
	}
}

// watched is a client that notes what is written.
func (w *writes) watched(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}, &v1alpha1.NamespaceOffloading{}).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.note("create", o, (&client.CreateOptions{}).ApplyOptions(opts).DryRun)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			w.note("update", o, (&client.UpdateOptions{}).ApplyOptions(opts).DryRun)
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.note("patch", o, (&client.PatchOptions{}).ApplyOptions(opts).DryRun)
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.note("delete", o, (&client.DeleteOptions{}).ApplyOptions(opts).DryRun)
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.note("patch "+sub, o, (&client.SubResourcePatchOptions{}).ApplyOptions(opts).DryRun)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
}

// shares is alice's backend: corp is a peer in both directions, shop is offloaded, half is shared.
func shares(t *testing.T, w *writes) *Backend {
	t.Helper()
	corp := corpPeer(t)
	corp.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1}
	b := tetherable(t, &switched{mode: api.Autonomous}, corp)
	c := b.Cluster()
	objects := ledgertest.Over(t, w.watched(
		corp, sharing.Default(50), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alice"}},
		&v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "corp-in"}, Spec: v1alpha1.ContractSpec{Peer: "corp", Role: v1alpha1.RoleProvider}},
		&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName}},
	))
	c.Client, c.Fresh = objects, objects
	c.Provider = provider.New(provider.Config{Client: objects, Fresh: objects, Name: "alice", Patience: time.Minute, Log: b.Log})
	b.Publish = func(e api.Event) { t.Errorf("an event of a dry run: %s", e.Message) }
	return b
}

// Each asks the API server whether it would take all that it writes else, and writes nothing.
func TestADryRunIsTriedAndNotWritten(t *testing.T) {
	none := func(api.Progress) {}
	for what, c := range map[string]struct {
		do    func(b *Backend) error
		tried string
	}{
		"unpeer": {func(b *Backend) error {
			_, err := b.Unpeer(t.Context(), "corp", api.EndOptions{DryRun: true}, none)
			return err
		}, "patch corp, patch status corp-in, delete corp-in"},
		"forget": {func(b *Backend) error { return b.ForgetPeer(t.Context(), "corp", true) }, "patch corp, patch status corp-in, delete corp-in, delete corp"},
		"unoffload": {func(b *Backend) error {
			return b.Unoffload(t.Context(), "shop", api.UnoffloadOptions{DryRun: true, Force: true}, none)
		}, "delete offloading"},
		"share": {func(b *Backend) error {
			p, err := b.SetPolicy(t.Context(), api.DefaultPolicy, api.PolicyChange{Amounts: api.ShareOf("30%")}, true)
			if p.Changed != "50% → 30%" || p.Amounts["cpu"] != "30%" {
				t.Errorf("%+v", p)
			}
			return err
		}, "patch default"},
		"share by another": {func(b *Backend) error {
			_, err := b.SetPolicy(t.Context(), "lab", api.PolicyChange{Amounts: map[string]string{"cpu": "1"}}, true)
			return err
		}, "create lab"},
		"tether": {func(b *Backend) error { _, err := b.CheckTether(t.Context(), "corp", true); return err }, ""},
	} {
		w := &writes{}
		b := shares(t, w)
		if err := c.do(b); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := strings.Join(w.tried, ", "); len(w.done) > 0 || got != c.tried {
			t.Errorf("%s: wrote %v; tried %s, want %s", what, w.done, got, c.tried)
		}
		if last := b.changes.get(); last != nil {
			t.Errorf("%s: it can be undone: %+v", what, last)
		}
	}
}

// What is refused is refused in a dry run, too.
func TestADryRunIsRefusedAsWhatItStandsFor(t *testing.T) {
	b := shares(t, &writes{})
	none := func(api.Progress) {}
	for what, c := range map[string]struct {
		err  error
		code api.Code
	}{
		"unpeer a stranger":     {second(b.Unpeer(t.Context(), "dave", api.EndOptions{DryRun: true}, none)), api.CodeNotFound},
		"forget a stranger":     {b.ForgetPeer(t.Context(), "dave", true), api.CodeNotFound},
		"share with a stranger": {second(b.SetPolicy(t.Context(), "lab", api.PolicyChange{Peers: &api.List[string]{"dave"}}, true)), api.CodeInvalid},
		"tether to an address":  {second(b.CheckTether(t.Context(), "192.0.2.99:6450", true)), api.CodeNotFound},
		"undo nothing":          {second(b.Undo(t.Context(), true)), api.CodeConflict},
	} {
		if !errors.Is(c.err, &api.Error{Code: c.code}) {
			t.Errorf("%s: %v, want %s", what, c.err, c.code)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A change is taken back as long as the policy is the one that it made; a policy that it made goes.
func TestUndoIsOfTheLastChange(t *testing.T) {
	w := &writes{}
	b := shares(t, w)
	b.Publish = func(api.Event) {}
	share := func(name string) string {
		for _, p := range b.Cluster().Client.Now().Policies {
			if p.Name == name {
				return policyView(&p).Amounts.Share() + policyView(&p).Amounts["nvidia.com/gpu"]
			}
		}
		return "none"
	}
	generation := int64(1)
	// The API server counts changes of the spec; the fake one does not.
	set := func(name string, change api.PolicyChange) {
		t.Helper()
		if _, err := b.SetPolicy(t.Context(), name, change, false); err != nil {
			t.Fatal(err)
		}
		b.changes.last.is.Generation = b.counted(t, name, &generation)
	}
	set(api.DefaultPolicy, api.PolicyChange{Amounts: api.ShareOf("30%")})
	if p, err := b.Undo(t.Context(), true); err != nil || p.Changed != "30% → 50%" || share(api.DefaultPolicy) != "30%" {
		t.Errorf("dry: %+v, %v, %s", p, err, share(api.DefaultPolicy))
	}
	if p, err := b.Undo(t.Context(), false); err != nil || p.Changed != "30% → 50%" || share(api.DefaultPolicy) != "50%" {
		t.Errorf("%+v, %v, %s", p, err, share(api.DefaultPolicy))
	}
	set(api.DefaultPolicy, api.PolicyChange{Amounts: api.ShareOf("70%")})
	b.counted(t, api.DefaultPolicy, &generation) // somebody else changed it
	if _, err := b.Undo(t.Context(), false); !errors.Is(err, &api.Error{Code: api.CodeConflict}) || share(api.DefaultPolicy) != "70%" {
		t.Errorf("changed since: %v, %s", err, share(api.DefaultPolicy))
	}
	set("lab", api.PolicyChange{Amounts: map[string]string{"nvidia.com/gpu": "1"}})
	if p, err := b.Undo(t.Context(), true); err != nil || p.Changed == "" || share("lab") != "1" {
		t.Errorf("dry, of one that was made: %+v, %v, %s", p, err, share("lab"))
	}
	if _, err := b.Undo(t.Context(), false); err != nil || share("lab") != "none" {
		t.Errorf("one that was made: %v, %s", err, share("lab"))
	}
	if _, err := b.Undo(t.Context(), false); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("there is nothing more: %v", err)
	}
}

// counted gives a policy the next generation.
func (b *Backend) counted(t *testing.T, name string, generation *int64) int64 {
	t.Helper()
	var policy v1alpha1.SharingPolicy
	c := b.Cluster().Client.Client
	if err := c.Get(t.Context(), named(name), &policy); err != nil {
		t.Fatal(err)
	}
	*generation++
	policy.Generation = *generation
	if err := c.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	return *generation
}

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: %[1]ss, singular: %[1]s, kind: %[2]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, maximum: 1000000}, mode: {type: string, default: plain}}}
          status: {type: object, properties: {phase: {type: string}, observedGeneration: {type: integer}}}
`

// TestCustomResourcesFollowTheirNamespace: objects of a kind that both owners allow are at the peer what they are at home, and their status comes back.
func TestCustomResourcesFollowTheirNamespace(t *testing.T) {
	w := newWorld(t)
	apply(t, w.alice, fmt.Sprintf(widgetDefinition, "widget", "Widget"))
	apply(t, w.alice, fmt.Sprintf(widgetDefinition, "gadget", "Gadget"))
	apply(t, w.alice, `
apiVersion: kith.dev/v1alpha1
kind: ReflectionPolicy
metadata: {name: shop}
spec:
  kinds:
  - {group: example.com, resource: widgets, definition: Allow}
  - {group: example.com, resource: gadgets, definition: Allow}
`)
	if out, err := w.alice.KubectlInput(t.Context(), strings.NewReader(`
apiVersion: kith.dev/v1alpha1
kind: ReflectionPolicy
metadata: {name: evil}
spec: {kinds: [{group: kith.dev, resource: contracts}]}
`), "apply", "-f", "-"); err == nil || !strings.Contains(err.Error()+out, "do not travel") {
		t.Errorf("contracts may travel: %s %v", out, err)
	}
	w.refusals("gadgets.example.com NotAllowed, widgets.example.com NotAllowed")
	kubectl(t, w.bob, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"kinds":[{"group":"example.com","resource":"widgets","most":2000,"definition":"Allow"}]}}`)
	w.refusals("gadgets.example.com NotAllowed")
	if out := kubectl(t, w.bob, "get", "crd", "-o", "name"); !strings.Contains(out, "widgets.example.com") || strings.Contains(out, "gadgets.example.com") {
		t.Errorf("bob has %s", out)
	}

	const many = 1000
	first := w.widgets(1, 0)
	twin := twinAt(t, w.bob, "shop") // which no pod needed
	w.inStep(twin, 1, 0)
	t.Logf("the first was written in %s", first)
	took, step := w.widgets(many, 1), w.inStep(twin, many, 1)
	t.Logf("%d objects were written at home in %s, and the last was at bob after %s", many, took.Round(time.Millisecond), (took + step).Round(time.Millisecond))
	took, step = w.widgets(many, 2), w.inStep(twin, many, 2)
	t.Logf("%d were changed in %s, and the last was changed at bob after %s", many, took.Round(time.Millisecond), (took + step).Round(time.Millisecond))

	// Bob's controller says how it goes, and Bob's owner changes what is not his.
	kubectl(t, w.bob, "-n", twin, "patch", "widget", "w-7", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Ready","observedGeneration":2}}`)
	eventually(t, 30*time.Second, "the status is at home", func() string {
		got := kubectl(t, w.alice, "-n", "shop", "get", "widget", "w-7", "-o", "jsonpath={.status.phase} {.status.observedGeneration} {.metadata.generation}")
		if f := strings.Fields(got); len(f) != 3 || f[0] != "Ready" || f[1] != f[2] {
			return got
		}
		return ""
	})
	kubectl(t, w.bob, "-n", twin, "patch", "widget", "w-7", "--type=merge", "-p", `{"spec":{"size":99}}`)
	w.size(twin, "w-7", "2")

	// What changes while kithd is dead, there or here, is in step when it is back.
	for _, p := range []*lab.Laptop{w.bob, w.alice} {
		if err := p.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubectl(t, w.alice, "-n", "shop", "patch", "widget", "w-8", "--type=merge", "-p", `{"spec":{"size":`+map[bool]string{true: "8", false: "9"}[p == w.bob]+`}}`)
		kubectl(t, w.alice, "-n", "shop", "delete", "widget", map[bool]string{true: "w-9", false: "w-10"}[p == w.bob])
		eventually(t, time.Minute, "it is back", w.well)
	}
	w.size(twin, "w-8", "9")
	for _, name := range []string{"w-9", "w-10"} {
		eventually(t, time.Minute, name+" is gone", func() string {
			if out, err := w.bob.Kubectl(t.Context(), "-n", twin, "get", "widget", name); err == nil {
				return out
			}
			return ""
		})
	}

	kith(t, w.alice, "unoffload", "shop")
	eventually(t, time.Minute, "the twin is gone, with all in it", func() string {
		if out, err := w.bob.Kubectl(t.Context(), "get", "namespace", twin); err == nil {
			return out
		}
		return ""
	})
	if n := strings.Count(kubectl(t, w.alice, "-n", "shop", "get", "widgets", "-o", "name"), "widget"); n != many-2 {
		t.Errorf("home has %d of its own", n)
	}
}

// refusals waits until the policy shows these of bob.
func (w *world) refusals(want string) {
	w.t.Helper()
	eventually(w.t, time.Minute, "the policy says "+want, func() string {
		api, err := w.api(w.alice)
		if err != nil {
			return err.Error()
		}
		var policy v1alpha1.ReflectionPolicy
		if err := api.Get(w.t.Context(), client.ObjectKey{Name: "shop"}, &policy); err != nil {
			return err.Error()
		}
		var got []string
		for _, r := range policy.Status.Refusals {
			if r.Peer == "bob" {
				got = append(got, r.Kind+" "+r.Reason)
			}
		}
		if strings.Join(got, ", ") != want {
			return fmt.Sprintf("%+v", policy.Status.Refusals)
		}
		return ""
	})
}

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// widgets writes that many at home, eight at once, and gives how long it took.
func (w *world) widgets(many, size int) time.Duration {
	w.t.Helper()
	api, err := w.api(w.alice)
	if err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			for i := writer; i < many; i += 8 {
				o := &unstructured.Unstructured{}
				o.SetGroupVersionKind(widgetKind)
				o.SetNamespace("shop")
				o.SetName(fmt.Sprint("w-", i))
				o.Object["spec"] = map[string]any{"size": int64(size)}
				err := api.Create(w.t.Context(), o)
				if apierrors.IsAlreadyExists(err) {
					err = api.Patch(w.t.Context(), o, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"size":%d}}`, size)))
				}
				if err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	return time.Since(began)
}

// inStep waits until bob has them all, and gives how long that took.
func (w *world) inStep(twin string, many, size int) time.Duration {
	w.t.Helper()
	return eventually(w.t, 2*time.Minute, "all are at bob", func() string {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(widgetKind)
		if err := w.list(w.bob, list, client.InNamespace(twin)); err != nil {
			return err.Error()
		}
		right := 0
		for _, o := range list.Items {
			if is, _, _ := unstructured.NestedInt64(o.Object, "spec", "size"); is == int64(size) {
				right++
			}
		}
		if right != many {
			return fmt.Sprintf("%d of %d", right, many)
		}
		return ""
	})
}

// size waits until an object at bob is of a size.
func (w *world) size(twin, name, want string) {
	w.t.Helper()
	eventually(w.t, time.Minute, name+" is of size "+want, func() string {
		if got := kubectl(w.t, w.bob, "-n", twin, "get", "widget", name, "-o", "jsonpath={.spec.size}"); got != want {
			return got
		}
		return ""
	})
}

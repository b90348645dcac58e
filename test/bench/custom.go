package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"kith.dev/core/api/v1alpha1"
)

const manyWidgets = 1000

const widgetsSetup = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: kith.dev/v1alpha1
kind: ReflectionPolicy
metadata: {name: bench}
spec: {kinds: [{group: example.com, resource: widgets, definition: Allow}]}
`

// custom writes objects of a custom kind at home, by eight at once, and sees how long the last takes to be at the peer.
func custom(ctx context.Context, r *rig) error {
	if out, err := r.alice.KubectlInput(ctx, strings.NewReader(widgetsSetup), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	kinds := fmt.Sprintf(`{"spec":{"kinds":[{"group":"example.com","resource":"widgets","most":%d,"definition":"Allow"}]}}`, 2*manyWidgets)
	if out, err := r.bob.Kubectl(ctx, "patch", "sharingpolicy", "default", "--type=merge", "-p", kinds); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	var at [2]dynamic.ResourceInterface
	for i, n := range []*node{r.alice, r.bob} {
		client, err := dynamic.NewForConfig(n.config)
		if err != nil {
			return err
		}
		in := namespace
		if n == r.bob {
			if in, err = r.twin(ctx); err != nil {
				return err
			}
		}
		at[i] = client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace(in)
	}
	home, there := at[0], at[1]
	count := func() int {
		list, err := there.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return -1
		}
		return len(list.Items)
	}
	if _, err := until(ctx, "bob keeps widgets", func() bool { return count() == 0 }); err != nil {
		return err
	}
	for range max(2, r.rounds/4) {
		began := time.Now()
		var writers errgroup.Group
		for writer := range 8 {
			writers.Go(func() error {
				for i := writer; i < manyWidgets; i += 8 {
					o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"size": int64(i)}}}
					o.SetName(fmt.Sprint("w-", i))
					if _, err := home.Create(ctx, o, metav1.CreateOptions{}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := writers.Wait(); err != nil {
			return err
		}
		written := time.Since(began)
		if _, err := until(ctx, "all are at bob", func() bool { return count() == manyWidgets }); err != nil {
			return err
		}
		both := time.Since(began)
		r.report.Add(fmt.Sprintf("%d objects of a custom kind: written at home", manyWidgets), "/s", manyWidgets/written.Seconds())
		r.report.Add(fmt.Sprintf("%d objects of a custom kind: rate, in step at the peer / written at home", manyWidgets), "x", written.Seconds()/both.Seconds())
		if err := home.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
		if _, err := until(ctx, "all are gone at bob", func() bool { return count() == 0 }); err != nil {
			return err
		}
	}
	return nil
}

// twin is the namespace at bob that stands for that of the bench.
func (r *rig) twin(ctx context.Context) (name string, err error) {
	_, err = until(ctx, "the namespace has a twin", func() bool {
		var list *corev1.NamespaceList
		list, err = r.bob.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHomeNamespace + "=" + namespace})
		if err == nil && len(list.Items) == 1 {
			name = list.Items[0].Name
		}
		return name != ""
	})
	return name, err
}

package uninstall

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

var ours = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

func named(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// With no kithd to do anything: contracts hang on their finalizers, and go all the same.
func TestWhatIsKithsGoesAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: "x"}
		peer := map[string]string{v1alpha1.LabelPeer: "alice"}
		contract := &v1alpha1.Contract{ObjectMeta: named("", "c", nil), Spec: v1alpha1.ContractSpec{Peer: "alice"}}
		contract.Finalizers = []string{v1alpha1.FinalizerContract}
		kiths := []client.Object{
			contract, &v1alpha1.Peer{ObjectMeta: named("", "alice", nil)}, &v1alpha1.SharingPolicy{ObjectMeta: named("", "default", nil)},
			&corev1.Namespace{ObjectMeta: named("", "shop-x", consumer)}, &corev1.Namespace{ObjectMeta: named("", volumes.Namespace, ours)},
			&corev1.Node{ObjectMeta: named("", "kith-alice", peer)}, &coordinationv1.Lease{ObjectMeta: named("kube-node-lease", "kith-alice", nil)},
			&coordinationv1.Lease{ObjectMeta: named("kith-system", "kith", nil)},
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "peers.kith.dev", nil)},
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named("", "tenants-pods.kith.dev", ours)},
			&rbacv1.ClusterRole{ObjectMeta: named("", "kith:tenant", ours)}, &rbacv1.RoleBinding{ObjectMeta: named("shop", "kith:laptop:y", ours)},
		}
		real := &corev1.Node{ObjectMeta: named("", "corp-1", map[string]string{v1alpha1.LabelFenced: "true", "mine": "stays"})}
		real.Annotations = map[string]string{v1alpha1.AnnotationFencedBy: v1alpha1.FencedByAgent, "mine": "stays"}
		others := []client.Object{
			real,
			&corev1.Namespace{ObjectMeta: named("", "shop", nil)}, &corev1.Namespace{ObjectMeta: named("", "x", map[string]string{v1alpha1.LabelConsumer: "x"})},
			&corev1.Node{ObjectMeta: named("", "kith-tower", nil)}, &corev1.Node{ObjectMeta: named("", "tower", peer)},
			&coordinationv1.Lease{ObjectMeta: named("kube-node-lease", "kith-tower", nil)},
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "peers.other.dev", nil)},
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named("", "theirs", nil)}, &rbacv1.ClusterRole{ObjectMeta: named("", "admin", nil)},
			&appsv1.Deployment{ObjectMeta: named("kith-system", "kith", nil), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}},
		}
		c := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(&v1alpha1.Contract{}).WithObjects(kiths...).WithObjects(others...).Build()
		began := time.Now()
		err := Run(t.Context(), Config{Client: c, Deployment: types.NamespacedName{Namespace: "kith-system", Name: "kith"}, Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Error("that a contract did not end was not said")
		}
		if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
			t.Errorf("it took %s", took)
		}
		for _, o := range kiths {
			if there(c, o) {
				t.Errorf("%T %s is left", o, o.GetName())
			}
		}
		for _, o := range others {
			if !there(c, o) {
				t.Errorf("%T %s is gone", o, o.GetName())
			}
		}
		var node corev1.Node
		if err := c.Get(t.Context(), types.NamespacedName{Name: "corp-1"}, &node); err != nil || len(node.Labels) != 1 || len(node.Annotations) != 1 {
			t.Errorf("a node keeps the labels %v and the annotations %v, %v", node.Labels, node.Annotations, err)
		}
		var d appsv1.Deployment
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "kith-system", Name: "kith"}, &d); err != nil || *d.Spec.Replicas != 0 {
			t.Errorf("kithd has %d replicas, %v", *d.Spec.Replicas, err)
		}
	})
}

func there(c client.Client, o client.Object) bool {
	is := o.DeepCopyObject().(client.Object)
	return c.Get(context.Background(), client.ObjectKeyFromObject(o), is) == nil && is.GetDeletionTimestamp() == nil
}

// Of a machine: contracts end while kithd works, and nothing is taken away that it would put back.
func TestWithAKithdThatRunsOnNothingIsTakenAway(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "peers.kith.dev", nil)}
	c := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(crd).Build()
	runs := errors.New("kithd runs on")
	var told []string
	cfg := Config{
		Client: c, Log: slog.New(slog.DiscardHandler), Told: func(done string) { told = append(told, done) },
		Stop: func(context.Context) error { return runs },
	}
	if err := Run(t.Context(), cfg); !errors.Is(err, runs) || !there(c, crd) {
		t.Errorf("%v, and Kith's kinds are there: %v", err, there(c, crd))
	}
	cfg.Stop = func(context.Context) error { return nil }
	if err := Run(t.Context(), cfg); err != nil || there(c, crd) {
		t.Errorf("%v, and Kith's kinds are there: %v", err, there(c, crd))
	}
	if !slices.Contains(told, "end all contracts") || !slices.Contains(told, "remove Kith's kinds") {
		t.Errorf("told was %q", told)
	}
}

// Data are nobody's to delete but their owner's.
func TestClaimsAndTheirNamespaceStay(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named(volumes.Namespace, "data", ours)}
	ns := &corev1.Namespace{ObjectMeta: named("", volumes.Namespace, ours)}
	c := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(ns, claim).Build()
	if err := (Config{Client: c, Log: slog.New(slog.DiscardHandler)}).removeVolumes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !there(c, ns) || !there(c, claim) {
		t.Error("a namespace with data went")
	}
}

// Package installed keeps the objects that Kith installs in a cluster (admission policies, their bindings, roles, CRDs, the guests'
// RuntimeClass) as Kith made them: one that somebody deletes or changes is restored at once, and reported.
//
// Other packages define the objects; the daemon installs them (Define, Apply) and gives them all to one Keeper. This package does not decide
// what is in an object, and never touches one that it was not given.
package installed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// again is the least time between two restorations of an object, so that somebody who keeps changing it does not keep Kith busy.
const again = time.Second

// errDeleted says that another object stood under the name of one that is kept: it is deleted, and ours is yet to be made.
var errDeleted = errors.New("another stood under its name, and was deleted; it is made next")

// looks is how many objects Look looks at at a time.
const looks = 8

// Keeper holds the objects. Its methods may be called by many at once.
type Keeper struct {
	client client.Client // past the cache
	told   func(what string)
	log    *slog.Logger

	mu     sync.Mutex
	wanted map[types.NamespacedName]*unstructured.Unstructured
	mended map[types.NamespacedName]time.Time
	right  map[types.NamespacedName]string // the resourceVersion at which the object was as wanted
}

// New makes a Keeper that writes by c, which should not read from a cache. told is called with the kind and name of each object
// that had to be mended, also by several at once.
func New(c client.Client, told func(what string), log *slog.Logger) *Keeper {
	return &Keeper{
		client: c, told: told, log: log,
		wanted: map[types.NamespacedName]*unstructured.Unstructured{}, mended: map[types.NamespacedName]time.Time{}, right: map[types.NamespacedName]string{},
	}
}

// Keep takes objects to be kept; their kind must be set. They are cluster-scoped, and are in the cluster already or
// will be by Install.
func (k *Keeper) Keep(objects ...client.Object) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("keep %s: %w", object.GetName(), err)
		}
		u := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(u.Object, "status")
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		if u.GetKind() == "" || u.GetName() == "" || u.GetNamespace() != "" {
			return fmt.Errorf("keep %q: an object must have a kind and a name, and no namespace", u.GetName())
		}
		k.wanted[keyOf(u.GetKind(), u.GetName())] = u
	}
	return nil
}

// keyOf is a request: the names of these kinds have no namespace, so its place is free for the kind.
func keyOf(kind, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: kind, Name: name}
}

// SetupWithManager has the Keeper follow the kinds of what it keeps. Kinds that this cluster does not know are left out.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("kith-installed").WithOptions(controller.Options{NewQueue: queue.New})
	for _, kind := range k.kinds() {
		if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("keep objects of kind %s: %w", kind.Kind, err)
		}
		of := &metav1.PartialObjectMetadata{}
		of.SetGroupVersionKind(kind)
		b = b.Watches(of, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: keyOf(kind.Kind, o.GetName())}}
		}), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return k.mayDiffer(kind.Kind, e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return k.mayDiffer(kind.Kind, e.ObjectNew) },
			DeleteFunc: func(e event.DeleteEvent) bool { return k.want(keyOf(kind.Kind, e.Object.GetName())) != nil },
		}))
	}
	return b.Complete(k)
}

func (k *Keeper) kinds() []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[schema.GroupVersionKind]bool{}
	for _, u := range k.wanted {
		all[u.GroupVersionKind()] = true
	}
	return slices.Collect(maps.Keys(all))
}

// mayDiffer reports whether an object is kept, and is not the one that was right already: a list shows all of them again.
func (k *Keeper) mayDiffer(kind string, o client.Object) bool {
	key := keyOf(kind, o.GetName())
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted[key] != nil && (o.GetResourceVersion() == "" || k.right[key] != o.GetResourceVersion())
}

func (k *Keeper) want(key types.NamespacedName) *unstructured.Unstructured {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted[key]
}

// Look brings everything to what it should be. It is for the start, before anybody relies on what is kept: an object that somebody changed
// while no Keeper ran may still have the digest by which Apply leaves it alone. It fails where one object could not be looked at; the others were.
func (k *Keeper) Look(ctx context.Context) error {
	k.mu.Lock()
	wanted := maps.Clone(k.wanted)
	k.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(looks)
	for _, want := range wanted {
		group.Go(func() error {
			if err := k.keep(ctx, want); err != nil && !meta.IsNoMatchError(err) { // a kind that this cluster does not know is left out
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// Reconcile brings one object to what it should be.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	want := k.want(req.NamespacedName)
	if want == nil {
		return ctrl.Result{}, nil
	}
	k.mu.Lock()
	wait := again - time.Since(k.mended[req.NamespacedName])
	k.mu.Unlock()
	if wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err := k.keep(ctx, want)
	if errors.Is(err, errDeleted) {
		return ctrl.Result{}, nil // its end brings us back
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil // somebody was faster: what he did is looked at
	}
	return ctrl.Result{}, err
}

// keep mends one object where it must be, and reports it.
func (k *Keeper) keep(ctx context.Context, want *unstructured.Unstructured) error {
	changed, err := k.mend(ctx, want)
	what := want.GetKind() + " " + want.GetName()
	if err != nil {
		return fmt.Errorf("keep %s: %w", what, err)
	}
	if changed {
		k.log.Warn("an object of Kith's was deleted or changed, and is as it was again", "object", what)
		k.told(what)
		k.mu.Lock()
		k.mended[keyOf(want.GetKind(), want.GetName())] = time.Now()
		k.mu.Unlock()
	}
	return nil
}

// mend makes the object if there is none, and replaces all but its metadata and status otherwise. An apply would leave what others
// added (a condition under which a policy holds, say), so it is no apply; where nothing differs the API server writes nothing.
func (k *Keeper) mend(ctx context.Context, want *unstructured.Unstructured) (changed bool, err error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err = k.client.Get(ctx, client.ObjectKeyFromObject(want), live)
	switch {
	case apierrors.IsNotFound(err):
		err := k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want.DeepCopy()), client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership)
		return err == nil, err
	case err != nil:
		return false, err
	case live.GetDeletionTimestamp() != nil:
		return false, nil // its end brings us back
	}
	if _, is := newer(live, want); is {
		return false, nil // a newer Kith's
	}
	before, key := live.GetResourceVersion(), keyOf(want.GetKind(), want.GetName())
	k.mu.Lock()
	known := before != "" && k.right[key] == before
	k.mu.Unlock()
	if known {
		return false, nil
	}
	next := replaced(live, want)
	if same(defaulted(live.DeepCopy()), defaulted(next.DeepCopy())) {
		k.rightAt(key, before)
		return false, nil
	}
	err = k.client.Update(ctx, next, client.FieldOwner(v1alpha1.ManagedBy))
	if Unchangeable(want.GetKind(), err) { // another stands under its name
		uid := live.GetUID()
		if err := k.client.Delete(ctx, live, client.Preconditions{UID: &uid}); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return false, errDeleted
	}
	if err != nil {
		return false, err
	}
	k.rightAt(key, next.GetResourceVersion()) // the API server fills in defaults: it differs from want, and is right
	return next.GetResourceVersion() != before, nil
}

func (k *Keeper) rightAt(key types.NamespacedName, version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.right[key] = version
}

// Unchangeable reports whether err says that an object of this kind cannot be changed to what was wanted, and has to be deleted
// and made again: handlers of RuntimeClasses and values of PriorityClasses stay as they were made.
func Unchangeable(kind string, err error) bool {
	return apierrors.IsInvalid(err) && (kind == "RuntimeClass" || kind == "PriorityClass")
}

// replaced is live with what want says: everything but metadata, of which labels and annotations are added, and status.
func replaced(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	next, from := live.DeepCopy(), want.DeepCopy()
	maps.DeleteFunc(next.Object, func(field string, _ any) bool { return !kept(field) })
	for field, value := range from.Object {
		if !kept(field) {
			next.Object[field] = value
		}
	}
	next.SetLabels(both(next.GetLabels(), from.GetLabels()))
	next.SetAnnotations(both(next.GetAnnotations(), from.GetAnnotations()))
	return next
}

// same compares what two objects say: a number may have been read as one of another type.
func same(a, b *unstructured.Unstructured) bool {
	one, err := json.Marshal(a.Object)
	other, err2 := json.Marshal(b.Object)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// defaulted fills in what the API server does where the kinds that are kept say nothing, as far as theirs do: without it each of them would
// be written again at each start, and the API server compile all that is in it to find that nothing differs.
func defaulted(u *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _ := u.Object["spec"].(map[string]any)
	switch u.GetKind() {
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		byDefault(spec, "failurePolicy", "Fail")
		matchDefaults(spec["matchConstraints"])
	case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
		matchDefaults(spec["matchResources"])
	case "PriorityClass":
		byDefault(u.Object, "preemptionPolicy", "PreemptLowerPriority")
	case "CustomResourceDefinition":
		byDefault(spec, "conversion", map[string]any{"strategy": "None"})
	}
	return u
}

func matchDefaults(resources any) {
	match, is := resources.(map[string]any)
	if !is {
		return
	}
	byDefault(match, "matchPolicy", "Equivalent")
	byDefault(match, "namespaceSelector", map[string]any{})
	byDefault(match, "objectSelector", map[string]any{})
	for _, list := range []string{"resourceRules", "excludeResourceRules"} {
		rules, _ := match[list].([]any)
		for _, rule := range rules {
			if rule, is := rule.(map[string]any); is {
				byDefault(rule, "scope", "*")
			}
		}
	}
}

func byDefault(in map[string]any, field string, value any) {
	if _, has := in[field]; !has && in != nil {
		in[field] = value
	}
}

func kept(field string) bool {
	return field == "apiVersion" || field == "kind" || field == "metadata" || field == "status"
}

func both(has, wants map[string]string) map[string]string {
	if len(wants) == 0 {
		return has
	}
	all := map[string]string{}
	maps.Copy(all, has)
	maps.Copy(all, wants)
	return all
}

package company

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// labelTether, with this value, is on the RoleBindings and ResourceQuotas that are here for tethers.
const (
	labelTether  = "kith.dev/tether"
	tetherRights = "rights"
)

// rights is what was last created for a laptop.
type rights struct {
	wanted   string
	problems []string
	settled  bool // nothing has to be tried again
}

// provide gives the users of a laptop exactly the rights that the policy says.
func (c *Company) provide(ctx context.Context, peer *v1alpha1.Peer) (rights, error) {
	c.providing.Lock()
	defer c.providing.Unlock()
	all, left, err := c.places(ctx, peer)
	if err != nil {
		return rights{}, err
	}
	policy, err := c.policyFor(ctx, peer)
	if err != nil {
		return rights{}, err
	}
	if policy == nil {
		left = append(left, noPolicy+" any more, so its users may do nothing here")
	}
	now := rights{wanted: fmt.Sprint(peer.UID, all, left), problems: left, settled: true}
	c.mu.Lock()
	was := c.granted[peer.Name]
	c.mu.Unlock()
	if was.settled && was.wanted == now.wanted {
		return was, nil
	}
	var errs []error
	for _, p := range all {
		problem, err := c.provideIn(ctx, peer, p)
		if problem != "" {
			now.problems, now.settled = append(now.problems, problem), false
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, c.prune(ctx))...); err != nil {
		return now, err
	}
	if !slices.Equal(was.problems, now.problems) {
		for _, problem := range now.problems {
			c.cfg.Log.Warn("the users of a tethered laptop do not get all that the policy says", "peer", peer.Name, "why", problem)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted[peer.Name] = now
	return now, nil
}

// withdraw takes away what the users of a laptop had, if anything is left of that.
func (c *Company) withdraw(ctx context.Context, peer string) error {
	c.providing.Lock()
	defer c.providing.Unlock()
	c.mu.Lock()
	_, had := c.granted[peer]
	first := !c.pruned
	c.mu.Unlock()
	if !had && !first {
		return nil
	}
	if err := c.prune(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.granted, peer)
	delete(c.asked, peer)
	return nil
}

// provideIn does it in one namespace.
func (c *Company) provideIn(ctx context.Context, peer *v1alpha1.Peer, p place) (problem string, err error) {
	ns, err := c.namespace(ctx, peer, p)
	switch {
	case err != nil:
		return "", err
	case ns.DeletionTimestamp != nil:
		return fmt.Sprintf("the namespace %s is being deleted", p.namespace), nil
	case p.own && !isFor(ns, peer):
		return notItsOwn(p.namespace, peer), nil
	}
	if err := c.cfg.Fresh.Get(ctx, client.ObjectKey{Name: p.role}, &rbacv1.ClusterRole{}); apierrors.IsNotFound(err) {
		// Rights in a namespace that does not exist would silently apply to whoever creates it later.
		return fmt.Sprintf("there is no ClusterRole %s, so its users may do nothing in the namespace %s", p.role, p.namespace), nil
	} else if err != nil {
		return "", fmt.Errorf("look for the ClusterRole %s: %w", p.role, err)
	}
	// The quota before the rights, so that nothing is created without it.
	if len(p.quota) > 0 {
		if problem, err := c.put(ctx, quota(p)); problem != "" || err != nil {
			return problem, err
		}
	}
	return c.put(ctx, binding(peer, p))
}

// namespace gives one of a place, and makes it when it is missing. One that was there is not touched.
func (c *Company) namespace(ctx context.Context, peer *v1alpha1.Peer, p place) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}
	if p.offload {
		ns.Labels[v1alpha1.LabelOffload] = "true"
	}
	if p.own {
		ns.Labels[v1alpha1.LabelLaptop] = strings.TrimPrefix(user(peer.Spec.ID), UserPrefix)
	}
	var there corev1.Namespace
	err := c.cfg.Fresh.Get(ctx, client.ObjectKeyFromObject(ns), &there)
	if !apierrors.IsNotFound(err) {
		return &there, err
	}
	if err := c.cfg.Client.Create(ctx, ns); apierrors.IsAlreadyExists(err) {
		return &there, c.cfg.Fresh.Get(ctx, client.ObjectKeyFromObject(ns), &there)
	} else if err != nil {
		return nil, fmt.Errorf("make the namespace %s for %s: %w", p.namespace, peer.Name, err)
	}
	c.cfg.Log.Info("namespace made for a tethered laptop", "namespace", ns.Name, "peer", peer.Name)
	return ns, nil
}

func rightsLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, labelTether: tetherRights}
}

func binding(peer *v1alpha1.Peer, p place) *rbacv1.RoleBinding {
	who := user(peer.Spec.ID)
	labels := rightsLabels()
	labels[v1alpha1.LabelLaptop] = strings.TrimPrefix(who, UserPrefix)
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: who, Labels: labels,
			Annotations: map[string]string{v1alpha1.LabelPeer: peer.Name}, // for people
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.role},
	}
}

// quota is one of the namespace, and so of all laptops to which the policy gives it.
func quota(p place) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "kith-tether-" + p.policy, Labels: rightsLabels()},
		Spec:       corev1.ResourceQuotaSpec{Hard: p.quota},
	}
}

// ours reports whether Kith made an object for tethers.
func ours(o client.Object) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && o.GetLabels()[labelTether] == tetherRights
}

// put creates or updates an object, unless somebody else made it.
func (c *Company) put(ctx context.Context, want client.Object) (problem string, err error) {
	there := want.DeepCopyObject().(client.Object)
	err = c.cfg.Fresh.Get(ctx, client.ObjectKeyFromObject(want), there)
	switch {
	case apierrors.IsNotFound(err):
		err = c.cfg.Client.Create(ctx, want)
	case err != nil:
	case !ours(there):
		return fmt.Sprintf("in the namespace %s there is %s already, which is not Kith's", want.GetNamespace(), want.GetName()), nil
	case same(there, want):
		return "", nil
	default:
		err = c.replace(ctx, there, want)
	}
	if err != nil {
		return "", fmt.Errorf("put %s into namespace %s: %w", want.GetName(), want.GetNamespace(), err)
	}
	return "", nil
}

func same(there, want client.Object) bool {
	switch there := there.(type) {
	case *rbacv1.RoleBinding:
		want := want.(*rbacv1.RoleBinding)
		return there.RoleRef == want.RoleRef && equality.Semantic.DeepEqual(there.Subjects, want.Subjects)
	case *corev1.ResourceQuota:
		return equality.Semantic.DeepEqual(there.Spec, want.(*corev1.ResourceQuota).Spec)
	}
	return false
}

// replace: the role of a binding cannot be changed, the object has to be another.
func (c *Company) replace(ctx context.Context, there, want client.Object) error {
	if there, is := there.(*rbacv1.RoleBinding); is && there.RoleRef != want.(*rbacv1.RoleBinding).RoleRef {
		if err := client.IgnoreNotFound(c.cfg.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID})); err != nil {
			return err
		}
		return c.cfg.Client.Create(ctx, want)
	}
	want.SetResourceVersion(there.GetResourceVersion())
	return c.cfg.Client.Update(ctx, want)
}

// prune removes what no laptop has any more: it compares all that Kith made for tethers with what the policies give now.
func (c *Company) prune(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, peer := range c.cfg.Client.Now().Peers {
		if !runs(peer) {
			continue
		}
		all, _, err := c.places(ctx, peer)
		if err != nil {
			return err
		}
		for _, p := range all {
			wanted["binding/"+p.namespace+"/"+user(peer.Spec.ID)] = true
			if len(p.quota) > 0 {
				wanted["quota/"+p.namespace+"/"+quota(p).Name] = true
			}
		}
	}
	var bindings rbacv1.RoleBindingList
	var quotas corev1.ResourceQuotaList
	if err := errors.Join(c.cfg.Fresh.List(ctx, &bindings, client.MatchingLabels(rightsLabels())),
		c.cfg.Fresh.List(ctx, &quotas, client.MatchingLabels(rightsLabels()))); err != nil {
		return fmt.Errorf("look for rights of laptops that are not tethered any more: %w", err)
	}
	var errs []error
	remove := func(kind string, o client.Object) {
		if wanted[kind+"/"+o.GetNamespace()+"/"+o.GetName()] {
			return
		}
		uid := o.GetUID()
		errs = append(errs, client.IgnoreNotFound(c.cfg.Client.Delete(ctx, o, client.Preconditions{UID: &uid})))
		c.cfg.Log.Info("right of a tethered laptop's users taken back", "namespace", o.GetNamespace(), "name", o.GetName())
	}
	for i := range bindings.Items {
		remove("binding", &bindings.Items[i])
	}
	for i := range quotas.Items {
		remove("quota", &quotas.Items[i])
	}
	err := errors.Join(errs...)
	if err == nil {
		c.mu.Lock()
		c.pruned = true
		c.mu.Unlock()
	}
	return err
}

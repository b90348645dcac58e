package company

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// anyRole among the roles that may be given stands for all of them.
const anyRole = "*"

// mayGive reports whether a TetherPolicy may give a ClusterRole here. Kubernetes may know better, and then says so.
func (c *Company) mayGive(role string) bool {
	return !v1alpha1.SystemRole(role) && c.listed(role)
}

func (c *Company) listed(role string) bool {
	return slices.Contains(c.cfg.Roles, anyRole) || slices.Contains(c.cfg.Roles, role)
}

// judge has the status of a policy say which of its roles are not given. Admission refuses such a policy, but not one that was stored before
// the list of roles was, or before it got shorter: of that one nobody else would tell.
func (c *Company) judge(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.TetherPolicy
	if err := c.cfg.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := policy.DeepCopy()
	var changed bool
	if is := c.rolesAllowed(&policy); slices.Contains(c.cfg.Roles, anyRole) && is.Status == metav1.ConditionTrue {
		changed = meta.RemoveStatusCondition(&policy.Status.Conditions, v1alpha1.ConditionRolesAllowed)
	} else {
		changed = meta.SetStatusCondition(&policy.Status.Conditions, is)
	}
	if !changed {
		return ctrl.Result{}, nil
	}
	if err := c.cfg.Client.Status().Patch(ctx, &policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return record.Calm(ctrl.Result{}, client.IgnoreNotFound(err))
	}
	if no := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionRolesAllowed); no != nil && no.Status == metav1.ConditionFalse {
		c.cfg.Log.Warn("a TetherPolicy names a ClusterRole that may not be given", "policy", policy.Name, "why", no.Message)
	}
	return ctrl.Result{}, nil
}

// rolesAllowed is the condition of a policy that names a role which may not be given, or where there is a list of those that may.
func (c *Company) rolesAllowed(policy *v1alpha1.TetherPolicy) metav1.Condition {
	var not []string
	for _, n := range policy.Spec.Namespaces {
		if role := roleOf(n); !c.mayGive(role) {
			not = append(not, role)
		}
	}
	is := metav1.Condition{
		Type: v1alpha1.ConditionRolesAllowed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllRolesAllowed, ObservedGeneration: policy.Generation,
		Message: "kithd may give every ClusterRole that it names",
	}
	if len(not) > 0 {
		slices.Sort(not)
		is.Status, is.Reason = metav1.ConditionFalse, v1alpha1.ReasonRoleNotAllowed
		may := cmp.Or(strings.Join(c.cfg.Roles, ", "), "no ClusterRole") + " (the chart's value tether.clusterRoles)"
		if slices.Contains(c.cfg.Roles, anyRole) {
			may = "all but cluster-admin and those of Kubernetes' own parts (system:)"
		}
		is.Message = fmt.Sprintf("spec.namespaces[].clusterRole: kithd may not give %s here, so users of laptops have nothing by it; it may give %s",
			strings.Join(slices.Compact(not), ", "), may)
	}
	return is
}

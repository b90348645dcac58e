package grants

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// CheckHome says whether home can be the name of a namespace.
func CheckHome(home string) error {
	if msgs := validation.IsDNS1123Label(home); len(msgs) > 0 {
		return api.Invalid("home", home, "the name of a namespace: "+strings.Join(msgs, "; "))
	}
	return nil
}

// TwinNames gives the names a new twin of home may have here, the one to try first in front. The bare name is not among
// them: it could be one that the owner, or what the owner installs, uses tomorrow, and the consumer would read what is put there.
func TwinNames(home string, consumer Consumer) []string {
	var names []string
	for _, n := range v1alpha1.ShortIDs {
		names = append(names, v1alpha1.TwinName(home, consumer.Compact[:n]))
	}
	return names
}

// CheckSameName says why the twin of home may not have its name, nil when the owner allows that. The name is not that of a twin of
// any consumer's, whether its contract is in force or not.
func (c *Contracts) CheckSameName(t *Terms, home string) error {
	if !t.KeepsNames {
		return NotKept(home, "its owner does not allow that")
	}
	if pattern := sharing.ReservedBy(t.Reserved, home); pattern != "" {
		return NotKept(home, fmt.Sprintf("%q is reserved there", pattern))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.terms {
		if endsLike(home, other.Consumer.Compact) {
			return NotKept(home, "it ends like the names of "+other.Consumer.Name+"'s namespaces there")
		}
	}
	return nil
}

func NotKept(home, why string) error {
	return &api.Error{
		Code: api.CodeForbidden, Message: fmt.Sprintf("namespace %q cannot keep its name at the provider", home), Reason: why,
		Do: "leave out --same-name (mapping Default): it gets a name of its own there",
	}
}

func endsLike(name, compact string) bool {
	return slices.ContainsFunc(v1alpha1.ShortIDs, func(n int) bool { return len(compact) >= n && strings.HasSuffix(name, "-"+compact[:n]) })
}

// OwnFields leaves of a namespace's managed fields those by which it is known, for a cache.
func OwnFields(o any) (any, error) {
	if ns, ok := o.(*corev1.Namespace); ok { // else a tombstone
		ns.ManagedFields = slices.DeleteFunc(ns.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager != v1alpha1.ManagedBy })
	}
	return o, nil
}

// LabelValue makes a name fit a label.
func LabelValue(name string) string {
	if len(name) > validation.LabelValueMaxLength {
		name = name[:validation.LabelValueMaxLength]
	}
	return strings.Trim(name, "-._")
}

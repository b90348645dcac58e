package tenants

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// Origin is for whom a consumer has a namespace here, where it offers on what it is granted.
type Origin struct {
	ID        string // of the cluster, in the compact form; "" when the consumer has it for itself
	Namespace string // there
}

// originOf reads what a consumer says of it, and refuses what its contract does not grant, and what would go round.
func originOf(terms *grants.Terms, id, namespace string) (Origin, error) {
	if id == "" && namespace == "" {
		return Origin{}, nil
	}
	is, err := identity.ParseID(id)
	if err != nil {
		return Origin{}, api.Invalid("for", id, "the ID of a cluster")
	}
	if err := grants.CheckHome(namespace); err != nil {
		return Origin{}, err
	}
	if no := grants.ForAnother(terms, []v1alpha1.ChainLink{{Cluster: is.String()}}); no != nil {
		return Origin{}, &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("namespace %q of another cluster", namespace), Reason: no.Message}
	}
	return Origin{is.Compact(), namespace}, nil
}

// letGoOn makes a twin an offloaded namespace of this cluster's, as its owner's are, while guests there may go on to providers of this cluster: all
// else is then as for any such namespace.
func (t *Tenants) letGoOn(ctx context.Context, tw grants.Twin, terms *grants.Terms) error {
	var peers []string
	for _, to := range terms.MayGoOn() {
		peers = append(peers, to.Peer)
	}
	slices.Sort(peers)
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
		Namespace: tw.Name, Name: v1alpha1.NamespaceOffloadingName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
	}}
	err := t.client.Get(ctx, client.ObjectKeyFromObject(nso), nso)
	none := apierrors.IsNotFound(err)
	spec := v1alpha1.NamespaceOffloadingSpec{Mapping: v1alpha1.MappingDefault, Strategy: v1alpha1.StrategyLocalAndRemote, Peers: peers, Volumes: v1alpha1.VolumesHome}
	switch {
	case err != nil && !none:
	case none && len(peers) == 0, nso.DeletionTimestamp != nil:
		return nil
	case none:
		nso.Spec = spec
		if err = t.client.Create(ctx, nso); apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, "NamespaceTerminating") {
			return nil // it is seen in a moment, or goes
		}
	case len(peers) == 0: // guests there come back
		err = client.IgnoreNotFound(t.client.Delete(ctx, nso, client.Preconditions{UID: &nso.UID}))
	case !equality.Semantic.DeepEqual(nso.Spec, spec):
		nso = nso.DeepCopy()
		nso.Spec = spec
		if err = t.client.Update(ctx, nso); apierrors.IsConflict(err) {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("let guests of namespace %s go on to %v: %w", tw.Name, peers, err)
	}
	return nil
}

package tenants

import (
	"cmp"
	"context"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

// namespaceTimeout bounds one call; consumers wait for 15 s.
const namespaceTimeout = 14 * time.Second

// TwinAnswer is the body of the answer to PutNamespace.
type TwinAnswer struct {
	Namespace string `json:"namespace"` // the twin's name
}

// PutNamespace answers PUT /kith/v2/namespaces/{home}?contract=ID&mapping=Default|SameName with a TwinAnswer. With for=ID&forNamespace=NAME the consumer has
// it for another cluster, to which it offers on what it is granted.
func (t *Tenants) PutNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	twin, err := t.putNamespace(r, consumerID)
	door.Answer(t.log, w, TwinAnswer{twin}, err)
}

func (t *Tenants) putNamespace(r *http.Request, consumerID string) (twin string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	mapping := cmp.Or(v1alpha1.NamespaceMapping(r.URL.Query().Get("mapping")), v1alpha1.MappingDefault)
	if mapping != v1alpha1.MappingDefault && mapping != v1alpha1.MappingSameName {
		return "", api.Invalid("mapping", string(mapping), "Default or SameName")
	}
	terms, err := t.contracts.TermsOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		return "", err
	}
	of, err := originOf(terms, r.URL.Query().Get("for"), r.URL.Query().Get("forNamespace"))
	if err != nil {
		return "", err
	}
	if twin, err = t.EnsureNamespace(ctx, terms, r.PathValue("home"), mapping, of); err == nil {
		t.waitForRights(ctx, consumerID, twin)
	}
	return twin, err
}

// rightsWithin bounds the wait for the rights in a new namespace, which the API server learns of by a watch of its own.
const rightsWithin = 2 * time.Second

// waitForRights returns when the consumer may work in its namespace, or that takes too long: it would be refused, ask again, and
// count as one that tries what it may not.
func (t *Tenants) waitForRights(ctx context.Context, consumerID, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, rightsWithin)
	defer cancel()
	growing := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 100, Cap: 200 * time.Millisecond}
	_ = growing.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: door.UserPrefix + consumerID, Groups: []string{door.Group},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "offloadedpods"},
		}}
		err := t.client.Create(ctx, review) // who cannot be asked is not waited for
		return review.Status.Allowed, err
	})
}

// DeleteNamespace answers DELETE /kith/v2/namespaces/{home}?contract=ID at once: 202 and {} when the twin is being cleared away from
// now on, 200 and {} when there is none. How far it is the caller sees in its view; after a restart of either side too.
func (t *Tenants) DeleteNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	home := r.PathValue("home")
	terms, err := t.contracts.TermsOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err == nil {
		err = grants.CheckHome(home)
	}
	there := false
	if err == nil {
		there, err = t.ReleaseNamespace(ctx, terms.Contract, home)
	}
	if err == nil && there {
		door.Say(w, http.StatusAccepted, struct{}{})
		return
	}
	door.Answer(t.log, w, struct{}{}, err)
}

package tenants

import (
	"context"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/door"
	"kith.dev/core/hosting/grants"
)

// namespaceTimeout bounds one call; consumers wait for 15 s.
const namespaceTimeout = 14 * time.Second

// TwinAnswer is the body of the answer to PutNamespace.
type TwinAnswer struct {
	Namespace string `json:"namespace"` // the twin's name
}

// PutNamespace answers PUT /kith/v2/namespaces/{home}?contract=ID&mapping=Default|SameName with a TwinAnswer.
// Errors are problems as peering has them. consumerID is the caller's, proved by its key (identity.ID.String).
func (t *Tenants) PutNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	mapping := v1alpha1.NamespaceMapping(r.URL.Query().Get("mapping"))
	switch mapping {
	case "":
		mapping = v1alpha1.MappingDefault
	case v1alpha1.MappingDefault, v1alpha1.MappingSameName:
	default:
		door.Answer(t.log, w, nil, api.Invalid("mapping", string(mapping), "Default or SameName"))
		return
	}
	terms, err := t.contracts.TermsOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		door.Answer(t.log, w, nil, err)
		return
	}
	twin, err := t.EnsureNamespace(ctx, terms, r.PathValue("home"), mapping)
	if err == nil {
		t.waitForRights(ctx, consumerID, twin)
	}
	door.Answer(t.log, w, TwinAnswer{twin}, err)
}

// rightsWithin bounds the wait for the rights in a new namespace, which the API server learns of by a watch of its own.
const rightsWithin = 2 * time.Second

// waitForRights returns when the consumer may work in its namespace, or that takes too long: it would be refused, ask again, and
// count as one that tries what it may not.
func (t *Tenants) waitForRights(ctx context.Context, consumerID, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, rightsWithin)
	defer cancel()
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: door.UserPrefix + consumerID, Groups: []string{door.Group},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "offloadedpods"},
		}}
		if err := t.client.Create(ctx, review); err != nil || review.Status.Allowed {
			return // who cannot be asked is not waited for
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

// DeleteNamespace answers DELETE /kith/v2/namespaces/{home}?contract=ID at once: 202 and {} when the twin is being cleared away from
// now on, 200 and {} when there is none. How far it is the caller sees in its view; after a restart of either side too.
func (t *Tenants) DeleteNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	terms, err := t.contracts.TermsOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		door.Answer(t.log, w, nil, err)
		return
	}
	home := r.PathValue("home")
	if err := grants.CheckHome(home); err != nil {
		door.Answer(t.log, w, nil, err)
		return
	}
	switch there, err := t.ReleaseNamespace(ctx, terms.Contract, home); {
	case err != nil:
		door.Answer(t.log, w, nil, err)
	case there:
		door.Say(w, http.StatusAccepted, struct{}{})
	default:
		door.Say(w, http.StatusOK, struct{}{})
	}
}

package hosting

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// namespaceTimeout bounds one call; consumers wait for 15 s.
const namespaceTimeout = 14 * time.Second

// TwinAnswer is the body of the answer to PutNamespace.
type TwinAnswer struct {
	Namespace string `json:"namespace"` // the twin's name
}

// PutNamespace answers PUT /kith/v2/namespaces/{home}?contract=ID&mapping=Default|SameName with a TwinAnswer.
// Errors are problems as peering has them. consumerID is the caller's, proved by its key (identity.ID.String).
func (h *Host) PutNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	mapping := v1alpha1.NamespaceMapping(r.URL.Query().Get("mapping"))
	switch mapping {
	case "":
		mapping = v1alpha1.MappingDefault
	case v1alpha1.MappingDefault, v1alpha1.MappingSameName:
	default:
		h.answer(w, nil, api.Invalid("mapping", string(mapping), "Default or SameName"))
		return
	}
	contract, consumer, err := h.contractOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		h.answer(w, nil, err)
		return
	}
	twin, err := h.EnsureNamespace(ctx, contract, consumer, r.PathValue("home"), mapping)
	if err == nil {
		h.waitForRights(ctx, consumerID, twin)
	}
	h.answer(w, TwinAnswer{twin}, err)
}

// rightsWithin bounds the wait for the rights in a new namespace, which the API server learns of by a watch of its own.
const rightsWithin = 2 * time.Second

// waitForRights returns when the consumer may work in its namespace, or that takes too long: it would be refused, ask again, and
// count as one that tries what it may not.
func (h *Host) waitForRights(ctx context.Context, consumerID, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, rightsWithin)
	defer cancel()
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: userPrefix + consumerID, Groups: []string{group},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "offloadedpods"},
		}}
		if err := h.client.Create(ctx, review); err != nil || review.Status.Allowed {
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
func (h *Host) DeleteNamespace(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), namespaceTimeout)
	defer cancel()
	contract, _, err := h.contractOf(ctx, r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		h.answer(w, nil, err)
		return
	}
	home := r.PathValue("home")
	if err := checkHome(home); err != nil {
		h.answer(w, nil, err)
		return
	}
	switch there, err := h.ReleaseNamespace(ctx, contract, home); {
	case err != nil:
		h.answer(w, nil, err)
	case there:
		say(w, http.StatusAccepted, struct{}{})
	default:
		say(w, http.StatusOK, struct{}{})
	}
}

// termsOf finds the terms of the contract by its ID and sees to it that it is the caller's. To anybody else's the answer
// is the same as to none.
func (h *Host) termsOf(ctx context.Context, id, consumerID string) (*terms, error) {
	t, err := h.contracts.find(ctx, id, consumerID)
	if err == nil && t == nil {
		err = noneOfThatID(id)
	}
	return t, err
}

func noneOfThatID(id string) error {
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %.40q", id), Reason: "there is none of that ID with this consumer"}
}

// contractOf is termsOf with the contract as it is now.
func (h *Host) contractOf(ctx context.Context, id, consumerID string) (*v1alpha1.Contract, Consumer, error) {
	t, err := h.termsOf(ctx, id, consumerID)
	if err != nil {
		return nil, Consumer{}, err
	}
	var contract v1alpha1.Contract
	if err := h.tenants.live.Get(ctx, client.ObjectKey{Name: t.object}, &contract); err != nil {
		return nil, Consumer{}, fmt.Errorf("reading contract %s: %w", id, err)
	}
	if contract.Spec.ID != id {
		return nil, Consumer{}, noneOfThatID(id)
	}
	return &contract, t.consumer, nil
}

// problem is what the consumer's daemon understands: a peering.Problem.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

var problemCodes = map[api.Code]string{
	api.CodeInvalid: "bad-request", api.CodeForbidden: "forbidden", api.CodeConflict: "conflict", api.CodeNotReady: "unavailable",
}

// answer writes body, or the error. What is not an *api.Error is for this side's log, not for the peer.
func (h *Host) answer(w http.ResponseWriter, body any, err error) {
	code := http.StatusOK
	if err != nil {
		var known *api.Error
		if !errors.As(err, &known) {
			h.log.Warn("twin namespace", "err", err)
			known = &api.Error{Code: api.CodeNotReady, Message: "the provider could not do it now", Do: "try again"}
		}
		said := problem{Code: cmp.Or(problemCodes[known.Code], "internal"), Message: known.Message, Do: known.Do}
		if known.Reason != "" {
			said.Message += ": " + known.Reason
		}
		code, body = known.Code.HTTPStatus(), said
	}
	say(w, code, body)
}

func say(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the caller is gone when this fails
}

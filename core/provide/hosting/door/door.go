package door

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

// Names under which the provider's API server knows consumers.
const (
	UserPrefix = "kith:peer:"
	Group      = "kith:peers"
)

// Access says who may pass the door. *Host is one.
type Access interface {
	// Admitted reports whether a contract with the consumer is in force. It is asked at the start of a request only: when it becomes
	// false, call Shut to end those that are open.
	Admitted(consumerID string) bool
	// Kept counts what the consumer keeps in the API server here, and says how much that may be.
	Kept(ctx context.Context, consumerID string) (has, most Stored, err error)
	// TermsIn gives the terms that hold in a namespace; nil where no contract does.
	TermsIn(namespace string) *grants.Terms
}

// Door lets consumers through to the provider's API server, each as itself: user kith:peer:<ID>, group
// kith:peers. What they may do there is RBAC's business (ClusterRole kith:tenant); the door sees to it that
// nobody passes as somebody else, outside the few paths a tenant needs, without a contract, or too often.
type Door struct {
	*apiproxy.Door
	// Recount is the least time between two counts of what a consumer keeps; it may be changed before the first request.
	Recount time.Duration

	access Access
}

// Reasons for which this door refuses, besides those of apiproxy.Door.
const (
	RefusedContract audit.Reason = "contract" // no contract is in force
	RefusedFull     audit.Reason = "full"     // the consumer keeps too much here already
)

// RefusedReasons are all of them.
func RefusedReasons() []audit.Reason {
	return []audit.Reason{
		RefusedContract, RefusedFull, apiproxy.RefusedPath, apiproxy.RefusedForbidden, apiproxy.RefusedLimits, apiproxy.RefusedBody,
		apiproxy.RefusedTimeout, apiproxy.RefusedUnavailable,
	}
}

// NewDoor makes the door to the API server that config leads to. The identity in config must be allowed
// to impersonate users and groups. Refusals are recorded in audits; it may be nil.
func NewDoor(config *rest.Config, access Access, audits *audit.Log, log *slog.Logger) (*Door, error) {
	d := &Door{Recount: 10 * time.Second, access: access}
	groups := kinds.Groups() // which of these a consumer gets is RBAC's business
	var err error
	d.Door, err = apiproxy.NewDoor(config, apiproxy.Policy{
		Door: audit.Kube, Server: "the provider's API server",
		Closed:  apiproxy.Refusal{Code: http.StatusForbidden, Reason: RefusedContract, Why: "no contract with this cluster is in force"},
		Unusual: []audit.Reason{RefusedFull, apiproxy.RefusedPath, apiproxy.RefusedForbidden, apiproxy.RefusedBody},
		Headers: []string{"Accept-Encoding", "Content-Type", "If-None-Match"},
		Parse: func(r *http.Request) (apiproxy.Info, *apiproxy.Refusal) {
			info, err := apiproxy.Parse(r, "/kube", groups...)
			if err != nil {
				return info, &apiproxy.Refusal{Code: http.StatusForbidden, Reason: apiproxy.RefusedPath, Why: err.Error()}
			}
			return info, nil
		},
		Admit: func(_ context.Context, consumerID string) bool { return access.Admitted(consumerID) },
		Check: func() apiproxy.Check {
			var kept estimate
			return func(ctx context.Context, r *apiproxy.Request) *apiproxy.Refusal { return d.check(ctx, r, &kept) }
		},
		As: func(r *apiproxy.Request) http.Header {
			return http.Header{"Impersonate-User": {UserPrefix + r.ID}, "Impersonate-Group": {Group}}
		},
	}, apiproxy.DefaultLimits(), audits, log)
	if err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	return d, nil
}

// check looks at what a consumer sends, translates its addresses, and finds room for what it brings.
func (d *Door) check(ctx context.Context, r *apiproxy.Request, kept *estimate) *apiproxy.Refusal {
	weight := int64(0)
	if len(r.Body) > 0 {
		var err error
		if weight, err = checkBody(r.Info, r.HTTP.Method, r.HTTP.Header.Get("Content-Type"), r.Body); err == nil {
			r.Body, err = d.here(r.Info, r.Body)
		}
		if err != nil {
			return &apiproxy.Refusal{Code: http.StatusForbidden, Reason: apiproxy.RefusedBody, Why: err.Error()}
		}
	}
	r.Unvalidated = r.Info.Writes // nobody reads what it would say of them
	if r.Info.Writes {
		if err := kept.admit(ctx, r, weight, d); err != nil {
			return &apiproxy.Refusal{Code: http.StatusForbidden, Reason: RefusedFull, Why: err.Error()}
		}
	}
	return nil
}

// here translates the consumer's addresses in a body to those used here. Answers are not translated back: of objects with addresses the
// consumer reads only metadata (core/consume/remote), and addresses of Pods come in its view.
func (d *Door) here(info apiproxy.Info, body []byte) ([]byte, error) {
	terms, is := d.access.TermsIn(info.Namespace), contents[info.Resource]
	if terms == nil || terms.GuestsHere == "" || is.here == nil || !info.Writes {
		return body, nil
	}
	return is.here(body, terms.Translation())
}

package tenants

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

// Messages about policies that a consumer may send: one in so long, and some at once after a rest, for each new twin brings one.
const (
	policiesEach    = 5 * time.Second
	policiesAtOnce  = 30
	policiesTimeout = 10 * time.Second
)

// pacer is for one consumer: one message at a time.
type pacer struct {
	sync.Mutex
	limiter *rate.Limiter
}

func (t *Tenants) paceOf(consumer string) *pacer {
	p, _ := t.paces.LoadOrStore(consumer, &pacer{limiter: rate.NewLimiter(rate.Every(policiesEach), policiesAtOnce)})
	return p.(*pacer)
}

// PutPolicies answers PUT /kith/v2/policies?contract=ID, a netpolicy.Policies, with a netpolicy.Answer: from then on these are
// the NetworkPolicies in the twins under the contract, and no others of that consumer. Errors are problems as peering has
// them. consumerID is the caller's, proved by its key (identity.ID.String).
func (t *Tenants) PutPolicies(w http.ResponseWriter, r *http.Request, consumerID string) {
	ctx, cancel := context.WithTimeout(r.Context(), policiesTimeout)
	defer cancel()
	terms, err := t.contracts.Held(ctx, r.URL.Query().Get("contract"), consumerID)
	if err == nil && !t.Fenced {
		// The owner's own policies add up with these, and there they may be all that holds guests.
		err = &api.Error{Code: api.CodeForbidden, Message: "NetworkPolicies", Reason: "this cluster has a network plugin of its own, and takes none from others"}
	}
	if err != nil {
		door.Answer(t.log, w, nil, err)
		return
	}
	pace := t.paceOf(consumerID)
	if !pace.limiter.Allow() {
		door.Answer(t.log, w, nil, &api.Error{Code: api.CodeNotReady, Message: "NetworkPolicies", Reason: "too many messages", Do: "try again"})
		return
	}
	whole := http.NewResponseController(w)
	_ = whole.SetReadDeadline(time.Now().Add(policiesTimeout))
	m, err := netpolicy.Read(r.Body)
	_ = whole.SetReadDeadline(time.Time{})
	if err != nil {
		door.Answer(t.log, w, nil, &api.Error{Code: api.CodeInvalid, Message: "NetworkPolicies", Reason: err.Error()})
		return
	}
	pace.Lock()
	defer pace.Unlock()
	refused, err := t.keepPolicies(ctx, terms, m)
	door.Answer(t.log, w, netpolicy.Answer{Refused: refused}, err)
}

// keepPolicies makes the policies in the twins those of the message.
func (t *Tenants) keepPolicies(ctx context.Context, terms *grants.Terms, m *netpolicy.Policies) (refused []netpolicy.Refused, err error) {
	twins := map[string]string{}
	for _, tw := range t.contracts.TwinsOf(terms.Contract) {
		if !tw.Leaving {
			twins[tw.Home] = tw.Name
		}
	}
	byHome := func(home string) (string, bool) { name, ok := twins[home]; return name, ok }
	var have networkingv1.NetworkPolicyList
	ours := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: terms.Consumer.Compact}
	if err := t.live.List(ctx, &have, ours); err != nil {
		return nil, fmt.Errorf("list NetworkPolicies of %s: %w", terms.Consumer.Name, err)
	}
	old := map[client.ObjectKey]*networkingv1.NetworkPolicy{}
	for i := range have.Items {
		if slices.ContainsFunc(t.contracts.TwinsOf(terms.Contract), func(tw grants.Twin) bool { return tw.Name == have.Items[i].Namespace }) {
			old[client.ObjectKeyFromObject(&have.Items[i])] = &have.Items[i]
		}
	}
	for i := range m.Policies {
		p := &m.Policies[i]
		twin, there := byHome(p.Namespace)
		if !there {
			continue // it is sent again when there is one
		}
		of := t.contracts.In(t.contracts.Twin(twin), terms)
		homes := strings.FieldsFunc(of.Space+","+of.Space6, func(r rune) bool { return r == ',' })
		want := p.At(twin, byHome, homes)
		if want == nil {
			continue
		}
		want.Labels = map[string]string(ours)
		is := old[client.ObjectKeyFromObject(want)]
		delete(old, client.ObjectKeyFromObject(want))
		why, err := t.writePolicy(ctx, is, want)
		if err != nil {
			return nil, err
		}
		if why != "" {
			refused = append(refused, netpolicy.Refused{Namespace: p.Namespace, Name: p.Name, Why: why})
		}
	}
	for _, gone := range old {
		if err := t.client.Delete(ctx, gone); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete NetworkPolicy %s/%s: %w", gone.Namespace, gone.Name, err)
		}
	}
	return refused, nil
}

// writePolicy makes a policy, or changes it if it differs. why says what is wrong with it, for its owner at home.
func (t *Tenants) writePolicy(ctx context.Context, is, want *networkingv1.NetworkPolicy) (why string, err error) {
	switch {
	case is == nil:
		err = t.client.Create(ctx, want)
	case equality.Semantic.DeepEqual(is.Spec, want.Spec):
		return "", nil
	default:
		next := is.DeepCopy()
		next.Spec = want.Spec
		err = t.client.Update(ctx, next)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return "the owner there has a NetworkPolicy of that name in the namespace", nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return grants.Cut(err.Error(), 500), nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // the namespace is going
		return "", nil
	case err != nil:
		return "", fmt.Errorf("write NetworkPolicy %s/%s: %w", want.Namespace, want.Name, err)
	}
	return "", nil
}

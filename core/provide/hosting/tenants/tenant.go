package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

// maxTwins is how many namespaces a consumer may have here under one contract.
const maxTwins = 1000

// Tenants makes twin namespaces and clears them away.
type Tenants struct {
	client      client.Client
	live        client.Reader
	contracts   *grants.Contracts
	allocations *grants.Allocations
	audits      *audit.Log
	log         *slog.Logger

	Fenced bool     // guests here are behind the fence
	paces  sync.Map // pacer by consumer, of its messages about policies

	networks string     // directory, see Address; "" where guests' addresses are somebody else's to give
	telling  sync.Mutex // of what is in it
	services *services  // nil as networks

	mu sync.Mutex // one namespace is made at a time: two calls for one home must agree on its name
}

func New(c client.Client, live client.Reader, contracts *grants.Contracts, allocations *grants.Allocations, audits *audit.Log, log *slog.Logger) *Tenants {
	return &Tenants{client: c, live: live, contracts: contracts, allocations: allocations, audits: audits, log: log}
}

// apply is how everything but the namespace itself is written: server-side apply, fields owned by kith.
func (t *Tenants) apply(ctx context.Context, objects ...runtime.ApplyConfiguration) error {
	for _, object := range objects {
		if err := t.client.Apply(ctx, object, client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership); err != nil {
			return err
		}
	}
	return nil
}

// EnsureNamespace makes, or finds, the twin of the consumer's namespace home, brings what is in it up to date, and gives its name:
// that which it has already, else <home>-<short id>; with mapping SameName that of home, where the policy allows it, or an error.
// Errors a consumer may read are *api.Error: Invalid, Conflict, Forbidden (no contract in force), NotReady. of is for whom the consumer has the
// namespace; the zero value when it is its own.
func (t *Tenants) EnsureNamespace(ctx context.Context, terms *grants.Terms, home string, mapping v1alpha1.NamespaceMapping, of Origin) (twin string, err error) {
	if !terms.InForce(time.Now()) {
		return "", &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %s is not in force", terms.Contract), Reason: terms.Why}
	}
	consumer := terms.Consumer
	if err := grants.CheckHome(home); err != nil {
		return "", err
	}
	wanted := grants.Twin{Home: home, Origin: of.ID, OriginHome: of.Namespace}
	terms = t.contracts.In(wanted, terms)
	if t.networks != "" && terms.Guests == "" {
		return "", &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("namespace for %q", home), Reason: "the clusters have not agreed on addresses yet", Do: "try again in some seconds"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tw, found := t.contracts.TwinFor(consumer, home)
	if found && (tw.Origin != of.ID || tw.OriginHome != of.Namespace) {
		return "", &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("namespace for %q", home), Reason: "it is there for another cluster"}
	}
	names := grants.TwinNames(home, consumer)
	if mapping == v1alpha1.MappingSameName && (!found || tw.Name != home) {
		if err := t.contracts.CheckSameName(terms, home); err != nil {
			return "", err
		}
		if found {
			return "", grants.NotKept(home, fmt.Sprintf("it is %s there already: `kith unoffload %s` first", tw.Name, home))
		}
		names = []string{home}
	}
	if have := len(t.contracts.TwinsOf(terms.Contract)); !found && have >= maxTwins {
		no := &api.Error{
			Code: api.CodeForbidden, Message: fmt.Sprintf("namespace for %q", home),
			Reason: fmt.Sprintf("%d namespaces are kept at the provider under this contract, more are not allowed", have), Do: "take one home",
		}
		t.audits.Note(audit.Refusal{Door: audit.Guests, Reason: grants.ReasonNamespaces, ID: consumer.ID, What: "namespace " + home, Why: no.Reason, Usual: true})
		return "", no
	}
	for i := 0; !found && i < len(names); i++ {
		if tw, found, err = t.create(ctx, names[i], wanted, terms); err != nil {
			return "", err
		}
	}
	switch {
	case found && tw.Leaving:
		return "", stillCleared(tw.Name)
	case !found && mapping == v1alpha1.MappingSameName:
		return "", grants.NotKept(home, "the name is taken there")
	case !found:
		return "", &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("namespace for %q", home),
			Reason:  "every name it could have is taken at the provider: " + strings.Join(names, ", "),
		}
	}
	tw.Contract = terms.Contract
	err = t.furnish(ctx, tw, terms)
	if apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return "", stillCleared(tw.Name) // deleted since we heard of it last
	}
	if err != nil {
		return "", err
	}
	t.contracts.Learn(tw)
	t.allocations.MarkDirty(terms.Contract)
	if err := t.letGoOn(ctx, tw, terms); err != nil { // it is tried again with the next pod's question, or change of the terms
		t.log.Warn("guests stay here that could go on", "peer", terms.Consumer.Name, "namespace", tw.Name, "err", err)
	}
	return tw.Name, t.tellNetwork(tw.Name)
}

// create makes the namespace if nobody has one of that name; it gives the one there is if that is the twin
// looked for, of which a daemon that died had not told. It is a plain create, not an apply: that would
// quietly take over a namespace somebody else made.
func (t *Tenants) create(ctx context.Context, name string, wanted grants.Twin, terms *grants.Terms) (grants.Twin, bool, error) {
	home := wanted.Home
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: namespaceLabels(wanted, terms)}}
	err := t.client.Create(ctx, ns, client.FieldOwner(v1alpha1.ManagedBy))
	if apierrors.IsAlreadyExists(err) {
		if err := t.live.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			return grants.Twin{}, false, client.IgnoreNotFound(err)
		}
		tw, ok := grants.TwinOf(ns)
		return tw, ok && tw.Consumer == terms.Consumer.Compact && tw.Home == home && tw.Origin == wanted.Origin && tw.OriginHome == wanted.OriginHome, nil
	}
	if err != nil {
		return grants.Twin{}, false, fmt.Errorf("making namespace %s: %w", name, err)
	}
	t.log.Info("twin namespace made", "peer", terms.Consumer.Name, "namespace", name, "home", home, "contract", terms.Contract)
	tw, _ := grants.TwinOf(ns)
	return tw, true, nil
}

// furnish applies labels, role binding and quota. Bound to the namespace's
// UID, it never brings back one that was deleted in the meantime.
func (t *Tenants) furnish(ctx context.Context, tw grants.Twin, terms *grants.Terms) error {
	if err := t.forgetMoved(ctx, tw.Name, terms); err != nil {
		return fmt.Errorf("taking endpoints with former addresses out of namespace %s: %w", tw.Name, err)
	}
	if err := t.apply(ctx, namespaceObject(tw, terms), tenantBinding(tw.Name, terms), tenantQuota(tw.Name, terms)); err != nil {
		return fmt.Errorf("furnishing namespace %s: %w", tw.Name, err)
	}
	return nil
}

// forgetMoved takes away the EndpointSlices of a consumer of whose ranges one has lost the name that it had here. Home, which knows nothing of
// these names, sees the slices go and writes them anew.
func (t *Tenants) forgetMoved(ctx context.Context, namespace string, terms *grants.Terms) error {
	if !t.contracts.Pods.IsValid() {
		return nil
	}
	var ns corev1.Namespace
	if err := t.client.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := strings.Split(terms.AddressSpace(), ",")
	for was := range strings.SplitSeq(ns.Annotations[kinds.AnnotationSpace], ",") {
		if was != "" && !slices.Contains(now, was) {
			return t.client.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
		}
	}
	return nil
}

// Reapply brings every twin under the contract in step with its terms.
func (t *Tenants) Reapply(ctx context.Context, terms *grants.Terms) error {
	for _, tw := range t.contracts.TwinsOf(terms.Contract) {
		if tw.Leaving {
			continue
		}
		err := t.furnish(ctx, tw, t.contracts.In(tw, terms))
		if err == nil {
			err = errors.Join(t.letGoOn(ctx, tw, t.contracts.In(tw, terms)), t.tellNetwork(tw.Name))
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return err
		}
	}
	return nil
}

func stillCleared(name string) error {
	return &api.Error{
		Code:    api.CodeNotReady,
		Message: fmt.Sprintf("namespace %s at the provider", name),
		Reason:  "its former content is still being cleared away",
		Do:      "try again in some seconds",
	}
}

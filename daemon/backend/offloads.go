package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/consumer"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/find/directory"
	"kith.dev/core/local/guards"
)

var strategies = map[api.Strategy]v1alpha1.PodStrategy{
	api.StrategyBoth: v1alpha1.StrategyLocalAndRemote, api.StrategyRemote: v1alpha1.StrategyRemote, api.StrategyLocal: v1alpha1.StrategyLocal,
}

var asleep = map[api.WhenAsleep]v1alpha1.WhenAsleep{api.AsleepUsual: "", api.AsleepWait: v1alpha1.AsleepWait, api.AsleepMove: v1alpha1.AsleepMove}

// Offloads gives the namespaces whose pods may run at peers.
func (b *Backend) Offloads(ctx context.Context) ([]api.Offload, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	var all v1alpha1.NamespaceOffloadingList
	if err := c.Client.List(ctx, &all); err != nil {
		return nil, internal(err)
	}
	var list []api.Offload
	for i := range all.Items {
		v, err := c.offload(ctx, &all.Items[i])
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (c *Cluster) offload(ctx context.Context, nso *v1alpha1.NamespaceOffloading) (api.Offload, error) {
	v := api.Offload{Namespace: nso.Namespace, Strategy: api.StrategyBoth, Mapping: api.MappingDefault, Volumes: api.VolumesHome, Peers: nso.Spec.Peers}
	for word, strategy := range strategies {
		if strategy == nso.Spec.Strategy {
			v.Strategy = word
		}
	}
	if nso.Spec.Mapping == v1alpha1.MappingSameName {
		v.Mapping = api.MappingSameName
	}
	v.Spread, v.Network, v.Budget = nso.Spec.Spread, sharing.NetworkTerm(nso.Spec.Network), c.budget(nso)
	for word, rule := range asleep {
		if rule == nso.Spec.WhenAsleep {
			v.Asleep = word
		}
	}
	if nso.Spec.Volumes == v1alpha1.VolumesAnywhere {
		v.Volumes = api.VolumesAnywhere
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(nso.Namespace)); err != nil {
		return v, internal(err)
	}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case v1alpha1.Ended(pod.Status.Phase):
		case offloading.Abroad(pod):
			v.Pods.Abroad++
		default:
			v.Pods.Home++
		}
	}
	contracts := c.Client.Now().Contracts
	for _, ctr := range contracts {
		if ctr.Spec.Role != v1alpha1.RoleConsumer || len(nso.Spec.Peers) > 0 && !slices.Contains(nso.Spec.Peers, ctr.Spec.Peer) {
			continue
		}
		made := false
		for _, twin := range c.Fleet.Twins(ctr.Spec.Peer) {
			if twin.Home == nso.Namespace {
				made = true
				v.Twins = append(v.Twins, api.Twin{Peer: ctr.Spec.Peer, Namespace: twin.Name, Ready: ctr.Status.State == v1alpha1.StateConnected, Why: ctr.Status.Why})
			}
		}
		switch no := meta.FindStatusCondition(nso.Status.Conditions, consumer.ConditionNamed+ctr.Spec.Peer); {
		case no != nil && made: // under another name than is wanted now
			v.Twins[len(v.Twins)-1].Why = no.Message
		case no != nil:
			v.Twins = append(v.Twins, api.Twin{Peer: ctr.Spec.Peer, Why: no.Message})
		}
	}
	switch {
	case nso.DeletionTimestamp != nil:
		v.Why = "its pods are coming home"
		if held := heldBack(nso); held != "" {
			v.Why += ": " + held
		}
	case v.Strategy == api.StrategyLocal:
		v.Why = "its pods stay at home, and its services are at peers too"
	case !slices.ContainsFunc(contracts, func(ctr *v1alpha1.Contract) bool { return ctr.Spec.Role == v1alpha1.RoleConsumer }):
		v.Why = "no peer provides anything yet"
	default:
		v.Why = noneOf(nso.Spec.Peers, contracts)
	}
	return v, nil
}

var periods = map[api.Period]v1alpha1.BudgetPeriod{
	api.PeriodHour: v1alpha1.BudgetHour, api.PeriodDay: v1alpha1.BudgetDay, api.PeriodWeek: v1alpha1.BudgetWeek, api.PeriodMonth: v1alpha1.BudgetMonth,
}

var budgetStates = map[v1alpha1.BudgetState]api.BudgetState{
	v1alpha1.BudgetWithin: api.BudgetWithin, v1alpha1.BudgetNearly: api.BudgetNearly, v1alpha1.BudgetSpent: api.BudgetSpent,
}

var closedReasons = map[v1alpha1.ClosedReason]api.ClosedReason{
	v1alpha1.ClosedSpent: api.ClosedSpent, v1alpha1.ClosedOtherCurrency: api.ClosedOtherCurrency,
}

// budget is that of a namespace, as it stands now; nil without one.
func (c *Cluster) budget(nso *v1alpha1.NamespaceOffloading) *api.Budget {
	b := nso.Spec.Budget
	if b == nil {
		return nil
	}
	v := &api.Budget{}
	v.Amount, v.Currency, _ = strings.Cut(b.Amount, " ")
	for word, period := range periods {
		if period == b.Period {
			v.Period = word
		}
	}
	is := nso.Status.Budget
	if is == nil || is.NamespaceBudget != *b {
		return v
	}
	v.State, v.Spent, v.Since, v.Until = budgetStates[is.State], is.Spent, is.Since.UTC(), is.Until.UTC()
	if spent := c.Offloading.Spent(nso); spent != "" {
		v.Spent = spent
	}
	for _, closed := range is.Closed {
		v.Closed = append(v.Closed, api.BudgetClosed{Peer: closed.Peer, Reason: closedReasons[closed.Reason]})
	}
	return v
}

// budgetOf reads a budget as its owner wrote it; nil without one. Without a currency it is for the one of all prices.
func (c *Cluster) budgetOf(text string) (*v1alpha1.NamespaceBudget, error) {
	if text == "" {
		return nil, nil
	}
	amount, currency, period, err := api.ReadBudget("budget", text)
	if err != nil {
		return nil, err
	}
	if currency == "" {
		all := map[string]bool{}
		for _, priced := range c.Offloading.Purse.Currencies() {
			all[priced] = true
		}
		delete(all, "")
		switch known := slices.Sorted(maps.Keys(all)); len(known) {
		case 1:
			currency = known[0]
		case 0:
			return nil, api.Invalid("budget", text, "a budget in a currency, such as \"5 EUR/day\": no peer has prices yet")
		default:
			return nil, api.Invalid("budget", text, "a budget in one of the currencies in which peers are priced: "+strings.Join(known, ", "))
		}
	}
	return &v1alpha1.NamespaceBudget{Amount: amount + " " + currency, Period: periods[period]}, nil
}

// noneOf says which of the peers that a namespace may go to provide nothing; "" when all do.
func noneOf(peers []string, contracts []*v1alpha1.Contract) string {
	var without []string
	for _, peer := range peers {
		if !slices.ContainsFunc(contracts, func(ctr *v1alpha1.Contract) bool {
			return ctr.Spec.Role == v1alpha1.RoleConsumer && ctr.Spec.Peer == peer
		}) {
			without = append(without, peer)
		}
	}
	switch len(without) {
	case 0:
		return ""
	case len(peers):
		return "none of the peers it may go to provides anything: " + strings.Join(without, ", ")
	}
	return "of the peers it may go to, these provide nothing: " + strings.Join(without, ", ")
}

// Offload lets the pods of a namespace run at peers; it returns when the next pod created would.
func (b *Backend) Offload(ctx context.Context, namespace string, o api.OffloadOptions, report func(api.Progress)) (api.Offload, error) {
	if err := b.autonomous("pods of " + namespace + " stay at home"); err != nil {
		return api.Offload{}, err
	}
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Offload{}, err
	}
	var ns corev1.Namespace
	// Past the cache: it may have been made a moment ago.
	if err := c.Fresh.Get(ctx, named(namespace), &ns); apierrors.IsNotFound(err) {
		return api.Offload{}, api.NotFound("namespace", namespace, "kubectl get namespaces")
	} else if err != nil {
		return api.Offload{}, internal(err)
	}
	if !guards.Offloadable(&ns) {
		return api.Offload{}, api.Invalid("namespace", namespace, "a namespace of your own workloads")
	}
	if o.Peers, err = directory.NamesOf(b.Directory.All(), o.Peers); err != nil {
		return api.Offload{}, err
	}
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespaceOffloadingName, Namespace: namespace}}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(nso), nso)
	if client.IgnoreNotFound(err) != nil {
		return api.Offload{}, internal(err)
	}
	isNew := err != nil
	before := nso.DeepCopy()
	nso.Spec = v1alpha1.NamespaceOffloadingSpec{Strategy: strategies[o.Strategy], Mapping: v1alpha1.MappingDefault, Peers: o.Peers, Volumes: v1alpha1.VolumesHome, Spread: o.Spread, Network: sharing.Network(o.Network), WhenAsleep: asleep[o.Asleep]}
	if nso.Spec.Budget, err = c.budgetOf(o.Budget); err != nil {
		return api.Offload{}, err
	}
	if o.Volumes == api.VolumesAnywhere {
		nso.Spec.Volumes = v1alpha1.VolumesAnywhere
	}
	if err := c.checkVolumes(ctx, namespace, before.Spec.Volumes, nso.Spec.Volumes); err != nil {
		return api.Offload{}, err
	}
	if o.Mapping == api.MappingSameName {
		nso.Spec.Mapping = v1alpha1.MappingSameName
	}
	if isNew {
		err = c.Client.Create(ctx, nso)
	} else {
		err = c.Client.Patch(ctx, nso, client.MergeFrom(before))
	}
	if err != nil {
		return api.Offload{}, internal(fmt.Errorf("offload namespace %s: %w", namespace, err))
	}
	report(api.Progress{Message: "waiting until pods of " + namespace + " are let abroad"})
	if err := c.Offloading.WaitInForce(ctx, nso); err != nil {
		return api.Offload{}, internal(err)
	}
	news := "pods of namespace " + namespace + " may run at peers"
	if o.Strategy == api.StrategyLocal {
		news = "the services of namespace " + namespace + " are at peers too, and its pods stay at home"
	}
	b.Publish(api.Event{Type: api.EventNamespaceChanged, Severity: api.SeverityInfo, Object: "namespace/" + namespace, Message: news})
	if o.Mapping == api.MappingSameName || o.Strategy == api.StrategyLocal { // whether a peer allows it is better known now than when the first pod waits
		report(api.Progress{Message: "asking peers for namespace " + namespace})
		c.Fleet.Open(ctx, namespace, o.Peers)
		if err := c.Fresh.Get(ctx, client.ObjectKeyFromObject(nso), nso); err != nil {
			return api.Offload{}, internal(err)
		}
	}
	return c.offload(ctx, nso)
}

// Unoffload brings the pods of a namespace home.
func (b *Backend) Unoffload(ctx context.Context, namespace string, o api.UnoffloadOptions, report func(api.Progress)) error {
	c, err := b.cluster(ctx)
	if err != nil {
		return err
	}
	if err := c.unoffload(ctx, namespace, o, report); err != nil || bool(o.DryRun) {
		return err
	}
	b.Publish(api.Event{Type: api.EventNamespaceChanged, Severity: api.SeverityInfo, Object: "namespace/" + namespace, Message: "namespace " + namespace + " is home again"})
	return nil
}

func (c *Cluster) unoffload(ctx context.Context, namespace string, o api.UnoffloadOptions, report func(api.Progress)) error {
	if err := c.letGo(ctx, "", namespace, "bringing "+namespace+" home", "kith unoffload "+namespace, bool(o.DeleteVolumes), o.DryRun, report); err != nil {
		return err
	}
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespaceOffloadingName, Namespace: namespace}}
	if err := c.writer(o.DryRun).Delete(ctx, nso); apierrors.IsNotFound(err) {
		return api.NotFound("offloaded namespace", namespace, "kith offload")
	} else if err != nil {
		return internal(err)
	}
	if o.DryRun {
		return nil
	}
	if o.Force {
		force := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationForce)
		if err := c.Client.Patch(ctx, nso, client.RawPatch(types.MergePatchType, force)); client.IgnoreNotFound(err) != nil {
			return internal(err)
		}
	}
	report(api.Progress{Message: "bringing the pods of " + namespace + " home"})
	bounded := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	held := ""
	err := c.follow(bounded, func() (bool, error) {
		var now v1alpha1.NamespaceOffloading
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(nso), &now); err != nil {
			return apierrors.IsNotFound(err), nil
		}
		if why := heldBack(&now); why != held {
			held = why
			if why != "" {
				report(api.Progress{Message: why})
			}
		}
		return false, nil
	})
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return notHome(namespace, o.Wait, held)
	}
	return err
}

// heldBack says which pod of a namespace that is brought home a disruption budget holds; "" when none does.
func heldBack(nso *v1alpha1.NamespaceOffloading) string {
	if no := meta.FindStatusCondition(nso.Status.Conditions, offloading.ConditionPodsEvicted); no != nil && no.Status == metav1.ConditionFalse {
		return no.Message
	}
	return ""
}

// notHome is the answer when the pods of a namespace did not come home in time.
func notHome(namespace string, wait time.Duration, held string) error {
	e := &api.Error{
		Code: api.CodeTimeout, Message: fmt.Sprintf("pods of namespace %s are not home after %s", namespace, wait),
		Reason: "they have not ended at their peers, or a peer cannot be reached", Do: "they come when they have; `kith offload` and `kith peers` say how it is",
	}
	if held != "" {
		e.Reason, e.Do = held, fmt.Sprintf("they come when their budgets allow it; without asking these: kith unoffload %s --force", namespace)
	}
	return e
}

// Guests gives the pods of peers that run here.
func (b *Backend) Guests(ctx context.Context) ([]api.Guest, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	return c.guests(ctx)
}

func (c *Cluster) guests(ctx context.Context) ([]api.Guest, error) {
	guests, err := c.Host.Guests(ctx)
	if err != nil {
		return nil, internal(err)
	}
	return guests, nil
}

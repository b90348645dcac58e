package grants

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// Twin is a namespace here that stands for one at a consumer.
type Twin struct {
	Name     string // here
	Home     string
	Contract string
	Consumer string // compact ID

	Origin     string // compact ID of the cluster for which the consumer has it; "" when it is its own
	OriginHome string // the namespace there

	UID     types.UID
	Leaving bool      // being deleted
	Since   time.Time // when that began; zero when it is not
}

// TwinOf reads the labels of a namespace, which consumers cannot write; false when they do not fit its name, or are nobody's word.
func TwinOf(ns *corev1.Namespace) (Twin, bool) {
	l := ns.Labels
	tw := Twin{
		Name: ns.Name, Home: l[v1alpha1.LabelHomeNamespace], Contract: l[v1alpha1.LabelContract],
		Consumer: l[v1alpha1.LabelConsumer], UID: ns.UID, Leaving: !ns.DeletionTimestamp.IsZero(),
		Origin: l[v1alpha1.LabelOrigin], OriginHome: l[v1alpha1.LabelOriginNamespace],
	}
	if tw.Leaving {
		tw.Since = ns.DeletionTimestamp.Time
	}
	return tw, l[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && tw.Contract != "" && v1alpha1.IsTwin(ns)
}

// where lists the twins of which that is so, by name. The terms are those of its contract, nil when there are none.
func (c *Contracts) where(so func(Twin, *Terms) bool) (all []Twin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if so(tw, c.terms[tw.Contract]) {
			all = append(all, tw)
		}
	}
	slices.SortFunc(all, func(a, b Twin) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Networks gives what was agreed on of addresses with each consumer.
func (c *Contracts) Networks() (all []Network) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.terms {
		for _, t := range append(slices.Collect(maps.Values(t.For)), t) {
			if t.Guests != "" && !slices.Contains(all, t.Network) { // of two contracts with one consumer
				all = append(all, t.Network)
			}
		}
	}
	slices.SortFunc(all, func(a, b Network) int { return strings.Compare(a.Guests, b.Guests) })
	return all
}

// In is what holds in a twin under terms that are its contract's.
func (c *Contracts) In(tw Twin, terms *Terms) *Terms { return terms.in(tw) }

// Onward says for whom a namespace is that may go on to a provider of this cluster, by its ID; false for one of this cluster's own. It is the zero value for a
// twin without a contract that can be read. Call it when Load has returned.
func (c *Contracts) Onward(namespace, provider string) (onward remote.Onward, is bool) {
	tw, terms := c.Twin(namespace), c.TermsIn(namespace)
	if terms == nil {
		return onward, tw.Name != ""
	}
	onward.Link = v1alpha1.ChainLink{Cluster: terms.Consumer.ID, Name: terms.Consumer.Name, Contract: terms.Contract, Namespace: tw.Home}
	for _, to := range terms.Onward {
		if to.ID == provider {
			onward.Guests, _ = netip.ParsePrefix(to.Guests)
		}
	}
	return onward, true
}

// Twins lists the twin namespaces, by name.
func (c *Contracts) Twins() []Twin { return c.where(func(Twin, *Terms) bool { return true }) }

// TwinsOf lists the twin namespaces under a contract, by name.
func (c *Contracts) TwinsOf(contractID string) []Twin {
	return c.where(func(tw Twin, _ *Terms) bool { return tw.Contract == contractID })
}

// TwinsOfConsumer lists the twin namespaces of a consumer, by name.
func (c *Contracts) TwinsOfConsumer(consumerID string) []Twin {
	return c.where(func(tw Twin, t *Terms) bool {
		return t != nil && t.Consumer.Compact == tw.Consumer && t.Consumer.ID == consumerID
	})
}

// TwinFor finds the twin of a consumer's home namespace; of several, always the same.
func (c *Contracts) TwinFor(consumer Consumer, home string) (found Twin, ok bool) {
	for _, tw := range c.where(func(tw Twin, _ *Terms) bool { return tw.Consumer == consumer.Compact && tw.Home == home }) {
		return tw, true
	}
	return Twin{}, false
}

// Twin is that of the name, the zero value when there is none.
func (c *Contracts) Twin(namespace string) Twin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace]
}

// GrantedTo gives the twin namespaces of a consumer under its contracts in force, and what those grant together.
func (c *Contracts) GrantedTo(consumerID string) (namespaces []string, limit corev1.ResourceList) {
	granted := func(t *Terms) bool { return t.Consumer.ID == consumerID && t.InForce(time.Now()) }
	for _, tw := range c.where(func(_ Twin, t *Terms) bool { return t != nil && granted(t) }) {
		namespaces = append(namespaces, tw.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods resource.Quantity
	for _, t := range c.terms {
		if granted(t) {
			pods.Add(t.Limit[corev1.ResourcePods])
		}
	}
	return namespaces, corev1.ResourceList{corev1.ResourcePods: pods}
}

// AbroadOf lists a consumer's twins, and the ranges of its pods that are not here: what is sent to those goes by its home.
func (c *Contracts) AbroadOf(compact string) (twins map[string]bool, ranges []netip.Prefix) {
	twins = map[string]bool{}
	for _, tw := range c.where(func(tw Twin, _ *Terms) bool { return tw.Consumer == compact && !tw.Leaving }) {
		twins[tw.Name] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.terms {
		if t.Consumer.Compact != compact {
			continue
		}
		ranges = append(ranges, t.Elsewhere()...)
		for _, of := range t.For {
			ranges = append(ranges, of.Elsewhere()...)
		}
	}
	return twins, ranges
}

// Leaving is a twin namespace that is being cleared away.
type Leaving struct {
	Namespace, Consumer string // the name of the Peer
	Since               time.Time
}

// Leaving lists the twin namespaces that are being cleared away, the oldest first.
func (c *Contracts) Leaving() (all []Leaving) {
	for _, tw := range c.where(func(tw Twin, _ *Terms) bool { return tw.Leaving }) {
		one := Leaving{Namespace: tw.Name, Since: tw.Since}
		if t := c.Of(tw.Contract); t != nil {
			one.Consumer = t.Consumer.Name
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Leaving) int { return a.Since.Compare(b.Since) })
	return all
}

// Learn takes in a twin that was just made or changed, ahead of the news of it. A refresh that
// is under way must not put its older word over that, so it is waited for.
func (c *Contracts) Learn(tw Twin) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.twins[tw.Name] = tw
}

// NamespaceChanged takes in what the watch tells of a namespace, and gives the twin that it is, or was until now.
func (c *Contracts) NamespaceChanged(ns *corev1.Namespace, gone bool) (tw Twin, known, is bool) {
	c.reading.Lock() // as learn does
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.twins[ns.Name]
	tw, is = TwinOf(ns)
	if is = is && !gone; is {
		c.twins[ns.Name] = tw
		return tw, known, true
	}
	if known && (was.UID == ns.UID || !gone) { // else another of its name was made meanwhile
		delete(c.twins, ns.Name)
		return was, true, false
	}
	return was, false, false
}

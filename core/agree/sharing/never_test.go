package sharing

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// offersEnv is how many offers TestNeverMoreThanIsShared makes instead of some thousands.
const offersEnv = "KITH_OFFERS"

// Whatever policies there are, whoever asks for what, and however grants, the owner's pods, the nodes and the policies change in between: what is
// granted to all is never raised above what is shared, by policy and in all.
func TestNeverMoreThanIsShared(t *testing.T) {
	most := 5_000
	if text := os.Getenv(offersEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", offersEnv, err)
		}
		most = n
	}
	begun, granted := time.Now(), 0
	for seed, offers := uint64(1), 0; offers < most; seed++ {
		m := newMarket(t, seed)
		for range 100 {
			m.step()
		}
		if t.Failed() {
			t.Fatalf("in the market of seed %d", seed)
		}
		offers, granted = offers+m.offers, granted+m.granted
	}
	t.Logf("%d offers, %d of them signed, in %s", most, granted, time.Since(begun).Round(time.Second))
	if granted < most/10 {
		t.Errorf("of %d offers only %d were signed: they try too little", most, granted)
	}
}

// market is a laptop that shares, and peers that ask it, in no order.
type market struct {
	t        *testing.T
	r        *rand.Rand
	policies []v1alpha1.SharingPolicy
	peers    []*v1alpha1.Peer
	applies  map[string]*v1alpha1.SharingPolicy // by peer; see choose
	there    supply.Supply                      // without what is granted
	has      map[string]corev1.ResourceList     // by peer
	yes      map[string]corev1.ResourceList     // what the owner accepted, and nobody has signed yet, by peer
	offers   int
	granted  int

	priced    []*v1alpha1.Contract            // of providers, at some prices each; with other amounts each time one is taken
	providers []*v1alpha1.Contract            // those in force
	from      map[string][]*v1alpha1.Contract // by peer, what of it was offered on to it when its offer was made
}

var marketed = []string{"cpu", "memory", "pods", "ephemeral-storage", "storage", "example.com/gpu"}

func newMarket(t *testing.T, seed uint64) *market {
	m := &market{t: t, r: rand.New(rand.NewPCG(seed, 42)), has: map[string]corev1.ResourceList{}, yes: map[string]corev1.ResourceList{}, from: map[string][]*v1alpha1.Contract{}, priced: providersAtPrices(t)}
	for i := range 5 {
		peer := acceptedPeer(fmt.Sprintf("peer%d", i), identity.ID{byte(i + 1)}.String())
		peer.Labels = map[string]string{"team": []string{"lab", "home"}[m.r.IntN(2)]}
		m.peers = append(m.peers, peer)
	}
	m.nodes()
	m.pods()
	m.provides()
	for range 1 + m.r.IntN(3) {
		m.addPolicy()
	}
	return m
}

// quantity is one of a resource, up to so many of what is usual.
func (m *market) quantity(name string, most int64) resource.Quantity {
	n := m.r.Int64N(most*4 + 1)
	switch name {
	case "cpu":
		return *resource.NewMilliQuantity(n*250, resource.DecimalSI)
	case "pods", "example.com/gpu":
		return *resource.NewQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n*(256<<20)+m.r.Int64N(3), resource.BinarySI)
}

func (m *market) nodes() {
	m.there.Nodes, m.there.Room = corev1.ResourceList{}, nil
	for _, name := range marketed[:4] {
		m.there.Nodes[corev1.ResourceName(name)] = m.quantity(name, 16)
	}
	if m.r.IntN(2) == 0 {
		m.there.Nodes["example.com/gpu"] = m.quantity("example.com/gpu", 1)
	}
	if m.r.IntN(3) > 0 { // as Provider.Supply has it
		all := m.there.Nodes["ephemeral-storage"]
		room := resource.NewQuantity(m.r.Int64N(all.Value()+1), resource.BinarySI)
		m.there.Room, m.there.Nodes["storage"] = room, all
	}
}

func (m *market) pods() {
	m.there.Own = corev1.ResourceList{}
	for _, name := range marketed {
		if m.r.IntN(2) == 0 {
			m.there.Own[corev1.ResourceName(name)] = m.quantity(name, 4)
		}
	}
}

func (m *market) amount(name string, free bool) v1alpha1.Amount {
	part := m.r.IntN(101)
	if m.r.IntN(10) > 0 && free {
		part = 100 - part/2
	}
	switch kind := m.r.IntN(4); {
	case kind == 0:
		q := m.quantity(name, 12)
		return v1alpha1.Amount(q.String())
	case kind == 1 && free:
		return v1alpha1.Amount(fmt.Sprintf("%d%% of free", part))
	}
	return v1alpha1.Amount(fmt.Sprintf("%d%%", part))
}

func (m *market) amounts(oneIn int, free bool) map[string]v1alpha1.Amount {
	all := map[string]v1alpha1.Amount{}
	for _, name := range marketed {
		if m.r.IntN(oneIn) == 0 {
			all[name] = m.amount(name, free)
		}
	}
	return all
}

func (m *market) addPolicy() {
	p := v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy%d", m.r.IntN(5))}}
	if slices.ContainsFunc(m.policies, func(other v1alpha1.SharingPolicy) bool { return other.Name == p.Name }) {
		return
	}
	s := &p.Spec
	s.Priority, s.Paused = int32(m.r.IntN(3)), m.r.IntN(8) == 0
	s.Amounts = m.amounts(20, true)
	for _, name := range marketed[:3] {
		s.Amounts[name] = m.amount(name, true)
	}
	for _, name := range marketed[3:] {
		if m.r.IntN(2) == 0 {
			s.Amounts[name] = m.amount(name, true)
		}
	}
	if m.r.IntN(2) == 0 {
		s.Reserve = m.amounts(8, false)
	}
	if m.r.IntN(2) == 0 {
		s.MaxPerPeer = m.amounts(4, true)
	}
	if m.r.IntN(3) == 0 {
		s.MaxPeers = new(int32(1 + m.r.IntN(3)))
	}
	if m.r.IntN(2) == 0 { // as a broker
		if s.ReofferFrom = []string{AllProviders}; m.r.IntN(2) == 0 {
			s.ReofferFrom = []string{m.peers[m.r.IntN(len(m.peers))].Name}
		}
		s.Margin = []string{"", "0%", "10%", "33.33%"}[m.r.IntN(4)]
	}
	if m.r.IntN(2) == 0 {
		s.Prices = map[string]v1alpha1.UnitPrice{"cpu": v1alpha1.UnitPrice([]string{"0.02 EUR", "5 EUR", "0.02 USD"}[m.r.IntN(3)])}
	}
	switch m.r.IntN(3) {
	case 0:
		s.Peers = []string{m.peers[m.r.IntN(len(m.peers))].Spec.ID, m.peers[m.r.IntN(len(m.peers))].Name}
	case 1:
		s.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "lab"}}
	}
	m.policies = append(m.policies, p)
	m.choose()
}

// choose is which policy applies to each peer.
func (m *market) choose() {
	m.applies = map[string]*v1alpha1.SharingPolicy{}
	for _, peer := range m.peers {
		m.applies[peer.Name] = Select(m.policies, peer)
		looks := Looks(m.policies, peer)
		first := slices.IndexFunc(looks, func(l Look) bool { return l.By != "" })
		if (first < 0) != (m.applies[peer.Name] == nil) || first >= 0 && looks[first].Policy != m.applies[peer.Name] {
			m.t.Errorf("%s: explained is another policy than applies", peer.Name)
		}
	}
}

// input is what an offer to the peer follows from; see the provider's offerable.
func (m *market) input(peer string) OfferInput {
	in := OfferInput{Policy: m.applies[peer], Supply: m.there, Has: m.has[peer].DeepCopy()}
	who := m.peers[slices.IndexFunc(m.peers, func(p *v1alpha1.Peer) bool { return p.Name == peer })]
	m.from[peer] = Reoffered(in.Policy, who, m.peers, m.providers, marketDay)
	in.Policy, in.Supply = WithMargin(in.Policy, m.from[peer]), WithReoffered(in.Supply, m.from[peer], in.Now)
	for other, amounts := range m.has {
		if other == peer {
			continue
		}
		in.Supply.Granted = append(in.Supply.Granted, amounts)
		if used := m.applies[other]; used != nil && in.Policy != nil && used.Name == in.Policy.Name {
			in.InForce = append(in.InForce, amounts)
			in.Peers++
		}
	}
	return in
}

func (m *market) step() {
	peer := m.peers[m.r.IntN(len(m.peers))].Name
	switch m.r.IntN(22) {
	case 0:
		m.nodes()
	case 20, 21:
		m.provides()
	case 1, 2:
		m.pods()
	case 3:
		m.adds()
	case 4:
		if len(m.policies) > 1 {
			m.policies = slices.Delete(m.policies, 0, 1)
			m.choose()
		}
	case 5:
		if len(m.policies) > 0 {
			s := &m.policies[m.r.IntN(len(m.policies))].Spec
			s.Paused = false
			name := marketed[m.r.IntN(3)]
			s.Amounts[name] = m.amount(name, true)
		}
	case 6, 7, 8:
		delete(m.has, peer)
		delete(m.yes, peer)
	case 9, 10: // the owner says yes to what is free now, and it is signed some time later
		if offer, err := Offer(m.input(peer)); err == nil {
			m.yes[peer] = offer
		}
		m.offers++
	default:
		m.signs(peer)
	}
}

// signs has a peer ask for some amounts, or none, and sign what it is offered of them, or less.
func (m *market) signs(peer string) {
	in := m.input(peer)
	if yes, accepted := m.yes[peer]; accepted {
		in.Most, in.Supply.Own = &yes, nil
		delete(m.yes, peer)
	}
	if m.r.IntN(2) == 0 {
		in.Asked = corev1.ResourceList{}
		for _, name := range marketed {
			if m.r.IntN(2) == 0 {
				in.Asked[corev1.ResourceName(name)] = m.quantity(name, 16)
			}
		}
	}
	m.offers++
	offer, err := Offer(in)
	if err != nil {
		return
	}
	for name, q := range offer {
		if m.r.IntN(4) == 0 {
			less := resource.NewMilliQuantity(m.r.Int64N(q.MilliValue()+1), q.Format)
			if name != "cpu" {
				less = resource.NewQuantity(m.r.Int64N(q.Value()+1), q.Format)
			}
			offer[name] = *less
		}
	}
	m.holds(peer, in, offer)
	m.granted++
	m.has[peer] = offer
}

// holds compares a contract with what is shared.
func (m *market) holds(peer string, in OfferInput, granted corev1.ResourceList) {
	there := in.Supply
	shared, each, reserve := Amounts(in.Policy, there), PerPeer(in.Policy, there), Reserve(in.Policy, there)
	if most := in.Policy.Spec.MaxPeers; most != nil && in.Has == nil && in.Peers+1 > int(*most) {
		m.t.Errorf("%s: %d peers hold contracts under a policy for %d", peer, in.Peers+1, *most)
	}
	m.pays(peer, in.Policy, granted)
	if in.Policy.Spec.Paused {
		m.t.Errorf("%s: a policy that is paused offers something", peer)
	}
	for name, q := range granted {
		had := in.Has[name]
		if q.Cmp(had) <= 0 {
			continue // nothing is granted that was not before
		}
		under, all := q.DeepCopy(), q.DeepCopy()
		under.Add(in.Promised(name))
		all.Add(there.Promised(name))
		all.Add(there.Own[name])
		all.Add(reserve[name])
		if limit, ok := shared[name]; !ok || under.Cmp(limit) > 0 {
			m.t.Errorf("%s: %s %s are granted under %s, which shares %s", peer, under.String(), name, in.Policy.Name, limit.String())
		}
		if limit, ok := each[name]; ok && q.Cmp(limit) > 0 {
			m.t.Errorf("%s has %s %s, and one peer may have %s", peer, q.String(), name, limit.String())
		}
		if limit, known := there.Nodes[name]; known && all.Cmp(limit) > 0 {
			m.t.Errorf("%s: %s %s are granted to all, used by the owner and reserved, of %s", peer, all.String(), name, limit.String())
		}
		if room := there.RoomFor(name); room != nil {
			disk := q.DeepCopy()
			for _, each := range []corev1.ResourceName{"ephemeral-storage", "storage"} {
				disk.Add(there.Promised(each))
				disk.Add(reserve[each])
			}
			if disk.Cmp(*room) > 0 {
				m.t.Errorf("%s: with %s, %s are granted to others and reserved of a disk with room for %s", peer, name, disk.String(), room.String())
			}
		}
		if asked, ok := in.Asked[name]; ok && q.Cmp(asked) > 0 {
			m.t.Errorf("%s asked for %s %s and has %s", peer, asked.String(), name, q.String())
		}
		if in.Most != nil {
			if yes := (*in.Most)[name]; q.Cmp(yes) > 0 {
				m.t.Errorf("%s has %s %s, and the owner said yes to %s", peer, q.String(), name, yes.String())
			}
		}
	}
}

// marketDay is when all contracts of providers are in force.
var marketDay = time.Now()

// providersAtPrices are contracts of all peers as providers, at each of some prices.
func providersAtPrices(t *testing.T) []*v1alpha1.Contract {
	atPrices.Do(func() {
		for i := range 5 {
			for _, prices := range []map[string]string{nil, {"cpu": "0.02 EUR", "network": "1 EUR"}, {"cpu": "0.3 EUR", "memory": "0.000000001 EUR"}, {"cpu": "0.02 USD"}, {"cpu": "999999999999 EUR"}} {
				for _, reoffer := range []bool{true, true, false} {
					pricedOnce = append(pricedOnce, signedAt(t, fmt.Sprintf("peer%d", i), reoffer, prices, nil))
				}
			}
		}
	})
	return pricedOnce
}

var (
	atPrices   sync.Once
	pricedOnce []*v1alpha1.Contract
)

// provides has other providers from now on, or the same with other amounts.
func (m *market) provides() {
	m.providers = nil
	for range m.r.IntN(4) {
		ctr := *m.priced[m.r.IntN(len(m.priced))]
		ctr.Spec.Resources = corev1.ResourceList{}
		for _, name := range marketed {
			if m.r.IntN(4) > 0 {
				ctr.Spec.Resources[corev1.ResourceName(name)] = m.quantity(name, 8)
			}
		}
		m.providers = append(m.providers, &ctr)
	}
}

// pays compares the prices of a contract with what this cluster pays itself for what it offers on.
func (m *market) pays(peer string, policy *v1alpha1.SharingPolicy, granted corev1.ResourceList) {
	if len(m.from[peer]) > netplan.MaxRelayed {
		m.t.Errorf("%s: what %d providers grant is offered on", peer, len(m.from[peer]))
	}
	names := map[string]string{}
	for name := range granted {
		names[string(name)] = "1"
	}
	prices := Prices(policy, names)
	if err := contract.CheckPrices(prices); err != nil {
		m.t.Errorf("%s: %v", peer, err)
	}
	for _, ctr := range m.from[peer] {
		if m.peers[slices.IndexFunc(m.peers, func(p *v1alpha1.Peer) bool { return p.Name == ctr.Spec.Peer })].Name == peer || !MayReoffer(ctr) {
			m.t.Errorf("%s: what %s grants is offered on to it", peer, ctr.Spec.Peer)
		}
		if policy.Spec.Margin == "" {
			continue
		}
		percent, _ := api.ParseMargin(policy.Spec.Margin)
		for name, cost := range pricesIn(m.t, ctr) {
			if _, is := names[name]; !is && name != contract.Traffic {
				continue
			}
			pays, _ := contract.ParsePrice(cost)
			gets, err := contract.ParsePrice(prices[name])
			least := new(big.Rat).Mul(pays.Amount, new(big.Rat).Add(big.NewRat(1, 1), new(big.Rat).Quo(percent, big.NewRat(100, 1))))
			if err != nil || gets.Currency != pays.Currency || gets.Amount.Cmp(least) < 0 {
				m.t.Errorf("%s: %s costs %s at %s, and with a margin of %s is offered for %q", peer, name, cost, ctr.Spec.Peer, policy.Spec.Margin, prices[name])
			}
		}
	}
}

// adds makes a policy, and looks at the peers that it does not select: each is offered what it was, and more only of what peers have that the policy
// took over, whose contracts count against it from now on.
func (m *market) adds() {
	type offered struct {
		under string
		amounts,
		others corev1.ResourceList
	}
	before := map[string]offered{}
	sum := func(in OfferInput) corev1.ResourceList {
		all := corev1.ResourceList{}
		for _, name := range marketed {
			all[corev1.ResourceName(name)] = in.Promised(corev1.ResourceName(name))
		}
		return all
	}
	ask := func(peer string) offered {
		in := m.input(peer)
		o := offered{others: sum(in)}
		if in.Policy != nil {
			o.under = in.Policy.Name
			o.amounts, _ = Offer(in)
		}
		return o
	}
	for _, peer := range m.peers {
		before[peer.Name] = ask(peer.Name)
	}
	count := len(m.policies)
	m.addPolicy()
	if len(m.policies) == count {
		return
	}
	for _, peer := range m.peers {
		if by, _ := look(&m.policies[count], peer); by != "" {
			continue
		}
		was, is := before[peer.Name], ask(peer.Name)
		if was.under != is.under {
			m.t.Errorf("%s: a policy that does not select it takes it from %s to %s", peer.Name, was.under, is.under)
		}
		if Same(was.others, is.others) && !Same(was.amounts, is.amounts) {
			m.t.Errorf("%s: a policy that does not select it changes its offer: %v, %v", peer.Name, was.amounts, is.amounts)
		}
	}
}

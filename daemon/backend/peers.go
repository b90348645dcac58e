package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend/location"
	"kith.dev/daemon/backend/trouble"
)

// Peers gives all known clusters, by name.
func (b *Backend) Peers(ctx context.Context) ([]api.Peer, error) {
	all := b.Directory.All()
	facts, err := b.gather(ctx)
	if err != nil {
		return nil, err
	}
	gives := b.gives(ctx, all)
	list := make([]api.Peer, 0, len(all))
	for _, k := range all {
		p := b.view(k, facts)
		p.Gives = gives[p.ID]
		list = append(list, p)
	}
	return list, nil
}

// Peer gives one of them.
func (b *Backend) Peer(ctx context.Context, ref string) (api.Peer, error) {
	k, err := b.Directory.Find(ref)
	if err != nil {
		return api.Peer{}, err
	}
	facts, err := b.gather(ctx)
	if err != nil {
		return api.Peer{}, err
	}
	return b.view(k, facts), nil
}

// facts are what the cluster knows about all peers, read once for a list.
type facts struct {
	agreed  *ledger.Snapshot
	adverts map[string]v1alpha1.Advertisement
	used    map[string]corev1.ResourceList            // by node of a peer, with those of providers behind it
	by      map[string]map[string]corev1.ResourceList // used by such a node and namespace
	abroad  map[string]int                            // pods by node
	guests  map[string]int                            // pods by compact ID of the consumer
}

func (b *Backend) gather(ctx context.Context) (facts, error) {
	f := facts{
		agreed: &ledger.Snapshot{}, adverts: map[string]v1alpha1.Advertisement{}, used: map[string]corev1.ResourceList{},
		by: map[string]map[string]corev1.ResourceList{}, abroad: map[string]int{}, guests: map[string]int{},
	}
	c := b.Cluster()
	if c == nil {
		return f, nil
	}
	var adverts v1alpha1.AdvertisementList
	var pods corev1.PodList
	if err := errors.Join(c.Client.List(ctx, &adverts), c.Client.List(ctx, &pods)); err != nil {
		return f, internal(err)
	}
	f.agreed = c.Client.Now()
	for _, a := range adverts.Items {
		f.adverts[a.Spec.Peer] = a
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if v1alpha1.Ended(pod.Status.Phase) {
			continue // of a Job, say: it is a record, and runs nowhere
		}
		if id := pod.Labels[v1alpha1.LabelConsumer]; id != "" {
			f.guests[id]++
		} else if offloading.Abroad(pod) {
			peer, _ := v1alpha1.PeerOfNode(pod.Spec.NodeName)
			f.abroad[v1alpha1.VirtualNode(peer)]++
			f.uses(v1alpha1.VirtualNode(peer), pod.Namespace, requestsOf(pod))
		}
	}
	var stored corev1.PersistentVolumeList
	if err := c.Client.List(ctx, &stored); err != nil {
		return f, fmt.Errorf("see which volumes are at peers: %w", err)
	}
	for _, v := range volumes.Held(stored.Items, "", "") {
		namespace := ""
		if of := v.Spec.ClaimRef; of != nil {
			namespace = of.Namespace
		}
		f.uses(v1alpha1.VirtualNodePrefix+volumes.AtPeer(&v), namespace, corev1.ResourceList{
			corev1.ResourceName(api.StorageOf(volumes.ClassOf(&v))): v.Spec.Capacity[corev1.ResourceStorage],
		})
	}
	if c.Snapshots == nil {
		return f, nil
	}
	snapshots, _ := c.Snapshots()
	for _, s := range snapshots {
		f.uses(v1alpha1.VirtualNodePrefix+s.Peer, s.Namespace, corev1.ResourceList{corev1.ResourceName(api.StorageOf(s.Class)): s.Size})
	}
	return f, nil
}

// uses notes what something of a namespace uses of a node.
func (f *facts) uses(node, namespace string, what corev1.ResourceList) {
	if f.used[node] == nil {
		f.used[node], f.by[node] = corev1.ResourceList{}, map[string]corev1.ResourceList{}
	}
	if f.by[node][namespace] == nil {
		f.by[node][namespace] = corev1.ResourceList{}
	}
	add(f.used[node], what)
	add(f.by[node][namespace], what)
}

// view shows a known cluster as the local API does.
func (b *Backend) view(k directory.Known, f facts) api.Peer {
	k.Peer = cmp.Or(f.agreed.Peer(k.ID.String()), k.Peer) // of which the directory hears a moment later
	p := api.Peer{
		Name: k.Name, ID: k.ID.String(), ShortID: k.ID.Short(), Source: k.Source, Addresses: k.Addresses,
		LastSeen: k.LastSeen.Round(0), Reachable: k.Contact.Reachable(), By: k.Contact.By, Asleep: k.Contact.Asleep, Suspended: k.Contact.State == presence.Suspended, Outgoing: api.StateNone, Incoming: api.StateNone,
		Pods: api.PeerPods{Guests: f.guests[k.ID.Compact()]},
	}
	if c := b.Cluster(); c != nil && k.Peer != nil {
		p.Left = len(trouble.Left(c.Fleet.Left(k.Peer.Name), time.Now()))
	}
	if !p.Reachable {
		p.Why = k.Contact.Why
	}
	if k.Peer != nil {
		p.Outgoing, p.Incoming = stateOf(k.Peer.Status.Outgoing), stateOf(k.Peer.Status.Incoming)
		p.Code, p.Node = k.Peer.Status.Outgoing.Code, k.Peer.Status.Node
		if why := because(k.Peer.Status); why != "" {
			p.Why = why
		}
		p.Confirm = confirmation(k.Peer.Status.Outgoing)
		if no := meta.FindStatusCondition(k.Peer.Status.Conditions, v1alpha1.ConditionGrantedInFull); no != nil && no.Status == metav1.ConditionFalse {
			p.Less = no.Message
		}
		p.Tunnel = b.tunnel(k, f.agreed)
		if n := k.Peer.Status.Network; n != nil {
			p.Pods.AbroadRange, p.Pods.GuestsRange = n.GuestsThere, n.GuestsHere
		}
		p.DownSince = downSince(k.Peer.Status)
	}
	for _, r := range f.agreed.Requests {
		switch {
		case r.Spec.PeerID != p.ID:
		case provider.Pending(r):
			p.Incoming, p.Code = api.StateRequested, r.Spec.Code
		case r.Status.Answer == v1alpha1.AnswerAccepted && r.Spec.Code != "" && time.Now().Before(r.Spec.Expires.Time):
			// Its owner compares the code now, with what this screen shows.
			p.Code = r.Spec.Code
			if p.Incoming == api.StateNone {
				p.Incoming, p.Why = api.StateRequested, "accepted here; its owner compares the code "+identity.Spaced(r.Spec.Code)
			}
		}
	}
	if a, ok := f.adverts[k.Name]; ok && k.Peer != nil {
		p.Offered, p.Prices = quantities(a.Spec.Resources), a.Spec.Prices
	}
	for _, ctr := range f.agreed.With(k.Name, "") {
		if ctr.DeletionTimestamp == nil && sharing.NoNetwork(ctr) {
			p.Network = api.NetworkNone
		}
	}
	for _, ctr := range f.agreed.With(k.Name, v1alpha1.RoleConsumer) {
		p.Offered, p.Prices = sharing.Words(ctr.Spec.Resources), nil
		if doc, err := contract.Parse(ctr.Spec.Document); err == nil {
			p.Prices = doc.Prices
		}
		if asks(k.Peer) {
			p.Asked = sharing.Words(asking.Wanted(k.Peer, ctr), ctr.Spec.Resources)
		}
	}
	node := v1alpha1.VirtualNodePrefix + k.Name
	if k.Peer != nil {
		p.Tether = tetherOf(k.Peer.Status.Tether)
	}
	p.Used, p.Pods.Abroad = quantities(f.used[node]), f.abroad[node]
	return p
}

func stateOf(d v1alpha1.DirectionStatus) api.State {
	return cmp.Or(api.State(d.State), api.StateNone)
}

// downSince is when a peer under contract was lost; zero while it is not.
func downSince(s v1alpha1.PeerStatus) (since time.Time) {
	for _, d := range []v1alpha1.DirectionStatus{s.Outgoing, s.Incoming} {
		if d.State == v1alpha1.StateUnreachable && d.Since != nil && (since.IsZero() || d.Since.Time.Before(since)) {
			since = d.Since.Time
		}
	}
	return since
}

// because is one sentence on both directions, the outgoing first.
func because(s v1alpha1.PeerStatus) string {
	for _, d := range []v1alpha1.DirectionStatus{s.Outgoing, s.Incoming} {
		if d.Why == "" {
			continue
		}
		if d.Since != nil && (d.State == v1alpha1.StateDeclined || d.State == v1alpha1.StateExpired || d.State == v1alpha1.StateUnreachable || d.State == v1alpha1.StateNone) {
			return d.Why + ", " + ago(d.Since.Time)
		}
		return d.Why
	}
	return ""
}

// tunnels are those that there are, by the whole ID of the peer.
func (b *Backend) tunnels() map[string]gateway.Stats {
	if b.Gateway == nil {
		return nil
	}
	return b.Gateway.StatsAll()
}

// wayOf is how packets get to a peer, as the gateway knows it. Whether the peer can be dialled the contact knows: whoever is dialled is reached so by
// UDP, too, however that way was found; and to whom connections are passed on none leads that nobody opened, though it was there before.
func wayOf(k directory.Known, s gateway.Stats) (way api.TunnelWay, by string, why api.TunnelReason) {
	way, by, why = api.TunnelWay(s.Way), s.By, api.TunnelReason(s.Reason)
	dialled, passedOn := k.Contact.Reachable() && k.Contact.By == "", k.Contact.By != "" && k.Contact.By != k.Name
	switch {
	case way == api.TunnelPunched && dialled:
		way = api.TunnelDirect
	case way == api.TunnelDirect && passedOn:
		way = api.TunnelPunched
	}
	if by == k.Name { // it called back
		by = ""
	}
	return way, by, why
}

func (b *Backend) tunnel(k directory.Known, agreed *ledger.Snapshot) api.Tunnel {
	if b.Gateway == nil {
		return api.Tunnel{}
	}
	s, ok := b.Gateway.Stats(k.ID.String())
	if !ok {
		return api.Tunnel{}
	}
	t := api.Tunnel{Up: s.Up, LastHandshake: s.LastHandshake, RX: s.Received, TX: s.Sent, RTT: api.Duration(k.Contact.RTT)}
	t.Way, t.By, t.Reason = wayOf(k, s)
	for _, d := range s.Direct {
		way := api.DirectWay{ID: d.ID, State: api.DirectWayState(d.State), Since: d.Since}
		if other := agreed.Peer(d.ID); other != nil {
			way.Peer = other.Name
		} else if id, err := identity.ParseID(d.ID); err == nil {
			way.Peer = id.Short()
		}
		t.Direct = append(t.Direct, way)
	}
	return t
}

// AddPeer learns who answers at an address, where a name leads or where a catalogue says that somebody is, and keeps it as a Peer.
func (b *Backend) AddPeer(ctx context.Context, add api.AddPeer) (api.Peer, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Peer{}, err
	}
	var to location.Location
	if add.From != "" {
		to, err = b.introduced(ctx, add.Address, add.From)
	} else {
		to, err = location.Finder{Names: b.Names, Me: b.Me.ID(), Port: b.Settings.PeerAPIPort}.Find(ctx, add.Address)
	}
	if err != nil {
		return api.Peer{}, err
	}
	config := peering.ClientConfig{Identity: b.Me, Expect: to.ID, Addresses: to.Addresses, Log: b.Log}
	if by, err := b.Directory.Find(add.From); err == nil && add.From != "" && b.Relay != nil { // one that does not relay says so
		config.Ways = func() []peering.Way { return []peering.Way{b.Relay.By(by.ID, to.ID)} }
	}
	dial := peering.NewClient(config)
	defer dial.Close()
	hello, err := dial.Hello(ctx)
	if err != nil {
		return api.Peer{}, to.Unreachable(err)
	}
	if hello.ID == b.Me.ID() {
		return api.Peer{}, location.ThisOne(add.Address)
	}
	var addresses []string
	if address := dial.Address(); address != "" {
		b.warnOfChangedKey(address, hello.ID)
		addresses = []string{address}
	}
	peer, err := record.EnsurePeer(ctx, c.Client, hello.ID, hello.Name, addresses, v1alpha1.SourceManual)
	if err == nil && to.Name != "" {
		err = record.SetDNSName(ctx, c.Client, peer, to.Name)
	}
	if err != nil {
		return api.Peer{}, internal(err)
	}
	b.Directory.Remember(peer)
	return b.Peer(ctx, hello.ID.String())
}

// warnOfChangedKey says so when the address belonged to a known peer with another key.
func (b *Backend) warnOfChangedKey(address string, now identity.ID) {
	for _, k := range b.Directory.All() {
		if k.Peer == nil || k.ID == now {
			continue
		}
		for _, e := range k.Peer.Spec.Endpoints {
			if e == address {
				b.Publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: k.Name,
					Message: fmt.Sprintf("at %s, where %s was, answers another key: it was %s, now it is %s", address, k.Name, k.ID, now)})
			}
		}
	}
}

// find is the cluster, and somebody it knows.
func (b *Backend) find(ctx context.Context, ref string) (*Cluster, directory.Known, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, directory.Known{}, err
	}
	k, err := b.Directory.Find(ref)
	return c, k, err
}

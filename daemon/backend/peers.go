package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
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
	used    map[string]corev1.ResourceList // by node
	abroad  map[string]int                 // pods by node
	guests  map[string]int                 // pods by compact ID of the consumer
}

func (b *Backend) gather(ctx context.Context) (facts, error) {
	f := facts{agreed: &ledger.Snapshot{}, adverts: map[string]v1alpha1.Advertisement{}, used: map[string]corev1.ResourceList{}, abroad: map[string]int{}, guests: map[string]int{}}
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
			f.abroad[pod.Spec.NodeName]++
			if f.used[pod.Spec.NodeName] == nil {
				f.used[pod.Spec.NodeName] = corev1.ResourceList{}
			}
			add(f.used[pod.Spec.NodeName], requestsOf(pod))
		}
	}
	return f, nil
}

// view shows a known cluster as the local API does.
func (b *Backend) view(k directory.Known, f facts) api.Peer {
	k.Peer = cmp.Or(f.agreed.Peer(k.ID.String()), k.Peer) // of which the directory hears a moment later
	p := api.Peer{
		Name: k.Name, ID: k.ID.String(), ShortID: k.ID.Short(), Source: k.Source, Addresses: k.Addresses,
		LastSeen: k.LastSeen.Round(0), Reachable: k.Contact.Reachable(), Asleep: k.Contact.Asleep, Outgoing: api.StateNone, Incoming: api.StateNone,
		Pods: api.PeerPods{Guests: f.guests[k.ID.Compact()]},
	}
	if c := b.Cluster(); c != nil && k.Peer != nil {
		p.Left = len(leftAt(c.Fleet.Left(k.Peer.Name), time.Now()))
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
		p.Tunnel = b.tunnel(k)
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
		p.Offered = quantities(a.Spec.Resources)
	}
	for _, ctr := range f.agreed.With(k.Name, v1alpha1.RoleConsumer) {
		p.Offered = sharing.Words(ctr.Spec.Resources)
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

func (b *Backend) tunnel(k directory.Known) api.Tunnel {
	if b.Gateway == nil {
		return api.Tunnel{}
	}
	s, ok := b.Gateway.Stats(k.ID.String())
	if !ok {
		return api.Tunnel{}
	}
	return api.Tunnel{Up: s.Up, LastHandshake: s.LastHandshake, RX: s.Received, TX: s.Sent, RTT: api.Duration(k.Contact.RTT)}
}

// AddPeer learns who answers at an address, or where a name leads, and keeps it as a Peer.
func (b *Backend) AddPeer(ctx context.Context, ref string) (api.Peer, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Peer{}, err
	}
	to, err := b.locate(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	dial := peering.NewClient(peering.ClientConfig{Identity: b.Me, Expect: to.id, Addresses: to.addresses, Log: b.Log})
	defer dial.Close()
	hello, err := dial.Hello(ctx)
	if err != nil {
		return api.Peer{}, to.unreachable(err)
	}
	if hello.ID == b.Me.ID() {
		return api.Peer{}, thisOne(ref)
	}
	address := dial.Address()
	b.warnOfChangedKey(address, hello.ID)
	peer, err := record.EnsurePeer(ctx, c.Client, hello.ID, hello.Name, []string{address}, v1alpha1.SourceManual)
	if err == nil && to.name != "" {
		err = record.SetDNSName(ctx, c.Client, peer, to.name)
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

func withPort(hostport string, port uint16) (string, error) {
	if _, _, err := net.SplitHostPort(hostport); err != nil {
		hostport = net.JoinHostPort(strings.Trim(hostport, "[]"), strconv.Itoa(int(port)))
	}
	told := hostport
	if at, err := netip.ParseAddrPort(hostport); err == nil {
		a := at.Addr().Unmap()
		if linkLocal := a.Is6() && a.IsLinkLocalUnicast(); !linkLocal {
			a = a.WithZone("")
		} else if _, err := net.InterfaceByName(a.Zone()); err != nil { // there is none without a name
			return "", api.Invalid("address", hostport, "a link-local address with the interface of this machine behind which it is, such as [fe80::1%eth0]:6450")
		}
		if a.IsUnspecified() || a.IsMulticast() {
			return "", api.Invalid("address", hostport, "the address of one machine")
		}
		hostport = netip.AddrPortFrom(a, at.Port()).String()
		told = netip.AddrPortFrom(a.WithZone(""), at.Port()).String()
	}
	if err := peering.CheckEndpoint(told); err != nil {
		return "", api.Invalid("address", hostport, "host:port, with an IP address or a DNS name")
	}
	return hostport, nil
}

func unreachable(who string, err error) *api.Error {
	e := &api.Error{Code: api.CodePeerUnreachable, Message: who + " does not answer", Reason: err.Error(), Do: "is kithd running there, and does its firewall let TCP in at that port?"}
	var mismatch *identity.MismatchError
	var problem *peering.Problem
	switch {
	case errors.As(err, &mismatch):
		e.Message, e.Do = who+" was refused", "if its owner made a new key, `kith forget` it and add it again; compare the fingerprints first"
	case errors.As(err, &problem) && problem.Code == peering.CodeVersion:
		return otherVersion(who, problem.Message)
	}
	return e
}

// otherVersion says that two daemons do not understand each other; why names both versions.
func otherVersion(who, why string) *api.Error {
	why = strings.TrimSuffix(why, " (bring both to the same version of Kith)")
	return &api.Error{Code: api.CodeUnsupported, Message: who + " cannot be asked", Reason: why, Do: "bring both to the same version of Kith"}
}

// Ask asks a peer for resources.
func (b *Backend) Ask(ctx context.Context, ref string, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error) {
	if err := b.autonomous(ref + " was not asked"); err != nil {
		return api.Peer{}, err
	}
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Peer{}, err
	}
	if err := checkID(ask.ID); err != nil {
		return api.Peer{}, err
	}
	k, err := b.findOrAdd(ctx, ref, report)
	if err != nil {
		return api.Peer{}, err
	}
	if err := sameID(k, ask.ID); err != nil {
		return api.Peer{}, err
	}
	inForce := c.inForce(k)
	if ask.Resources, err = b.nameGPU(ctx, k, inForce, ask.Resources); err != nil {
		return api.Peer{}, err
	}
	if err := api.CheckAsked("resources", ask.Resources); err != nil {
		return api.Peer{}, err
	}
	resources, err := parse("resources", ask.Resources)
	if err != nil {
		return api.Peer{}, err
	}
	if attempt, pending := b.pending(k, inForce, resources, ask); pending {
		return b.followPending(ctx, c, k, attempt, ask, report)
	}
	if ask.Code != "" {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "no request to " + k.Name + " is pending that the code could be of",
			Do: "`kith peer " + k.Name + "` asks, and shows the code that its owner must see too"}
	}
	switch {
	case k.Contact.Cause == presence.OtherVersion:
		return api.Peer{}, otherVersion(k.Name, k.Contact.Why)
	case !k.Contact.Reachable():
		return api.Peer{}, unreachable(k.Name, errors.New(k.Contact.Why))
	}
	if inForce != nil && k.Peer.Spec.Request != nil && sharing.Same(wanted(k.Peer, resources, inForce), inForce.Spec.Resources) {
		return b.unchanged(ctx, c, k, ask.Wait, report)
	}
	if inForce == nil && len(resources) > 0 {
		soon, cancel := context.WithTimeout(ctx, givesTime)
		if less := less(resources, b.wouldGive(soon, k)); less != "" {
			report(api.Progress{Message: k.Name + " would give less now: " + less})
		}
		cancel()
	}
	peer, err := record.EnsurePeer(ctx, c.Client, k.ID, k.Name, k.Addresses[:1], v1alpha1.Source(k.Source))
	if err != nil {
		return api.Peer{}, internal(err)
	}
	attempt := max(time.Now().UnixMilli(), peer.Status.Outgoing.Attempt+1) // the clock may have been put back
	before := peer.DeepCopy()
	peer.Spec.Request = &v1alpha1.ResourceRequest{Resources: resources, Attempt: attempt}
	if ask.ID != "" {
		peer.Spec.Request.Confirm = &v1alpha1.Confirm{Attempt: attempt, ID: ask.ID}
	}
	if err := c.Client.Patch(ctx, peer, client.MergeFrom(before)); err != nil {
		return api.Peer{}, internal(fmt.Errorf("ask %s: %w", k.Name, err))
	}
	b.Directory.Remember(peer)
	if err := c.followAsk(ctx, peer.Name, attempt, ask.Wait, report); err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}

// sameID is an error if a peer's ID is another one than was given; none was is "".
func sameID(k directory.Known, given string) error {
	if given == "" || given == k.ID.String() {
		return nil
	}
	return &api.Error{Code: api.CodeConflict, Message: k.Name + " was not asked", Field: "id",
		Reason: "its ID is " + k.ID.String() + ", not the one that was given", Do: "ask its owner for the ID; somebody may use the name"}
}

// inForce is the contract under which a peer provides; nil without one.
func (c *Cluster) inForce(k directory.Known) *v1alpha1.Contract {
	if k.Peer == nil {
		return nil
	}
	return asking.InForce(c.Client.Now(), k.Peer)
}

// wanted is all that would be asked for with these amounts.
func wanted(peer *v1alpha1.Peer, resources corev1.ResourceList, inForce *v1alpha1.Contract) corev1.ResourceList {
	would := peer.DeepCopy()
	would.Spec.Request = &v1alpha1.ResourceRequest{Resources: resources}
	return asking.Wanted(would, inForce)
}

// unchanged answers who asks for what the contract in force grants: nobody else is asked.
func (b *Backend) unchanged(ctx context.Context, c *Cluster, k directory.Known, wait bool, report func(api.Progress)) (api.Peer, error) {
	if out := k.Peer.Status.Outgoing; out.State != v1alpha1.StateConnected {
		if err := c.followAsk(ctx, k.Peer.Name, out.Attempt, wait, report); err != nil {
			return api.Peer{}, err
		}
	}
	p, err := b.Peer(ctx, k.ID.String())
	p.Unchanged = true
	return p, err
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

// contactTime is how long a peer that just answered may take to be in contact: mostly milliseconds.
const contactTime = 5 * time.Second

func (b *Backend) findOrAdd(ctx context.Context, ref string, report func(api.Progress)) (directory.Known, error) {
	k, err := b.Directory.Find(ref)
	if err == nil || !strings.ContainsAny(ref, ":.") {
		return k, err
	}
	report(api.Progress{Message: "looking who answers at " + ref})
	peer, err := b.AddPeer(ctx, ref)
	if err != nil {
		return directory.Known{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	for {
		changed := b.Changed()
		if k, err = b.Directory.Find(peer.ID); err != nil || k.Contact.Reachable() {
			return k, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return k, nil
		}
	}
}

// followAsk reports what becomes of a request until it is delivered, or, with wait, until it is decided.
func (c *Cluster) followAsk(ctx context.Context, name string, attempt int64, wait bool, report func(api.Progress)) error {
	var former *string // what became of the attempt before, which is no news
	said := ""
	say := func(p api.Progress) {
		if p.Message != said {
			said = p.Message
			report(p)
		}
	}
	return c.follow(ctx, func() (bool, error) {
		var peer v1alpha1.Peer
		if err := c.Client.Get(ctx, named(name), &peer); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		out := peer.Status.Outgoing
		if out.Attempt < attempt && former == nil {
			former = &out.Why
		}
		if out.Attempt < attempt || asking.Asking(out) {
			if out.Why != "" && (out.Attempt == attempt || out.Why != *former) {
				say(api.Progress{Message: out.Why})
			}
			return false, nil
		}
		if asked := confirmation(out); asked != nil {
			if !answered(asking.Word(&peer), *asked) { // else the answer was given a moment ago
				say(api.Progress{Message: out.Why, Code: out.Code, Confirm: asked, Peer: name})
			}
			return !wait, nil
		}
		switch out.State {
		case v1alpha1.StateRequested:
			say(api.Progress{Message: "waiting for the owner of " + name + " to accept", Code: out.Code})
			return !wait, nil
		case v1alpha1.StateConnected:
			if out.RequestID != "" { // other amounts, on top of the contract in force
				inForce := asking.InForce(c.Client.Now(), &peer)
				say(api.Progress{Message: "waiting for the owner of " + name + " to accept " + cmp.Or(change(&peer, inForce), "other amounts"), Code: out.Code})
				return !wait, nil
			}
			if out.Why != "" {
				return true, &api.Error{Code: api.CodeDeclined, Message: out.Why, Do: "the contract in force stays as it is"}
			}
			return true, nil
		case v1alpha1.StateDeclined:
			return true, &api.Error{Code: api.CodeDeclined, Message: out.Why, Do: "talk to its owner, or ask for less"}
		case v1alpha1.StateExpired:
			return true, &api.Error{Code: api.CodeExpired, Message: out.Why, Do: "ask again"}
		case v1alpha1.StateContracted:
			say(api.Progress{Message: "contract signed, the link is being made"})
			return !wait, nil
		case v1alpha1.StateUnreachable: // under the contract in force
			say(api.Progress{Message: name + " cannot be reached: " + out.Why})
			return !wait, nil
		case v1alpha1.StateNone:
			if out.Why != "" { // the contract in force ended meanwhile
				return true, &api.Error{Code: api.CodeConflict, Message: out.Why, Do: "ask again"}
			}
		}
		return false, nil
	})
}

// change says what the pending question of a peer would change of the contract in force.
func change(peer *v1alpha1.Peer, inForce *v1alpha1.Contract) string {
	if inForce == nil {
		return ""
	}
	wanted := asking.Wanted(peer, inForce)
	return api.Change(sharing.Words(inForce.Spec.Resources, wanted), sharing.Words(wanted), nil)
}

// Withdraw takes back a question that waits for an answer.
func (b *Backend) Withdraw(ctx context.Context, ref string) (api.Peer, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	nothing := &api.Error{Code: api.CodeConflict, Message: "no request to " + k.Name + " waits for an answer", Do: "`kith requests` lists those that do"}
	if k.Peer == nil {
		return api.Peer{}, nothing
	}
	var peer v1alpha1.Peer
	if err := c.Client.Get(ctx, named(k.Peer.Name), &peer); err != nil {
		return api.Peer{}, internal(err)
	}
	inForce := c.inForce(k)
	request, out := peer.Spec.Request, peer.Status.Outgoing
	switch before := peer.DeepCopy(); {
	case request == nil || !asks(&peer) && request.Attempt <= out.Attempt:
		return api.Peer{}, nothing
	case inForce == nil: // there is nothing beside the question
		peer.Spec.Request = nil
		err = c.Client.Patch(ctx, &peer, client.MergeFrom(before))
	case request.Attempt > out.Attempt: // not put to the peer yet
		request.Attempt = out.Attempt
		err = c.Client.Patch(ctx, &peer, client.MergeFrom(before))
	default:
		err = c.say(ctx, &peer, v1alpha1.Confirm{Attempt: request.Attempt, Withdraw: true})
	}
	if err != nil {
		return api.Peer{}, internal(fmt.Errorf("take back the request to %s: %w", k.Name, err))
	}
	asked := peer.Spec.Request
	if err := c.follow(ctx, func() (bool, error) {
		var now v1alpha1.Peer
		if err := c.Client.Get(ctx, named(peer.Name), &now); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		return (now.Spec.Request == nil) == (asked == nil) && !asks(&now) && now.Status.Outgoing.State != v1alpha1.StateRequested, nil
	}); err != nil {
		return api.Peer{}, err
	}
	if now := c.inForce(k); now != nil && (inForce == nil || now.Spec.Revision > inForce.Spec.Revision) {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "it is too late to take the request back", Reason: k.Name + " has accepted it, and it is signed",
			Do: "`kith peer " + k.Name + "` with other amounts changes it, `kith unpeer " + k.Name + "` ends it"}
	}
	return b.Peer(ctx, k.ID.String())
}

// Unpeer ends what there is with a peer, in both directions.
func (b *Backend) Unpeer(ctx context.Context, ref string, dry api.DryRun, report func(api.Progress)) (api.Peer, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	if err := b.notTheCompany(k.Name); err != nil {
		return api.Peer{}, err
	}
	if k.Peer == nil {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "there is nothing to end with " + k.Name, Reason: "nothing was asked or granted"}
	}
	if err := throughRestart(ctx, func() error { return c.end(ctx, c.writer(dry), k.Peer.Name) }); err != nil {
		return api.Peer{}, internal(err)
	}
	if dry {
		return b.Peer(ctx, k.ID.String())
	}
	report(api.Progress{Message: "bringing home what runs at " + k.Name})
	if err := c.follow(ctx, func() (bool, error) { return len(c.Client.Now().With(k.Peer.Name, "")) == 0, nil }); err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}

// end takes back what is asked of a peer, gives it back if it is a laptop that this cluster runs, and ends what is granted to it. It may
// be repeated.
func (c *Cluster) end(ctx context.Context, to client.Client, name string) error {
	var peer v1alpha1.Peer
	if err := c.Client.Get(ctx, named(name), &peer); err != nil {
		return err
	}
	if peer.Spec.Request != nil || peer.Spec.Tethered != nil {
		before := peer.DeepCopy()
		peer.Spec.Request, peer.Spec.Tethered = nil, nil
		if err := to.Patch(ctx, &peer, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return c.endProviding(ctx, to, name)
}

// writer is by what something is written; in a dry run the API server says whether it would take that, and nothing is kept.
func (c *Cluster) writer(dry api.DryRun) client.Client {
	if dry {
		return client.NewDryRunClient(c.Client.Client) // past the ledger, which remembers what it writes
	}
	return c.Client
}

// endProviding ends the contracts under which this cluster provides to a peer.
func (c *Cluster) endProviding(ctx context.Context, to client.Client, peer string) error {
	for _, ctr := range c.Client.Now().With(peer, v1alpha1.RoleProvider) {
		if err := record.EndContract(ctx, to, ctr, v1alpha1.EndedHere); err != nil {
			return err
		}
	}
	return nil
}

// ForgetPeer drops everything about a peer from this side alone.
func (b *Backend) ForgetPeer(ctx context.Context, ref string, dry api.DryRun) error {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return err
	}
	if k.Peer == nil {
		return nil
	}
	if _, err := b.Unpeer(ctx, ref, dry, func(api.Progress) {}); err != nil {
		return err
	}
	if err := c.writer(dry).Delete(ctx, k.Peer.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
		return internal(err)
	}
	if dry {
		return nil
	}
	b.Publish(api.Event{Type: api.EventPeerForgotten, Severity: api.SeverityInfo, Peer: k.Name, Message: k.Name + " was forgotten"})
	return nil
}

// parse reads amounts.
func parse(field string, amounts api.Resources) (corev1.ResourceList, error) {
	if err := api.CheckResources(field, amounts, false); err != nil {
		return nil, err
	}
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, api.Invalid(field+"."+name, amount, "a Kubernetes quantity such as 2, 500m or 4Gi")
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

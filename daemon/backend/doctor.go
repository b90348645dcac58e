package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/thermal"
	"kith.dev/core/base/version"
	"kith.dev/core/find/directory"
	"kith.dev/core/local/cluster"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
	"kith.dev/daemon/backend/trouble"
	"kith.dev/daemon/doctor"
)

// Doctor looks for what keeps Kith from working.
func (b *Backend) Doctor(ctx context.Context, ref string, report func(api.Progress)) ([]api.Finding, error) {
	var peers []directory.Known
	if ref != "" {
		k, err := b.Directory.Find(ref)
		if err != nil {
			return nil, err
		}
		peers = []directory.Known{k}
	} else {
		for _, k := range b.Directory.All() {
			if k.Peer != nil {
				peers = append(peers, k)
			}
		}
	}
	woken := false
	if b.Engine != nil {
		defer b.Uses.Begin()()
		woken = b.Engine.State().Phase == cluster.Asleep
		_ = b.awake(ctx, "kith doctor") // the checks say what is wrong
	}
	engine := func(ctx context.Context, report func(api.Finding)) { b.checkEngine(ctx, woken, report) }
	groups := append([]doctor.Group{b.checkSelf, b.checkLaptop, b.checkClock, b.checkRouter, engine, b.checkIngress}, b.machine(peers).Groups()...)
	if names := b.namesOf(peers, ref == ""); b.Names != nil && len(names) > 0 {
		groups = append(groups, doctor.Names{Of: names, Find: b.Names.Find}.Check)
	}
	for _, k := range peers {
		groups = append(groups, func(ctx context.Context, report func(api.Finding)) { b.checkPeer(ctx, k, report) })
	}
	return doctor.Run(ctx, func(f api.Finding) { report(api.Progress{Message: f.What, Finding: &f}) }, groups...), nil
}

// namesOf are the names in the DNS by which these peers were added, and the domains that are searched.
func (b *Backend) namesOf(peers []directory.Known, domains bool) (names []doctor.Named) {
	for _, k := range peers {
		if k.Peer != nil && k.Peer.Spec.DNSName != "" {
			names = append(names, doctor.Named{Name: k.Peer.Spec.DNSName, By: "the peer " + k.Name})
		}
	}
	if domains {
		for _, d := range b.Settings.Discovery.DNSDomains {
			names = append(names, doctor.Named{Name: d, By: "discovery.dnsDomains"})
		}
	}
	return names
}

// machine is this one, with the ranges of these peers.
func (b *Backend) machine(peers []directory.Known) doctor.Machine {
	m := doctor.Machine{Config: b.Settings, PID: os.Getpid(), Guests: map[string][]netip.Prefix{}}
	for _, k := range peers {
		if k.Peer != nil {
			m.Guests[k.Name] = k.Peer.Status.Network.Ranges()
		}
	}
	return m
}

// FixFindings mends what is found of what is named on this machine, and notes what it did.
func (b *Backend) FixFindings(ctx context.Context, fix api.DoctorFix, report func(api.Progress)) ([]api.Fixed, error) {
	b.fixing.Lock()
	defer b.fixing.Unlock()
	// Once begun it is not left half done because its caller went away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fixTime)
	defer cancel()
	fixed := b.machine(nil).Mend(ctx, fix, func(step string) { report(api.Progress{Message: step}) })
	for _, f := range fixed {
		b.Log.Info("doctor mended", "finding", f.Finding.Name, "did", strings.Join(f.Did, "; "), "err", f.Error, "now", f.Now.State)
	}
	b.News.Notify()
	return fixed, nil
}

// fixTime bounds what is done about all findings together.
const fixTime = 4 * time.Minute

// checkSelf tells that the daemon answers, and which parts of it fail.
func (b *Backend) checkSelf(_ context.Context, report func(api.Finding)) {
	report(api.Finding{
		Area: api.AreaDaemon, Name: "kithd", State: api.CheckOK,
		What: fmt.Sprintf("kithd %s answers, up %s", version.Version, trouble.HowLong(time.Since(b.Started))),
	})
	for _, p := range b.Failing() {
		state := api.CheckFail
		if p.Severity != api.SeverityError {
			state = api.CheckWarning
		}
		report(api.Finding{Area: api.AreaDaemon, Name: "part", State: state, What: p.What, Why: p.Why, Do: p.Do})
	}
}

// Several reports whether guests may run on other nodes, too: what is said of this machine is not so of them. Where there is no cluster, or it does
// not say, they may not.
func (c *Cluster) Several(ctx context.Context) bool {
	if c == nil {
		return false
	}
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return false
	}
	fenced := 0
	for i := range nodes.Items {
		if v1alpha1.Fenced(&nodes.Items[i]) {
			fenced++
		}
	}
	return fenced > 1
}

// checkLaptop tells whether peers hear before this machine is suspended, and which conditions of policies it does not know enough for.
func (b *Backend) checkLaptop(ctx context.Context, report func(api.Finding)) {
	if runtime.GOOS != "linux" || b.Laptop == nil {
		return
	}
	is, c := b.Laptop.Now(), b.Cluster()
	told := api.Finding{Area: api.AreaDaemon, Name: "sleep", State: api.CheckOK, What: "peers are told before this machine is suspended"}
	if silent := "peers find out by its silence, within 12 s, when this machine is suspended"; c.Several(ctx) {
		told.What, told.Why = silent, "they are not told before, since guests may run on other nodes, which go on"
	} else if !is.Locked {
		told.What, told.Why = silent, "logind, which would let kithd tell them before, gives no delay lock, or does not run here"
	}
	report(told)
	if c == nil {
		return
	}
	heat := thermal.Read(thermal.Root).Unknown
	checkWaking(c, report)
	for _, p := range c.Client.Now().Policies {
		only := p.Spec.Only
		if only == nil {
			continue
		}
		for _, unknown := range []struct {
			asked   bool
			why, do string
		}{
			{only.IdleFor != nil, is.IdleUnknown, "take the condition away: kith share --policy " + p.Name + ` --idle-for ""`},
			{only.NotMetered, is.MeteredUnknown, "take the condition away: kith share --policy " + p.Name + " --not-metered=false"},
			{only.Cool, heat, "take the condition away: kith share --policy " + p.Name + " --cool=false"},
		} {
			if unknown.asked && unknown.why != "" {
				report(api.Finding{
					Area: api.AreaDaemon, Name: "conditions", State: api.CheckWarning,
					What: "SharingPolicy " + p.Name + " offers nothing new: whether one of its conditions is met is not known", Why: unknown.why, Do: unknown.do,
				})
			}
		}
	}
}

// checkClock compares this machine's clock with those of its peers. One that differs is told with its peer: whose is wrong is known only
// when several agree.
func (b *Backend) checkClock(_ context.Context, report func(api.Finding)) {
	for _, p := range trouble.OfClocks(b.Directory.All()) {
		if p.Kind == api.ProblemClock {
			report(api.Finding{Area: api.AreaDaemon, Name: "clock", State: api.CheckFail, What: p.What, Why: p.Why, Do: p.Do})
		}
	}
}

func (b *Backend) checkEngine(ctx context.Context, woken bool, report func(api.Finding)) {
	e := doctor.Engine{Woken: woken, Kind: b.Settings.Engine, Chosen: b.Choice.Why, Others: b.Choice.Others}
	if b.Engine != nil {
		state := b.Engine.State()
		e.State, e.Why = string(state.Phase), state.Why
		e.Ready = b.askAPIServer
		facts := b.Engine.Facts()
		e.Node = func(ctx context.Context) (doctor.Node, error) { return b.node(ctx, facts.NodeName) }
		e.Cluster = func(ctx context.Context) (doctor.Cluster, error) { return b.clusterOf(ctx, facts.NodeName) }
		e.NodeIP, e.Runtime = facts.NodeIP, facts.Runtime
		// Of flannel's node, which K3s brings, pods are on a bridge of the same name.
		if e.Routed = facts.Ours || facts.NoTunnel; e.Routed {
			e.Bridge = netplan.Bridge
		}
		if e.Log = facts.Log; facts.Ours {
			e.Address, e.ClusterDNS = facts.NodeIP, netip.AddrPortFrom(facts.Network.DNS(), 53)
		}
	}
	e.Check(ctx, report)
}

// directly is a client that goes to the API server, past all caches.
func (b *Backend) directly() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(rest.CopyConfig(b.Engine.RESTConfig()))
}

func (b *Backend) askAPIServer(ctx context.Context) (string, error) {
	c, err := b.directly()
	if err != nil {
		return "", err
	}
	if _, err := c.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return "", err
	}
	text, err := c.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	return v.GitVersion, json.Unmarshal(text, &v)
}

func (b *Backend) node(ctx context.Context, name string) (doctor.Node, error) {
	c, err := b.directly()
	if err != nil {
		return doctor.Node{}, err
	}
	node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return doctor.Node{}, err
	}
	return nodeOf(node), nil
}

// mostPods bounds how many pods of this node are looked at.
const mostPods = 250

// clusterOf reads the machines of the cluster, the pods of one, and which machines have no `kithd node`.
func (b *Backend) clusterOf(ctx context.Context, self string) (is doctor.Cluster, err error) {
	c, err := b.directly()
	if err != nil {
		return is, err
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type!=virtual-kubelet"})
	if err != nil {
		return is, err
	}
	for i := range nodes.Items {
		if n := nodeOf(&nodes.Items[i]); n.Name != self {
			is.Others = append(is.Others, n)
		}
	}
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running,spec.nodeName=" + self, Limit: mostPods})
	if err != nil {
		return is, err
	}
	for _, p := range pods.Items {
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil && !p.Spec.HostNetwork && p.DeletionTimestamp == nil {
			is.Pods = append(is.Pods, a)
		}
	}
	is.Fencing = b.fencing(ctx)
	namespace, _, several := strings.Cut(b.Settings.Lease, "/")
	if !several {
		return is, nil
	}
	agents, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=nodes"})
	if err != nil {
		return is, err
	}
	for _, n := range nodes.Items {
		led := slices.ContainsFunc(agents.Items, func(p corev1.Pod) bool {
			return p.Spec.NodeName == n.Name && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
		})
		if !led {
			is.Unled = append(is.Unled, n.Name)
		}
	}
	return is, nil
}

// ownContracts is how long an API server may take to say which contracts there are. One that does not answer is a finding of its own.
const ownContracts = 5 * time.Second

func (b *Backend) checkPeer(ctx context.Context, k directory.Known, report func(api.Finding)) {
	p := doctor.Peer{Name: k.Name, ID: k.ID, Me: b.Me, Addresses: k.Addresses, Port: b.Settings.WireGuardPort}
	if k.Contact.Reachable() {
		p.By = k.Contact.By
	}
	p.Theirs = func(ctx context.Context) ([]peering.ContractRef, error) {
		client, ok := b.Contacts.Client(k.ID)
		if !ok {
			return nil, fmt.Errorf("too many clusters are nearby to keep contact with %s", k.Name)
		}
		return client.Contracts(ctx)
	}
	if c := b.Cluster(); c != nil {
		bounded, cancel := context.WithTimeout(ctx, ownContracts)
		ours, err := c.Provider.Contracts(bounded, peering.Caller{ID: k.ID})
		cancel()
		p.Contracts, p.Unread = ours, err
		p.NoNetwork = slices.ContainsFunc(c.Client.Now().With(k.Name, ""), sharing.NoNetwork)
	} else if b.Engine != nil {
		p.Unread = errors.New("Kith's controllers do not run, for want of a Kubernetes that answers")
	}
	for _, ctr := range p.Contracts {
		if ctr.Role == contract.Consumer {
			p.Node = func(ctx context.Context) (doctor.Node, error) { return b.node(ctx, v1alpha1.VirtualNodePrefix+k.Name) }
		}
	}
	if b.Gateway != nil {
		id := k.ID.String()
		var s gateway.Stats
		if s, p.HasTunnel = b.Gateway.Stats(id); p.HasTunnel {
			p.Tunnel = doctor.Tunnel{Up: s.Up, LastHandshake: s.LastHandshake, Why: s.Why(time.Now()), MTU: s.MTU}
			p.Tunnel.Way.Way, p.Tunnel.Way.By, p.Tunnel.Way.Reason = wayOf(k, s)
			if s.Endpoint.IsValid() {
				p.Tunnel.Endpoint = s.Endpoint.String()
			}
		}
		p.Ping = func(ctx context.Context, bytes int) (time.Duration, error) {
			rtt, err := b.Gateway.Echo(ctx, id, bytes)
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				err = errors.New("three packets had no answer")
			}
			return rtt, err
		}
	}
	p.Check(ctx, report)
}

// annotationClass named the controller of an Ingress before IngressClasses did; some controllers still go by it.
const annotationClass = "kubernetes.io/ingress.class"

// mostIngresses bounds how many are looked at.
const mostIngresses = 250

// checkIngress tells of Ingresses that no controller answers: Kubernetes takes them, and nothing happens. Where Kith may not read them, as in a
// cluster of servers, it says nothing.
func (b *Backend) checkIngress(ctx context.Context, report func(api.Finding)) {
	if b.Engine == nil {
		return
	}
	c, err := b.directly()
	if err != nil {
		return
	}
	all, err := c.NetworkingV1().Ingresses("").List(ctx, metav1.ListOptions{Limit: mostIngresses})
	if err != nil || len(all.Items) == 0 {
		return
	}
	classes, err := c.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, i := range unanswered(all.Items, classes.Items) {
		why := "it names no IngressClass, and none is the default"
		if i.Spec.IngressClassName != nil {
			why = "there is no IngressClass " + *i.Spec.IngressClassName
		}
		report(api.Finding{
			Area: api.AreaEngine, Name: "ingress", State: api.CheckWarning, What: fmt.Sprintf("nobody answers the Ingress %s/%s", i.Namespace, i.Name), Why: why,
			Do: "install a controller, such as Traefik (docs/publish.md), or use a service of type LoadBalancer or NodePort",
		})
	}
}

// unanswered are the Ingresses that no controller can have taken for its own.
func unanswered(all []networkingv1.Ingress, classes []networkingv1.IngressClass) []networkingv1.Ingress {
	return slices.DeleteFunc(slices.Clone(all), func(i networkingv1.Ingress) bool {
		if len(i.Status.LoadBalancer.Ingress) > 0 || i.Annotations[annotationClass] != "" {
			return true
		}
		return slices.ContainsFunc(classes, func(c networkingv1.IngressClass) bool {
			if i.Spec.IngressClassName != nil {
				return c.Name == *i.Spec.IngressClassName
			}
			return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
		})
	})
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/netpolicy"
	"kith.dev/core/offloading"
	"kith.dev/core/peering"
	"kith.dev/core/reflection"
	"kith.dev/core/relations/link"
	"kith.dev/core/remote"
	"kith.dev/core/virtualnode"
)

const (
	// retireGently bounds how long pods may take to come home from a peer that answers.
	retireGently = 90 * time.Second
	// openWithin bounds how long peers may take to make twins that are asked for before a pod needs them.
	openWithin = 15 * time.Second
	// twinsPerSecond and twinsAtOnce are half of what a peer takes of one caller under /kith/ (peering.Limits).
	twinsPerSecond, twinsAtOnce = 10, 50
	// retireForced bounds it when the peer does not: there is nobody to wait for.
	retireForced = 3 * time.Second
)

// fleet runs the virtual nodes of this cluster.
type fleet struct {
	client    client.Client
	home      kubernetes.Interface
	homeREST  *rest.Config
	kubelet   *virtualnode.Kubelet
	directory link.Directory
	nodeIP    netip.Addr
	reflected *reflection.Home
	permits   *offloading.Permits
	policies  *netpolicy.Home
	place     func(*v1alpha1.Peer) map[string]string // labels that say where a peer is
	older     func(*v1alpha1.Peer, time.Time)        // called when a peer lacks what this Kith needs, over the connection since then
	api       netip.AddrPort                         // of the home API server; the zero value when pods abroad cannot reach it
	events    record.EventBroadcaster                // of all nodes: its queues are larger than anything else a node has
	log       *slog.Logger

	mu    sync.Mutex
	nodes map[string]*member // by Peer name
	// running is done when all nodes have stopped.
	running sync.WaitGroup
	ctx     context.Context
}

// member is a virtual node that runs.
type member struct {
	contract  string
	revision  int64
	node      *virtualnode.Node
	twins     *twins
	translate atomic.Pointer[func(netip.Addr) (netip.Addr, bool)]
	reflector *reflection.Reflector
	policies  *netpolicy.Peer
	network   *v1alpha1.NetworkStatus
	outward   atomic.Pointer[func(netip.Addr) (netip.Addr, bool)]
	cancel    context.CancelFunc
	done      chan struct{}
}

// newFleet makes a fleet whose nodes run until ctx ends.
func newFleet(ctx context.Context, c client.Client, home kubernetes.Interface, homeREST *rest.Config, kubelet *virtualnode.Kubelet, directory link.Directory, nodeIP netip.Addr, reflected *reflection.Home, permits *offloading.Permits, place func(*v1alpha1.Peer) map[string]string, api netip.AddrPort, log *slog.Logger) *fleet {
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: home.CoreV1().Events("")})
	context.AfterFunc(ctx, events.Shutdown)
	return &fleet{
		events: events, client: c, home: home, homeREST: homeREST, kubelet: kubelet, directory: directory, nodeIP: nodeIP, reflected: reflected, permits: permits, place: place, api: api, log: log,
		nodes: map[string]*member{}, ctx: ctx,
	}
}

// Ensure has the node of the contract run.
func (f *fleet) Ensure(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	translate := link.Translator(peer)
	if m := f.nodes[peer.Name]; m != nil && m.contract == ctr.Spec.ID {
		m.translate.Store(&translate)
		if !equality.Semantic.DeepEqual(m.network, peer.Status.Network) {
			m.network = peer.Status.Network.DeepCopy()
			m.reroute()
			m.reflector.Replan()
			m.policies.Wake()
			m.node.Readdress()
		}
		if m.revision != ctr.Spec.Revision {
			m.node.SetResources(ctr.Spec.Resources)
			m.revision = ctr.Spec.Revision
		}
		return nil
	} else if m != nil {
		f.stop(m)
	}
	m, err := f.start(ctx, peer, ctr)
	if err != nil {
		return fmt.Errorf("run the node of %s: %w", peer.Name, err)
	}
	f.nodes[peer.Name] = m
	return nil
}

func (f *fleet) start(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (*member, error) {
	to, err := f.directory.Client(peer)
	if err != nil {
		return nil, err
	}
	var adv v1alpha1.Advertisement
	if err := f.client.Get(ctx, client.ObjectKey{Name: peer.Name}, &adv); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	labels := f.place(peer)
	labels[offloading.LabelVirtual] = "true"
	for k, v := range adv.Spec.NodeLabels {
		if allowedLabel(k) {
			labels[k] = v
		}
	}
	m := &member{contract: ctr.Spec.ID, revision: ctr.Spec.Revision, done: make(chan struct{}), twins: &twins{to: to, peer: peer.Name, contract: ctr.Spec.ID, client: f.client, log: f.log, known: map[string]string{}, pace: rate.NewLimiter(twinsPerSecond, twinsAtOnce)}}
	translate := link.Translator(peer)
	m.translate.Store(&translate)
	m.network = peer.Status.Network.DeepCopy()
	m.reroute()
	recorder := f.events.NewRecorder(kubescheme.Scheme, corev1.EventSource{Component: "kith", Host: v1alpha1.VirtualNodePrefix + peer.Name})
	abroad := &rest.Config{Host: to.BaseURL() + "/kube", Transport: to.Transport(), QPS: -1}
	view := remote.New(remote.Config{Open: f.viewAt(peer.DeepCopy(), m.twins), Log: f.log.With("peer", peer.Name)})
	m.reflector, err = reflection.New(reflection.Config{
		Home: f.reflected, Abroad: abroad, View: view, API: f.api, NodeIP: f.nodeIP,
		PeerName: peer.Name, NodeName: v1alpha1.VirtualNodePrefix + peer.Name,
		Permit: func(namespace string) bool {
			permit, _, err := f.permits.Of(f.ctx, namespace, peer.Name)
			return err == nil && permit == offloading.Granted
		},
		Translate:  func(a netip.Addr) (netip.Addr, bool) { return (*m.outward.Load())(a) },
		GuestNode:  func(namespace, pod string) string { return m.node.GuestNode(namespace, pod) },
		GuestReady: func(namespace, pod string) bool { return m.node.GuestReady(namespace, pod) },
		Problems:   func(namespace string, problems []string) { f.showProblems(peer.Name, namespace, problems) },
		Recorder:   recorder,
		Log:        f.log,
	})
	if err != nil {
		return nil, err
	}
	m.policies = f.policies.Peer(m.twins.policies(func(a netip.Addr) (netip.Addr, bool) { return (*m.outward.Load())(a) }, recorder))
	m.twins.opened = func(home, abroad string, isNew bool) { m.policies.Open(home); m.reflector.Open(home, abroad, isNew) }
	m.twins.closed = func(home string) { m.policies.Close(home); m.reflector.Close(home) }
	m.twins.tell = func(home string, no *peering.Problem) { f.showRefusal(peer.Name, home, no) }
	port, err := f.kubelet.Port(v1alpha1.VirtualNodePrefix + peer.Name)
	if err != nil {
		return nil, err
	}
	m.node, err = virtualnode.New(virtualnode.Config{
		Home: f.home, HomeREST: f.homeREST,
		Abroad: abroad, View: view, Upgrades: upgrades(to), Twins: m.twins, Companions: companions{m.reflector, m.policies},
		Permit: func(ctx context.Context, namespace string) (offloading.Permit, string, error) {
			return f.permits.Of(ctx, namespace, peer.Name)
		},
		Avoid: func(ctx context.Context, namespace string, controller types.UID) (time.Time, error) {
			return offloading.NewSteering(f.client).Avoid(ctx, namespace, controller, peer.Name)
		},
		PeerName: peer.Name, PeerID: peer.Spec.ID, NodeName: v1alpha1.VirtualNodePrefix + peer.Name,
		NodeIP: f.nodeIP, KubeletPort: port, Usage: m.twins.usage, Machine: m.twins.machine,
		Resources: ctr.Spec.Resources, Labels: labels,
		Translate: func(a netip.Addr) (netip.Addr, bool) { return (*m.translate.Load())(a) },
		Recorder:  recorder,
		Log:       f.log,
	})
	if err != nil {
		return nil, err
	}
	var run context.Context
	run, m.cancel = context.WithCancel(f.ctx)
	f.kubelet.Add(m.node)
	f.running.Go(func() {
		defer close(m.done)
		defer f.kubelet.Remove(m.node)
		supervise(run, f.log, "virtual node "+m.node.Name(), m.node.Run)
	})
	f.running.Go(func() { m.policies.Run(run) })
	f.running.Go(func() {
		if err := m.reflector.Run(run); err != nil {
			f.log.Error("reflection ended", "peer", peer.Name, "err", err)
		}
	})
	return m, nil
}

// reroute takes changed addresses over.
func (m *member) reroute() {
	outward := outward(m.network)
	m.outward.Store(&outward)
}

// allowedLabel tells whether a peer may choose the value of a node label here: what describes the machine, and nothing
// that schedulers and operators of this cluster rely on.
func allowedLabel(key string) bool {
	switch key {
	case corev1.LabelArchStable:
		return true
	}
	return false
}

// upgrades carries exec, attach and port-forward, which need HTTP/1.1, to the peer.
func upgrades(to *peering.Client) http.RoundTripper {
	t := &http.Transport{
		DialTLSContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return to.DialTLS(ctx) },
		IdleConnTimeout: time.Minute,
		Protocols:       new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// stop is called with mu held.
func (f *fleet) stop(m *member) {
	m.cancel()
	<-m.done
}

// SetReachable tells the node of a peer that the peer answers.
func (f *fleet) SetReachable(peer string) {
	if m := f.member(peer); m != nil {
		m.node.SetReady(true, "PeerReachable", "the peer answers")
		m.policies.Again()
	}
}

// SetLost tells the node of a peer that the peer does not answer, and since when nothing was heard of it.
func (f *fleet) SetLost(peer, why string, heard time.Time) {
	if heard.IsZero() {
		heard = time.Now()
	}
	if m := f.member(peer); m != nil {
		m.node.SetLost("PeerUnreachable", why, heard)
	}
}

// SetTunnel tells the node of a peer why no packet passes between the pods here and there.
func (f *fleet) SetTunnel(peer, why string) {
	if m := f.member(peer); m != nil {
		m.node.SetTunnel(why)
		m.reflector.SetTunnel(why == "")
	}
}

// member is the node of a peer; nil when there is none.
func (f *fleet) member(peer string) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[peer]
}

// Retire brings the pods of a virtual node home and takes it away. The node runs until its pods left: it is what ends
// them abroad.
func (f *fleet) Retire(ctx context.Context, peer string, reachable bool, left <-chan struct{}) error {
	patience := retireForced
	if reachable {
		patience = retireGently
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	go func() {
		select {
		case <-left:
			cancel()
		case <-bounded.Done():
		}
	}()
	keep := func(ctx context.Context, pod *corev1.Pod) error { return offloading.Keep(ctx, f.client, pod) }
	err := virtualnode.Retire(bounded, f.home, v1alpha1.VirtualNodePrefix+peer, keep, f.log)
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.nodes[peer]; m != nil {
		f.stop(m)
		delete(f.nodes, peer)
	}
	return err
}

// Open has the peers that answer, or those of them that are named, make the twins of a home namespace now. What a peer says
// against it stands in the NamespaceOffloading.
func (f *fleet) Open(ctx context.Context, namespace string, peers []string) {
	f.mu.Lock()
	var all []*member
	for name, m := range f.nodes {
		if len(peers) == 0 || slices.Contains(peers, name) {
			all = append(all, m)
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	var asking sync.WaitGroup
	for _, m := range all {
		asking.Go(func() {
			if err := m.node.Open(ctx, namespace); err != nil {
				f.log.Info("the namespace has no twin yet", "namespace", namespace, "peer", m.twins.peer, "err", err)
			}
		})
	}
	asking.Wait()
}

// Review has all nodes look whether the twins of a home namespace are still wanted, and give them up if not.
func (f *fleet) Review(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		m.node.Review(namespace)
	}
}

// Left lists what a peer still has of namespaces that are gone, or stay, at home.
func (f *fleet) Left(peer string) []virtualnode.Left {
	f.mu.Lock()
	m := f.nodes[peer]
	f.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.node.Left()
}

// Twins lists the twin namespaces at a peer that were used since the start.
func (f *fleet) Twins(peer string) []v1alpha1.TwinNamespace {
	f.mu.Lock()
	m := f.nodes[peer]
	f.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.twins.list()
}

// wait returns when all nodes stopped, after ctx ended.
func (f *fleet) wait() { f.running.Wait() }

// twins asks a peer for the namespaces abroad.
type twins struct {
	client   client.Client
	to       *peering.Client
	peer     string
	contract string
	// pace keeps what is asked about namespaces below what peers take of one caller.
	pace *rate.Limiter
	// opened and closed are told of each twin that is there from now on, or goes.
	opened func(home, abroad string, isNew bool)
	closed func(home string)
	// tell shows the peer's refusal to make a twin, or with nil that there is none any more.
	tell func(home string, no *peering.Problem)
	log  *slog.Logger

	mu    sync.Mutex
	known map[string]string // home to abroad
}

func (t *twins) list() []v1alpha1.TwinNamespace {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []v1alpha1.TwinNamespace
	for home, abroad := range t.known {
		list = append(list, v1alpha1.TwinNamespace{Home: home, Abroad: abroad})
	}
	return list
}

// Ensure makes sure that the home namespace has its twin.
func (t *twins) Ensure(ctx context.Context, home string) (string, error) {
	mapping := v1alpha1.MappingDefault
	var nso v1alpha1.NamespaceOffloading
	err := t.client.Get(ctx, client.ObjectKey{Namespace: home, Name: v1alpha1.NamespaceOffloadingName}, &nso)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	if nso.Spec.Mapping != "" {
		mapping = nso.Spec.Mapping
	}
	if err := t.pace.Wait(ctx); err != nil {
		return "", err
	}
	var answer struct {
		Namespace string `json:"namespace"`
	}
	query := url.Values{"contract": {t.contract}, "mapping": {string(mapping)}}
	called := t.to.Call(ctx, http.MethodPut, "/kith/v2/namespaces/"+url.PathEscape(home)+"?"+query.Encode(), nil, &answer)
	if called == nil && len(validation.IsDNS1123Label(answer.Namespace)) > 0 {
		called = fmt.Errorf("%.80q, as %s calls it, cannot be the name of a namespace", answer.Namespace, t.peer)
	}
	var no *peering.Problem
	if err == nil && (called == nil || errors.As(called, &no)) {
		t.tell(home, no)
	}
	if called != nil {
		return "", fmt.Errorf("make the twin of namespace %s: %w", home, called)
	}
	t.mu.Lock()
	t.known[home] = answer.Namespace
	t.mu.Unlock()
	t.opened(home, answer.Namespace, true)
	if err == nil {
		t.record(ctx, &nso, answer.Namespace)
	}
	return answer.Namespace, nil
}

// record shows the twin in the NamespaceOffloading, for people.
func (t *twins) record(ctx context.Context, nso *v1alpha1.NamespaceOffloading, abroad string) {
	before := nso.DeepCopy()
	twin := v1alpha1.PeerNamespace{Peer: t.peer, Namespace: abroad}
	if slices.Contains(nso.Status.Twins, twin) {
		return
	}
	nso.Status.Twins = slices.DeleteFunc(nso.Status.Twins, func(old v1alpha1.PeerNamespace) bool { return old.Peer == t.peer })
	nso.Status.Twins = append(nso.Status.Twins, twin)
	if err := t.client.Status().Patch(ctx, nso, client.MergeFrom(before)); err != nil {
		t.log.Debug("twin not shown in the NamespaceOffloading", "namespace", nso.Namespace, "peer", t.peer, "err", err)
	}
}

// Found notes a twin that is there.
func (t *twins) Found(home, abroad string, settled bool) {
	t.mu.Lock()
	t.known[home] = abroad
	t.mu.Unlock()
	t.opened(home, abroad, !settled)
}

// Gone forgets a twin.
func (t *twins) Gone(home string) {
	t.mu.Lock()
	delete(t.known, home)
	t.mu.Unlock()
	t.closed(home)
}

// Release has the peer clear the twin away, with all in it. Nothing is reflected there from now on.
func (t *twins) Release(ctx context.Context, home string) error {
	t.Gone(home)
	if err := t.pace.Wait(ctx); err != nil {
		return err
	}
	query := url.Values{"contract": {t.contract}}
	return t.to.Call(ctx, http.MethodDelete, "/kith/v2/namespaces/"+url.PathEscape(home)+"?"+query.Encode(), nil, nil)
}

// maxRefusal is how much of a peer's reason for a refusal is read.
const maxRefusal = 4 << 10

// errNoView is the answer of a Kith from before there were views.
var errNoView = errors.New("the peer runs an older Kith, which has no view of the namespaces it keeps")

// viewAt opens the view at a peer. One that has none is told of, since nothing of what happens there would be seen.
func (f *fleet) viewAt(peer *v1alpha1.Peer, t *twins) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		since := f.directory.Contact(peer).Since
		body, err := t.view(ctx)
		if errors.Is(err, errNoView) {
			f.older(peer, since)
		}
		return body, err
	}
}

// view opens the stream of what is in the twins.
func (t *twins) view(ctx context.Context) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.to.BaseURL()+"/kith/v2/view", nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.to.Transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound {
		resp.Body.Close()
		return nil, errNoView
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || media != "application/x-ndjson" {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return nil, fmt.Errorf("%s: %q", resp.Status, text)
	}
	return resp.Body, nil
}

// machine asks the peer what machine it is. Before this question there was none.
func (t *twins) machine(ctx context.Context) (virtualnode.Machine, error) {
	query := url.Values{"contract": {t.contract}}
	var machine virtualnode.Machine
	err := t.to.Call(ctx, http.MethodGet, "/kith/v2/machine?"+query.Encode(), nil, &machine)
	var no *peering.Problem
	if errors.As(err, &no) && no.Code == peering.CodeNotFound {
		return virtualnode.Machine{}, nil
	}
	return machine, err
}

// maxUsage bounds what a peer can have us read of its guests' use; a pod is some 2 KiB.
const maxUsage = 8 << 20

// usage asks the peer what our pods there use.
func (t *twins) usage(ctx context.Context, form string) ([]byte, error) {
	query := url.Values{"contract": {t.contract}, "form": {form}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.to.BaseURL()+"/kith/v2/usage?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.to.Transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxUsage))
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return body, err
}

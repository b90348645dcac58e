package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/engine/listener"
)

// Options say whose policies are enforced where.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	// One of each family that the cluster has.
	NodeIP     []netip.Addr
	ClusterDNS []netip.Addr
	Pods       []netip.Prefix // addresses that pods of the cluster have
	Local      []netip.Prefix // those of this node's pods, and of no others

	Guests uint32 // group of the links that lead to guests, pods of other clusters
	Socket string // where the CNI plugin asks, see Ask
}

// Between two looks at everything is so long at least, and at most, and else four times what the last one took: the first of many
// changes is not kept waiting, and whoever makes pods, or guests, change without end gets a fifth of a processor for it.
const pace, paceAtMost = 100 * time.Millisecond, 2 * time.Second

// After a look that failed there is another in so long, at first and at most.
const again, againAtMost = 2 * time.Second, time.Minute

// Controller keeps the rules. Open makes one, Run works.
type Controller struct {
	o      Options
	log    *slog.Logger
	socket net.Listener
	tables []*writer
	record record.EventRecorder
	wakeup chan struct{} // holds a token when something changed

	policies cache.SharedIndexInformer
	bridged  func() error
	news     func(matters func([]byte) bool) (changed <-chan struct{}, stop func(), err error)
	seen     *observed            // while there are policies
	told     map[types.UID]string // of policies that are not in force: why

	mu     sync.Mutex
	claims map[types.UID]*claim
	why    error // of the last look
}

// observed is the pods and namespaces, followed while there are policies.
type observed struct {
	pods, namespaces cache.SharedIndexInformer
	stop             context.CancelFunc
}

// Open listens for the CNI plugin, which may be asked before Run is.
func Open(o Options, log *slog.Logger) (*Controller, error) {
	c := &Controller{o: o, log: log, wakeup: make(chan struct{}, 1), claims: map[types.UID]*claim{}, news: hostnet.Tables}
	for _, f := range []family{ipv6, ipv4} {
		c.tables = append(c.tables, &writer{family: f, dns: f.of(o.ClusterDNS), pods: f.rangeOf(o.Pods), group: o.Guests})
	}
	c.bridged = func() error { return bridged(ipv6.of(o.ClusterDNS).IsValid()) }
	var err error
	if c.socket, err = listener.Unix(o.Socket); err != nil {
		return nil, fmt.Errorf("socket for pods' policies: %w", err)
	}
	return c, nil
}

// Shut is for a boot, before the API server is there to ask which policies hold: where there is no tunnel to peers yet, and no table
// of a process before, nothing comes out of the tunnel, or goes into it, until Run has read them. Where the tunnel is, it leaves all as it was.
func (c *Controller) Shut(ctx context.Context) error {
	if _, err := net.InterfaceByName(netplan.Tunnel); err == nil {
		return nil
	}
	return c.all(func(w *writer) error {
		if there, err := w.there(ctx); there || err != nil {
			return err
		}
		return w.write(ctx, State{DNS: c.o.ClusterDNS, Node: c.o.NodeIP})
	})
}

// Run keeps the rules until ctx ends, and leaves them: pods run on, and so does what holds them.
func (c *Controller) Run(ctx context.Context) error {
	defer c.socket.Close()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.o.Client.CoreV1().Events("")})
	c.record = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kith-k8s", Host: c.o.NodeName})

	factory := informers.NewSharedInformerFactoryWithOptions(c.o.Client, 0, informers.WithTransform(strip))
	c.policies = factory.Networking().V1().NetworkPolicies().Informer()
	if err := c.follow(c.policies); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.policies.HasSynced) {
		return nil
	}
	go c.serve(ctx)
	// Somebody may take the tables away, as `nft flush ruleset` does: without the kernel's word for it they stay away until the
	// next change of policies or pods.
	deleted, stop, err := c.news(tableDeleted)
	if err != nil {
		c.log.Warn("cannot see whether somebody takes the rules of NetworkPolicies away", "err", err)
	} else {
		defer stop()
	}
	growing := wait.Backoff{Duration: again, Factor: 2, Steps: 100, Cap: againAtMost}
	for delay := growing; ; {
		began := time.Now()
		err := c.look(ctx)
		pause := min(max(pace, 4*time.Since(began)), paceAtMost)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			pause = delay.Step()
			c.log.Warn("NetworkPolicies are not in force as they are written, trying again", "after", pause, "err", err)
			c.wake()
		} else {
			delay = growing
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-c.wakeup:
		case _, ok := <-deleted:
			if !ok {
				deleted = nil
			}
			for _, w := range c.tables {
				if w.missing(ctx) {
					c.log.Warn("the rules of NetworkPolicies were taken away, putting them up again", "table", w.ip+" "+Table)
					w.written = nil
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Controller) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

func (c *Controller) follow(i cache.SharedIndexInformer) error {
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.wake() },
		UpdateFunc: func(was, is any) {
			if matters(was, is) {
				c.wake()
			}
		},
		DeleteFunc: func(any) { c.wake() },
	})
	return err
}

// look reads everything and writes what follows of it.
func (c *Controller) look(ctx context.Context) error {
	list := c.policies.GetStore().List()
	if len(list) == 0 {
		return c.idle(ctx)
	}
	if err := c.observe(ctx); err != nil {
		return err
	}
	s := State{DNS: c.o.ClusterDNS, Node: c.o.NodeIP, Namespaces: map[string]map[string]string{}}
	for _, o := range list {
		s.Policies = append(s.Policies, o.(*networkingv1.NetworkPolicy))
	}
	for _, o := range c.seen.namespaces.GetStore().List() {
		ns := o.(*corev1.Namespace)
		s.Namespaces[ns.Name] = ns.Labels
	}
	var known []types.UID
	s.Pods, known = c.pods()
	err := c.all(func(w *writer) error { return w.write(ctx, s) })
	c.settle(known, err)
	if err != nil {
		c.tell(s.Policies, err)
		return err
	}
	c.tell(s.Policies, c.bridged()) // for which no pod is kept from starting, and nothing helps but the owner
	return nil
}

// all does something to the table of each family.
func (c *Controller) all(do func(*writer) error) error {
	var errs []error
	for _, w := range c.tables {
		errs = append(errs, do(w))
	}
	return errors.Join(errs...)
}

// idle is without policies: no table, and nobody to follow.
func (c *Controller) idle(ctx context.Context) error {
	if c.seen != nil {
		c.seen.stop()
		c.seen = nil
	}
	c.told = nil
	err := c.all(func(w *writer) error { return w.remove(ctx) })
	c.settleAll(err)
	return err
}

// observe begins to follow pods and namespaces, if nobody does.
func (c *Controller) observe(ctx context.Context) error {
	if c.seen == nil {
		// On their bridge pods could speak IPv6 even where they have none.
		_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-ip6tables", []byte("1"), 0) // missing with br_netfilter, see bridged
		life, stop := context.WithCancel(ctx)
		factory := informers.NewSharedInformerFactoryWithOptions(c.o.Client, 0, informers.WithTransform(strip))
		c.seen = &observed{pods: factory.Core().V1().Pods().Informer(), namespaces: factory.Core().V1().Namespaces().Informer(), stop: stop}
		if err := errors.Join(c.follow(c.seen.pods), c.follow(c.seen.namespaces)); err != nil {
			return err
		}
		factory.Start(life.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.seen.pods.HasSynced, c.seen.namespaces.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// bridged reports an error when packets between pods of this node do not meet any rule, of IPv6 where they have it.
func bridged(ipv6 bool) error {
	for _, key := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		b, err := os.ReadFile("/proc/sys/net/bridge/" + key)
		if err != nil || strings.TrimSpace(string(b)) != "1" {
			return fmt.Errorf("packets between pods of this laptop bypass the kernel's packet filter (%s); load the module br_netfilter", key)
		}
		if !ipv6 {
			break
		}
	}
	return nil
}

// tell says on the policies why they are not in force, on each once for each cause.
func (c *Controller) tell(list []*networkingv1.NetworkPolicy, err error) {
	was := c.told
	if c.told = nil; err == nil {
		return
	}
	c.told = map[types.UID]string{}
	for _, p := range list {
		c.told[p.UID] = err.Error()
		if was[p.UID] != err.Error() {
			c.log.Warn("a NetworkPolicy is not in force as it is written", "namespace", p.Namespace, "name", p.Name, "err", err)
			c.record.Eventf(p, corev1.EventTypeWarning, "NotEnforced", "this policy is not in force as it is written: %s", shorten(err.Error()))
		}
	}
}

func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 800)], "") }

// strip drops what nobody here reads.
func strip(o any) (any, error) {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		o.ManagedFields, o.Annotations = nil, nil
	case *corev1.Namespace:
		o.ManagedFields, o.Annotations = nil, nil
	case *corev1.Pod:
		return stripPod(o), nil
	}
	return o, nil
}

func stripPod(p *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{}
	slim.Namespace, slim.Name, slim.UID, slim.Labels, slim.CreationTimestamp = p.Namespace, p.Name, p.UID, p.Labels, p.CreationTimestamp
	slim.ResourceVersion = p.ResourceVersion
	if static := p.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		slim.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: static}
	}
	slim.Spec.NodeName, slim.Spec.HostNetwork = p.Spec.NodeName, p.Spec.HostNetwork
	slim.Status.Phase, slim.Status.PodIP, slim.Status.PodIPs = p.Status.Phase, p.Status.PodIP, p.Status.PodIPs
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, container := range list {
			for _, port := range container.Ports {
				if port.Name != "" {
					slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{port}})
				}
			}
		}
	}
	return slim
}

// matters reports whether rules may depend on a change.
func matters(was, is any) bool {
	switch a := was.(type) {
	case *corev1.Pod:
		b := is.(*corev1.Pod)
		return a.UID != b.UID || !slices.Equal(addressesOf(a), addressesOf(b)) || a.Spec.NodeName != b.Spec.NodeName ||
			v1alpha1.Ended(a.Status.Phase) != v1alpha1.Ended(b.Status.Phase) || !labels.Equals(a.Labels, b.Labels)
	case *corev1.Namespace:
		return !labels.Equals(a.Labels, is.(*corev1.Namespace).Labels)
	case *networkingv1.NetworkPolicy:
		return a.UID != is.(*networkingv1.NetworkPolicy).UID || a.Generation != is.(*networkingv1.NetworkPolicy).Generation
	}
	return true
}

// pods gives those with an address, and which of the claims are among them. What the CNI plugin says comes before what a
// status says, of two statuses that of a pod on this node, a guest of somebody's maybe, before what a peer says of a pod there, and
// else the newer pod's.
func (c *Controller) pods() (list []Pod, known []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := map[netip.Addr]*corev1.Pod{}
	claimed := map[netip.Addr]bool{}
	for _, o := range c.seen.pods.GetStore().List() {
		p := o.(*corev1.Pod)
		if p.Spec.HostNetwork || v1alpha1.Ended(p.Status.Phase) { // one that ended gave its address back; somebody else may have it
			continue
		}
		at := c.claimOf(p)
		if at != nil {
			known = append(known, at.uid)
			for _, address := range at.addresses {
				owner[address], claimed[address] = p, true
			}
		}
		for _, address := range addressesOf(p) {
			// What the plugin said of one family says nothing of the other, of which an older one does not speak.
			said := at != nil && slices.ContainsFunc(at.addresses, func(a netip.Addr) bool { return a.Is4() == address.Is4() })
			if said || claimed[address] || !c.mayHave(p, address) {
				continue
			}
			if other := owner[address]; other == nil || c.outranks(p, other) {
				owner[address] = p
			}
		}
	}
	for address, p := range owner {
		pod := Pod{Namespace: p.Namespace, Labels: p.Labels, Address: address}
		for _, container := range p.Spec.Containers {
			pod.Ports = append(pod.Ports, container.Ports...)
		}
		list = append(list, pod)
	}
	return list, known
}

// addressesOf a pod, as its status says them: one of each family at most, as the API server has it.
func addressesOf(p *corev1.Pod) (list []netip.Addr) {
	all := p.Status.PodIPs
	if len(all) == 0 {
		all = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	for _, ip := range all {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// mayHave reports whether an address can be a pod's: those of this node's pods are nobody's at a peer, and this node's, those of a link, and
// those of a family that the cluster does not have nobody's.
func (c *Controller) mayHave(p *corev1.Pod, a netip.Addr) bool {
	has := slices.ContainsFunc(c.o.NodeIP, func(n netip.Addr) bool { return n.Is4() == a.Is4() })
	return has && a.Zone() == "" && !a.Is4In6() && !a.IsLinkLocalUnicast() && !slices.Contains(c.o.NodeIP, a) &&
		(c.isHere(p) || !slices.ContainsFunc(c.o.Local, func(r netip.Prefix) bool { return r.Contains(a) }))
}

// outranks reports whether the status of a pod counts before that of another with the same address.
func (c *Controller) outranks(p, other *corev1.Pod) bool {
	if c.isHere(p) != c.isHere(other) {
		return c.isHere(p)
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

func (c *Controller) isHere(p *corev1.Pod) bool { return p.Spec.NodeName == c.o.NodeName }

package join

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	capi "k8s.io/kubernetes/pkg/apis/certificates"

	"kith.dev/core/api/v1alpha1"
)

// fresh is how long a name belongs to the key it was first given to while its node has not come yet.
const fresh = time.Minute

// Server is what no other node may be called, or serve at: what clients take for the API server. A certificate for it from the cluster's own
// authority would have every pod and every node believe who holds it.
type Server struct {
	Names  []string
	Addrs  []netip.Addr
	Ranges []netip.Prefix // of pods and services, where no node is
}

// hasName is also true of what names of services, and of virtual nodes, end and begin with: who joins under one that is not there yet would
// be it when it comes.
func (s Server) hasName(name string) bool {
	return slices.Contains(s.Names, name) || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".cluster.local") ||
		strings.HasPrefix(name, v1alpha1.VirtualNodePrefix)
}

// hasAddr is also true of those at which everybody finds himself.
func (s Server) hasAddr(ip net.IP) bool {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return !ok || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || slices.Contains(s.Addrs, a) ||
		slices.ContainsFunc(s.Ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// verdict on a request. The zero value leaves it to others.
type verdict struct {
	approve, deny bool
	why           string
}

// decide is what becomes of a request for a certificate by a node, or by who wants to be one, with the nodes that there are and the
// requests that were granted lately.
func decide(csr *certificatesv1.CertificateSigningRequest, server Server, nodes []*corev1.Node, granted []*certificatesv1.CertificateSigningRequest) verdict {
	withToken, asNode := slices.Contains(csr.Spec.Groups, joinGroup), strings.HasPrefix(csr.Spec.Username, nodeUser) && slices.Contains(csr.Spec.Groups, nodeGroup)
	request, err := capi.ParseCSR(csr.Spec.Request)
	if err != nil || withToken == asNode {
		return verdict{}
	}
	usages := sets.NewString() // upstream's functions want the old kind
	for _, u := range csr.Spec.Usages {
		usages.Insert(string(u))
	}
	name := strings.TrimPrefix(request.Subject.CommonName, nodeUser)
	at := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if !capi.IsKubeletClientCSR(request, usages) {
			return verdict{}
		}
		if asNode {
			if csr.Spec.Username != request.Subject.CommonName {
				return verdict{deny: true, why: "a node asks for its own certificates alone"}
			}
			if at < 0 {
				return verdict{deny: true, why: fmt.Sprintf("node %s was deleted: kith-k8s agent reset on it, and join it again", name)}
			}
			return verdict{approve: true, why: "the node's new certificate"}
		}
		if at >= 0 {
			return verdict{deny: true, why: taken(name)}
		}
		if server.hasName(name) {
			return verdict{deny: true, why: fmt.Sprintf("%s is what others call the API server, a service or a peer: choose another --node-name", name)}
		}
		for _, other := range granted {
			was, err := capi.ParseCSR(other.Spec.Request)
			if err == nil && was.Subject.CommonName == request.Subject.CommonName && !sameKey(was, request) {
				return verdict{deny: true, why: fmt.Sprintf("another node is joining as %s at the moment: choose another --node-name", name)}
			}
		}
		return verdict{approve: true, why: "a new node, with a token"}
	case certificatesv1.KubeletServingSignerName:
		if asNode && at >= 0 && csr.Spec.Username == request.Subject.CommonName && capi.IsKubeletServingCSR(request, usages) && mayServe(request, server, nodes[at], nodes) {
			return verdict{approve: true, why: "the node's own name and addresses"}
		}
	}
	return verdict{}
}

// taken says that a name is another node's.
func taken(name string) string {
	return fmt.Sprintf("there is a node %s, and its name belongs to its key: choose another --node-name; or, if that node is gone for good, kubectl delete node %[1]s on the server", name)
}

func sameKey(a, b *x509.CertificateRequest) bool {
	return bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

// mayServe reports whether a certificate names nothing but a node and addresses that it, and no other node, is at. A node says itself which
// addresses it has, so what another one said before it counts more, and the server's are not for the saying.
func mayServe(request *x509.CertificateRequest, server Server, node *corev1.Node, nodes []*corev1.Node) bool {
	if slices.ContainsFunc(request.DNSNames, func(n string) bool { return n != node.Name || server.hasName(n) }) {
		return false
	}
	has := func(n *corev1.Node, ip net.IP) bool {
		return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return net.ParseIP(a.Address).Equal(ip) })
	}
	return !slices.ContainsFunc(request.IPAddresses, func(ip net.IP) bool {
		return !has(node, ip) || server.hasAddr(ip) || slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name != node.Name && has(n, ip) })
	})
}

// Approve answers the requests of nodes until ctx ends. Requests of others are left to others.
func Approve(ctx context.Context, client kubernetes.Interface, server Server, log *slog.Logger) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	requests, nodes := factory.Certificates().V1().CertificateSigningRequests(), factory.Core().V1().Nodes()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, time.Minute))
	context.AfterFunc(ctx, queue.ShutDown)
	add := func(o any) {
		if csr, ok := o.(*certificatesv1.CertificateSigningRequest); ok && len(csr.Status.Conditions) == 0 {
			queue.Add(csr.Name)
		}
	}
	if _, err := requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return err
	}
	known := nodes.Informer()
	// A kubelet may ask for what it serves with before the cluster knows its addresses.
	if _, err := known.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
		if slices.Equal(old.(*corev1.Node).Status.Addresses, now.(*corev1.Node).Status.Addresses) {
			return
		}
		for _, o := range requests.Informer().GetStore().List() {
			add(o)
		}
	}}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), requests.Informer().HasSynced, known.HasSynced) {
		return nil
	}
	for {
		name, over := queue.Get()
		if over {
			return nil
		}
		csr, err := requests.Lister().Get(name)
		if err == nil {
			err = answer(ctx, client, server, csr, log)
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			log.Warn("cannot answer a node's request for a certificate, trying again", "request", name, "err", err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// answer decides with what the cluster has now, not with what a watch said a moment ago: two may want one name at the same time. They are
// answered one after the other.
func answer(ctx context.Context, client kubernetes.Interface, server Server, csr *certificatesv1.CertificateSigningRequest, log *slog.Logger) error {
	if len(csr.Status.Conditions) > 0 {
		return nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	all, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	v := decide(csr, server, nodes, lately(all.Items, time.Now()))
	condition := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "KithNode", Message: v.why}
	switch {
	case v.deny:
		condition.Type = certificatesv1.CertificateDenied
		log.Warn("refused a certificate to who asks to be a node", "name", csr.Name, "by", csr.Spec.Username, "why", v.why)
	case !v.approve:
		return nil
	default:
		log.Info("granted a node its certificate", "name", csr.Name, "signer", csr.Spec.SignerName, "by", csr.Spec.Username)
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, condition)
	_, err = client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	return err
}

// lately are the requests of new nodes that were granted a moment ago.
func lately(all []certificatesv1.CertificateSigningRequest, now time.Time) (granted []*certificatesv1.CertificateSigningRequest) {
	for i := range all {
		csr := &all[i]
		if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && now.Sub(csr.CreationTimestamp.Time) < fresh &&
			slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateApproved
			}) {
			granted = append(granted, csr)
		}
	}
	return granted
}

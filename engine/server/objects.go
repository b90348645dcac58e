package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	nodeac "k8s.io/client-go/applyconfigurations/node/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	storageac "k8s.io/client-go/applyconfigurations/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/engine/config"
	"kith.dev/engine/containerd"
	"kith.dev/engine/join"
	"kith.dev/engine/metrics"
	"kith.dev/engine/network"
	"kith.dev/engine/storage"
	"kith.dev/engine/userns"
)

const dnsUser = "kith:dns"

// objects puts what the cluster needs beyond what Kubernetes makes itself: DNS's permissions, Service and
// endpoint, the runtime class of guests, and the default storage class.
func objects(ctx context.Context, client kubernetes.Interface, c *config.Config) error {
	force := metav1.ApplyOptions{FieldManager: "kith-k8s", Force: true}
	var errs []error
	applied := func(_ any, err error) { errs = append(errs, err) }
	const system, dns = "kube-system", "kube-dns"

	applied(client.RbacV1().ClusterRoles().Apply(ctx, rbacac.ClusterRole(dnsUser).WithRules(
		rbacac.PolicyRule().WithAPIGroups("").WithResources("services", "pods", "namespaces").WithVerbs("list", "watch"),
		rbacac.PolicyRule().WithAPIGroups("discovery.k8s.io").WithResources("endpointslices").WithVerbs("list", "watch"),
		rbacac.PolicyRule().WithAPIGroups("multicluster.x-k8s.io").WithResources("serviceimports").WithVerbs("list", "watch"),
		rbacac.PolicyRule().WithAPIGroups("apiextensions.k8s.io").WithResources("customresourcedefinitions").WithResourceNames("serviceimports.multicluster.x-k8s.io").WithVerbs("list", "watch"),
	), force))
	applied(client.RbacV1().ClusterRoleBindings().Apply(ctx, rbacac.ClusterRoleBinding(dnsUser).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(dnsUser)).
		WithSubjects(rbacac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(dnsUser)), force))

	port := func(name string, protocol corev1.Protocol) *coreac.ServicePortApplyConfiguration {
		return coreac.ServicePort().WithName(name).WithPort(53).WithProtocol(protocol)
	}
	applied(client.CoreV1().Services(system).Apply(ctx, coreac.Service(dns, system).
		WithLabels(map[string]string{"k8s-app": dns, "kubernetes.io/name": "CoreDNS"}).
		WithSpec(coreac.ServiceSpec().WithClusterIP(c.ClusterDNS.String()).
			WithPorts(port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP))), force))
	endpoint := func(name string, protocol corev1.Protocol) *discoveryac.EndpointPortApplyConfiguration {
		return discoveryac.EndpointPort().WithName(name).WithPort(int32(c.DNSPort)).WithProtocol(protocol)
	}
	applied(client.DiscoveryV1().EndpointSlices(system).Apply(ctx, discoveryac.EndpointSlice(dns+"-node", system).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: dns, discoveryv1.LabelManagedBy: "kith-k8s"}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithPorts(endpoint("dns", corev1.ProtocolUDP), endpoint("dns-tcp", corev1.ProtocolTCP)).
		WithEndpoints(discoveryac.Endpoint().WithAddresses(c.NodeIP.String()).WithNodeName(c.NodeName).
			WithConditions(discoveryac.EndpointConditions().WithReady(true))), force))
	return errors.Join(append(errs, runtimeClasses(ctx, client, containerd.FindNVIDIA("/") != ""), storageClass(ctx, client))...)
}

// runtimeClasses are those of guests, and that of NVIDIA's runtime, where there is one. Without it guests that need it are refused, and do not
// start in vain. Somebody else's class of the name nvidia stays as it is: the handler of one cannot be changed.
func runtimeClasses(ctx context.Context, client kubernetes.Interface, nvidia bool) error {
	classes := client.NodeV1().RuntimeClasses()
	// They name no nodes, for guests may go on to virtual ones: kithd keeps each to nodes where a fence is alive. Its guestnet has it the same.
	guests := func(name string) error {
		_, err := classes.Apply(ctx, nodeac.RuntimeClass(name).WithHandler(name), metav1.ApplyOptions{FieldManager: "kith-k8s", Force: true})
		return err
	}
	err := guests(network.GuestRuntime)
	if !nvidia {
		if gone := classes.Delete(ctx, network.GuestNVIDIARuntime, metav1.DeleteOptions{}); !apierrors.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
		return err
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: network.NVIDIARuntime}, Handler: network.NVIDIARuntime}
	if _, there := classes.Create(ctx, class, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(there) {
		err = errors.Join(err, there)
	}
	return errors.Join(err, guests(network.GuestNVIDIARuntime))
}

// joinObjects lets nodes join, or strangers no longer ask.
func (s *server) joinObjects(ctx context.Context) error {
	c := s.config
	if !c.Agents {
		return join.Withdraw(ctx, s.client)
	}
	ca, err := os.ReadFile(filepath.Join(pkiDir(c), "ca.crt"))
	if err != nil {
		return err
	}
	return join.Objects(ctx, s.client, join.Cluster{
		Pods: c.ClusterCIDR, Services: c.ServiceCIDR, DNS: c.ClusterDNS, DNSPort: c.DNSPort, Server: c.NodeName, ServerIP: c.NodeIP, ServerLAN: c.AtLAN(),
	}, ca, c.Port)
}

// reserve makes the node before its kubelet does, with its range, where ranges are given out: it is written into the network of the pods here, and
// must not be another node's.
func (s *server) reserve(ctx context.Context) error {
	if !s.config.Agents {
		return nil
	}
	node := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: s.config.PodCIDR.String(), PodCIDRs: []string{s.config.PodCIDR.String()}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "Starting", Message: "the kubelet is about to start"}}
	node.Name, node.Labels = s.config.NodeName, map[string]string{corev1.LabelHostname: s.config.NodeName}
	_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// storageClass makes the class once. Whether it is the default, and whether its volumes may grow, is the owner's choice from then on.
func storageClass(ctx context.Context, client kubernetes.Interface) error {
	is, err := client.StorageV1().StorageClasses().Get(ctx, storage.Class, metav1.GetOptions{})
	if err == nil && is.AllowVolumeExpansion == nil { // it is of a Kith whose volumes did not grow
		_, err = client.StorageV1().StorageClasses().Patch(ctx, storage.Class, types.MergePatchType, []byte(`{"allowVolumeExpansion":true}`), metav1.PatchOptions{})
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.StorageV1().StorageClasses().Apply(ctx, storageac.StorageClass(storage.Class).
		WithAnnotations(map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}).
		WithProvisioner(storage.Provisioner).
		WithReclaimPolicy(corev1.PersistentVolumeReclaimDelete).
		WithAllowVolumeExpansion(true).
		WithVolumeBindingMode(storagev1.VolumeBindingWaitForFirstConsumer),
		metav1.ApplyOptions{FieldManager: "kith-k8s", Force: true})
	return err
}

// keepObjects applies the objects until it has worked, then notes the node's pod range when the node is there. Permitted is closed
// when DNS has its permissions: at the first start it would only be refused without.
func (s *server) keepObjects(ctx context.Context, permitted chan<- struct{}) error {
	first, ready := true, s.begin("objects of the cluster")
	if err := s.insist(ctx, "objects of the cluster", func() error {
		err := errors.Join(objects(ctx, s.client, s.config), s.joinObjects(ctx))
		if first { // what fails now may have worked at an earlier start, and a cluster needs its DNS
			first = false
			ready()
			close(permitted)
		}
		return err
	}); err != nil {
		return nil // ctx ended
	}
	_ = s.insist(ctx, "the resource metrics API", func() error {
		return metrics.Objects(ctx, s.client, s.apiServices, s.config.ResourceMetrics)
	})
	ranges := []netip.Prefix{s.config.PodCIDR}
	if s.config.IPv6.Pods.IsValid() {
		ranges = append(ranges, s.config.IPv6.NodePods())
	}
	list, _ := json.Marshal(ranges)
	patch := fmt.Appendf(nil, `{"spec":{"podCIDR":%q,"podCIDRs":%s}}`, s.config.PodCIDR, list)
	_ = s.insist(ctx, "pod range of the node", func() error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, s.config.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errNotYet
		}
		if err != nil || node.Spec.PodCIDR == s.config.PodCIDR.String() {
			return err
		}
		_, err = s.client.CoreV1().Nodes().Patch(ctx, s.config.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	_ = s.insist(ctx, "user namespaces of the node", func() error { return s.noteUserNamespaces(ctx) })
	<-ctx.Done()
	return nil
}

// noteUserNamespaces says on the node whether guests can have user namespaces of their own; hosting and doctor read it.
func (s *server) noteUserNamespaces(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	word := "yes"
	if err := userns.Try(self, s.config.DataDir, s.config.RunDir); err != nil {
		word = err.Error()
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationUserNamespaces, word)
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.config.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil && word != "yes" {
		s.log.Warn("guests run without user namespaces of their own: root in them is root here, held by capabilities and seccomp alone", "why", word)
	}
	return err
}

var errNotYet = fmt.Errorf("not there yet")

// insist repeats step until it works; it returns an error only when ctx has ended.
func (s *server) insist(ctx context.Context, what string, step func() error) error {
	growing := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 100, Cap: 10 * time.Second}
	return growing.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := step()
		if err != nil && err != errNotYet && ctx.Err() == nil {
			s.log.Warn("trying again", "what", what, "err", err)
		}
		return err == nil, nil
	})
}

// biggestSummary is what is read of a kubelet's answer. It has a few kilobytes for each pod.
const biggestSummary = 8 << 20

// resourceMetrics gives what has the API server serve metrics.k8s.io, or nil. The listers are those of informers that the
// authorizer of nodes runs in any case.
func (s *server) resourceMetrics() func(*genericapiserver.GenericAPIServer, informers.SharedInformerFactory) error {
	if !s.config.ResourceMetrics {
		return nil
	}
	metrics.Register()
	return func(api *genericapiserver.GenericAPIServer, informers informers.SharedInformerFactory) error {
		core := informers.Core().V1()
		return metrics.Install(api, metrics.New(s.summary, core.Pods().Lister(), core.Nodes().Lister(), s.log))
	}
}

// summary asks a node's kubelet through the API server, which knows the way to each and has the certificates.
func (s *server) summary(ctx context.Context, node string) ([]byte, error) {
	body, err := s.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").
		Param("only_cpu_and_memory", "true").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, biggestSummary+1))
	if err == nil && len(b) > biggestSummary {
		err = fmt.Errorf("the answer has more than %d bytes", biggestSummary)
	}
	return b, err
}

package exposure

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owner is under which name the API server notes who wrote a status (field management, KEP-555). A status is ours if it does.
const owner = "kith-exposure"

// port is what can be given to one service only.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// String is as kubectl writes a port.
func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// step is a service whose status should say something else, or which gets nothing for a reason.
type step struct {
	service *corev1.Service
	ingress []string // addresses
	write   bool     // the status does not say that yet
	refused string   // why there is nothing for a service that wants it
}

// plan decides which services get the laptop's addresses; without addresses none do. A service that has its ports keeps them; of the others the
// oldest comes first. guests reports whether a namespace is another cluster's. busy reports whether a program of the laptop listens on a
// port: it is checked before a port is given, since afterwards kube-proxy takes all its traffic.
func plan(services []corev1.Service, addresses []netip.Addr, guests func(namespace string) bool, busy func(port) bool) (steps []step) {
	var give []string
	for _, a := range addresses {
		give = append(give, a.String())
	}
	var wanting []*corev1.Service
	for i := range services {
		s := &services[i]
		switch {
		case wants(s) && len(give) > 0 && (ours(s) || len(s.Status.LoadBalancer.Ingress) == 0):
			wanting = append(wanting, s)
		case ours(s):
			steps = append(steps, step{service: s, write: true})
		}
	}
	slices.SortFunc(wanting, func(a, b *corev1.Service) int {
		return cmp.Or(first(ours(a), ours(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	taken := map[port]string{}
	for _, s := range wanting {
		is := step{service: s}
		if guests(s.Namespace) {
			is.refused = "its namespace is another cluster's"
		}
		for _, p := range ports(s) {
			if by := taken[p]; by != "" && is.refused == "" {
				is.refused = fmt.Sprintf("port %s of this laptop is that of the service %s; give this one another port, or delete that one", p, by)
			} else if is.refused == "" && !ours(s) && busy(p) {
				is.refused = fmt.Sprintf("port %s of this laptop is in use by another program; give this service another port, or end that program", p)
			}
		}
		if is.refused == "" {
			is.ingress = give
			for _, p := range ports(s) {
				taken[p] = s.Namespace + "/" + s.Name
			}
		}
		if is.write = !slices.Equal(ingress(s), is.ingress); is.write || is.refused != "" {
			steps = append(steps, is)
		}
	}
	return steps
}

func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// wants reports whether a service waits for an address, and for no other's.
func wants(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// ours reports whether a service's status has addresses from here.
func ours(s *corev1.Service) bool {
	return len(s.Status.LoadBalancer.Ingress) > 0 && slices.ContainsFunc(s.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == owner && f.Subresource == "status"
	})
}

func ports(s *corev1.Service) (list []port) {
	for _, p := range s.Spec.Ports {
		list = append(list, port{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port})
	}
	return list
}

func ingress(s *corev1.Service) (list []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, i.IP)
	}
	return list
}

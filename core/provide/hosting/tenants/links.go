package tenants

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/provide/hosting/guests"
)

// The kubelet tells a pod in variables where the services of its namespace are, and knows the twins' addresses only. So guests have these
// variables from a ConfigMap, with the addresses that their services have at home; it carries no label of Kith's, and so no consumer writes it.

// maxLinks bounds the variables of a namespace, in bytes; programs cannot be started with many more.
const maxLinks = 256 << 10

// tellLinks writes what changed. believed are services by namespace.
func (s *services) tellLinks(ctx context.Context, believed map[string][]*corev1.Service) error {
	told := map[types.UID][sha256.Size]byte{}
	for _, tw := range s.tenants.contracts.Twins() {
		if tw.Leaving {
			continue
		}
		data := variables(believed[tw.Name])
		text, _ := json.Marshal(data) // sorted
		told[tw.UID] = sha256.Sum256(text)
		if was, ok := s.links[tw.UID]; ok && was == told[tw.UID] {
			continue
		}
		var err error
		if len(data) > 0 {
			err = s.tenants.apply(ctx, corev1ac.ConfigMap(guests.Links, tw.Name).WithData(data))
		} else {
			err = s.tenants.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tw.Name, Name: guests.Links}})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // else it has just gone
			return fmt.Errorf("tell guests where the services of namespace %s are: %w", tw.Name, err)
		}
	}
	s.links = told
	return nil
}

// variables are those that a kubelet gives the pods of a namespace with these services (k8s.io/kubernetes/pkg/kubelet/envvars).
func variables(services []*corev1.Service) map[string]string {
	slices.SortFunc(services, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	size, all := 0, map[string]string{}
	for _, service := range services {
		if service.Name == kinds.APIServerAbroad || len(service.Spec.Ports) == 0 {
			continue
		}
		one, name, ip := map[string]string{}, variable(service.Name), service.Annotations[kinds.AnnotationClusterIP]
		for i := range service.Spec.Ports {
			p := &service.Spec.Ports[i]
			port, protocol := strconv.Itoa(int(p.Port)), string(p.Protocol)
			if protocol == "" {
				protocol = string(corev1.ProtocolTCP)
			}
			url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
			if i == 0 {
				one[name+"_SERVICE_HOST"], one[name+"_SERVICE_PORT"], one[name+"_PORT"] = ip, port, url
			}
			if p.Name != "" {
				one[name+"_SERVICE_PORT_"+variable(p.Name)] = port
			}
			this := name + "_PORT_" + port + "_" + strings.ToUpper(protocol)
			one[this], one[this+"_PROTO"], one[this+"_PORT"], one[this+"_ADDR"] = url, strings.ToLower(protocol), port, ip
		}
		for name, value := range one {
			size += len(name) + len(value)
		}
		if size > maxLinks {
			break
		}
		maps.Copy(all, one)
	}
	return all
}

// variable is a name as one of a variable has it.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

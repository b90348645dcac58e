package guests

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/net/netplan"
)

// ToHome gives a guest's status the addresses by which its home knows the guest; those that home does not know are left out.
func ToHome(s *corev1.PodStatus, t netplan.Translation) {
	if len(t) == 0 {
		return
	}
	told := s.PodIPs
	s.PodIP, s.PodIPs = "", nil
	for _, ip := range told {
		here, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		if home, ok := t.Home(here); ok {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: home.String()})
		}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// apiNames stand in the certificate of each API server; they are names of home's here.
var apiNames = []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"}

// leadHome has a guest that was told the service address of its home's API server find that by a name: home's service addresses lead nowhere
// here, and the twin's is in no certificate.
func (r *Reconciler) leadHome(ctx context.Context, pod *corev1.Pod) error {
	var twin corev1.Service
	err := r.live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: kinds.APIServerAbroad}, &twin)
	home, here := twin.Annotations[kinds.AnnotationClusterIP], twin.Spec.ClusterIP
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for the way to the API server of home: %w", err)
	}
	if home == "" || here == "" || here == corev1.ClusterIPNone {
		return nil // there is none
	}
	eachContainer(&pod.Spec, func(c *corev1.Container) {
		c.Env = slices.Clone(c.Env)
		for i, env := range c.Env {
			if strings.HasPrefix(env.Name, "KUBERNETES_") && (env.Value == home || env.Value == "tcp://"+home+":443") { // reflection says so
				c.Env[i].Value = strings.Replace(env.Value, home, apiNames[0], 1)
			}
		}
	})
	pod.Spec.HostAliases = append(slices.Clone(pod.Spec.HostAliases), corev1.HostAlias{IP: here, Hostnames: apiNames})
	return nil
}

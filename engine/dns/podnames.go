package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// podZone ends the names of pods by their addresses: 10-42-0-5.shop.pod.cluster.local.
const podZone = ".pod.cluster.local."

const (
	podTTL     = 5 * time.Second
	podTimeout = 2 * time.Second
)

// podNames is a CoreDNS plugin that answers the names of pods by their addresses, for pods that are there. CoreDNS's own way, "pods
// verified", is a watch of all pods: a tenth of what the API server computes when pods come and go, for names that hardly anybody asks.
type podNames struct {
	next  plugin.Handler
	there podFinder
}

// podFinder reports whether a namespace has a pod of that address.
type podFinder func(ctx context.Context, namespace string, ip netip.Addr) (bool, error)

// podThere asks the API server.
func podThere(client kubernetes.Interface) podFinder {
	return func(ctx context.Context, namespace string, ip netip.Addr) (bool, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector:   fields.AndSelectors(fields.OneTermEqualSelector("status.podIP", ip.String()), fields.OneTermNotEqualSelector("status.phase", "Succeeded"), fields.OneTermNotEqualSelector("status.phase", "Failed")).String(),
			ResourceVersion: "0", // out of the API server's memory
		})
		return err == nil && len(list.Items) > 0, err
	}
}

// Name implements plugin.Handler.
func (podNames) Name() string { return "podnames" }

// ServeDNS implements plugin.Handler.
func (p podNames) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if len(r.Question) != 1 {
		return plugin.NextOrFailure(p.Name(), p.next, ctx, w, r)
	}
	asked := r.Question[0]
	ip, namespace, ok := podName(asked.Name)
	if !ok {
		return plugin.NextOrFailure(p.Name(), p.next, ctx, w, r)
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	there, err := p.there(ctx, namespace, ip)
	if err != nil {
		return dns.RcodeServerFailure, err
	}
	if !there {
		return plugin.NextOrFailure(p.Name(), p.next, ctx, w, r) // which knows no pods, and says so with the zone's SOA
	}
	m := new(dns.Msg).SetReply(r)
	m.Authoritative = true
	head := dns.RR_Header{Name: asked.Name, Rrtype: asked.Qtype, Class: dns.ClassINET, Ttl: uint32(podTTL.Seconds())}
	switch {
	case asked.Qtype == dns.TypeA && ip.Is4():
		m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IP(ip.AsSlice())}}
	case asked.Qtype == dns.TypeAAAA && ip.Is6():
		m.Answer = []dns.RR{&dns.AAAA{Hdr: head, AAAA: net.IP(ip.AsSlice())}}
	}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

// podName splits 10-42-0-5.shop.pod.cluster.local into what it says; false for every other name.
func podName(name string) (ip netip.Addr, namespace string, ok bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(name), podZone)
	if !ok {
		return ip, "", false
	}
	address, namespace, ok := strings.Cut(rest, ".")
	if !ok || len(validation.ValidateNamespaceName(namespace, false)) > 0 {
		return ip, "", false
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(address, "-", "."))
	if err != nil {
		ip, err = netip.ParseAddr(strings.ReplaceAll(address, "-", ":"))
	}
	return ip, namespace, err == nil && ip.Zone() == ""
}

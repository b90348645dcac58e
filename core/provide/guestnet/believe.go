package guestnet

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/kinds"
)

// Range is the range of a home's services, of IPv4 and of IPv6; the zero value of a family is none of it.
type Range [2]netip.Prefix

func (r Range) contains(a netip.Addr) bool {
	return slices.ContainsFunc(r[:], func(p netip.Prefix) bool { return p.Contains(a) })
}

// Believe gives what is believed of the addresses that twins say to have at home: each is unique, within the range that the home named, and there
// are no more than MaxServices of one home; the oldest of several counts. of gives the home whose namespace it is, and that range. leads and left,
// how many were too many, are by home; believed are the twins by namespace.
func Believe(list []corev1.Service, of func(namespace string) (home string, within Range)) (leads map[string]Services, believed map[string][]*corev1.Service, left map[string]int) {
	leads, believed, left = map[string]Services{}, map[string][]*corev1.Service{}, map[string]int{}
	oldest := make([]*corev1.Service, 0, len(list))
	for i := range list {
		oldest = append(oldest, &list[i])
	}
	slices.SortFunc(oldest, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	twins := map[netip.Addr]bool{}
	for _, service := range oldest {
		home, within := of(service.Namespace)
		for _, lead := range leadsOf(service) {
			if twins[lead.here] || !within.contains(lead.home) || leads[home][lead.home].IsValid() {
				continue
			}
			if len(leads[home]) == MaxServices {
				left[home]++
				continue
			}
			if leads[home] == nil {
				leads[home] = Services{}
			}
			leads[home][lead.home], twins[lead.here] = lead.here, true
			if lead.home.Is4() { // the one in variables
				believed[service.Namespace] = append(believed[service.Namespace], service)
			}
		}
	}
	return leads, believed, left
}

// lead is from an address of a service at home to the one of its twin here, of the same family.
type lead struct{ home, here netip.Addr }

func leadsOf(twin *corev1.Service) (list []lead) {
	for _, ip := range twin.Spec.ClusterIPs {
		here, err := netip.ParseAddr(ip)
		home, none := netip.ParseAddr(twin.Annotations[kinds.AddressAnnotation(ip)])
		if err == nil && none == nil && home.Is4() == here.Is4() && home.Zone() == "" {
			list = append(list, lead{home, here})
		}
	}
	return list
}

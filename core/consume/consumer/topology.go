package consumer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// regionLAN is the region of the laptops around, this one among them.
const regionLAN = "lan"

// zoneOf is the failure domain that a peer is, as the value of a label: its name, which no other Peer here has. A peer that is called
// as this cluster is no part of it; no name of a Peer has an underscore.
func zoneOf(peer *v1alpha1.Peer, own string) string {
	if peer.Name != own {
		return peer.Name
	}
	id := strings.ToLower(peer.Spec.ID[:min(len(peer.Spec.ID), 7)])
	return strings.TrimRight(peer.Name[:min(len(peer.Name), validation.LabelValueMaxLength-len(id)-1)], "-.") + "_" + id
}

// regionOf is where a peer was found: on the LAN, in a domain, or, where that is all that is known, how.
func regionOf(peer *v1alpha1.Peer, domains []string) string {
	if peer.Spec.Source == v1alpha1.SourceLAN {
		return regionLAN
	}
	var region string
	for _, name := range append([]string{peer.Spec.DNSName}, peer.Spec.Endpoints...) {
		host, _, err := net.SplitHostPort(name)
		if err != nil && name == peer.Spec.DNSName {
			host = name
		}
		if _, err := netip.ParseAddr(host); err == nil || region != "" {
			continue
		}
		_, region, _ = strings.Cut(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	}
	if region == "" && peer.Spec.Source == v1alpha1.SourceDNS && len(domains) == 1 {
		region = strings.ToLower(strings.TrimSuffix(domains[0], "."))
	}
	if region == "" || len(validation.IsValidLabelValue(region)) > 0 {
		return string(peer.Spec.Source)
	}
	return region
}

// Place is the labels of the topology for the node of a peer, to a cluster that is called own and looks for others in these domains.
func Place(peer *v1alpha1.Peer, own string, domains []string) map[string]string {
	labels := map[string]string{corev1.LabelTopologyZone: zoneOf(peer, own)}
	if region := regionOf(peer, domains); region != "" {
		labels[corev1.LabelTopologyRegion] = region
	}
	return labels
}

// MarkHome gives this machine's node a zone and a region, unless it has some: to spread pods over zones, a scheduler passes over
// nodes without one.
func MarkHome(ctx context.Context, c client.Client, name string) error {
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return fmt.Errorf("label node %s: %w", name, err)
	}
	before := node.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	for key, value := range map[string]string{corev1.LabelTopologyZone: node.Name, corev1.LabelTopologyRegion: regionLAN} {
		if node.Labels[key] == "" {
			node.Labels[key] = value
		}
	}
	if len(node.Labels) == len(before.Labels) {
		return nil
	}
	if err := c.Patch(ctx, &node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	return nil
}

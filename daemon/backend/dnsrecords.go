package backend

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/find/discovery/mdns"
)

// DNSRecords gives what to put into a zone for others to find this cluster by.
func (b *Backend) DNSRecords(_ context.Context, o api.DNSRecordsOptions) (api.DNSRecords, error) {
	zone := dns.Zone{ID: b.Me.ID(), Name: b.Settings.Name, Domain: o.Domain, Host: o.Host, Port: b.Settings.PeerAPIPort, TTL: o.TTL}
	if len(o.Addresses) == 0 {
		var err error
		if zone.Addresses, err = mdns.LANAddresses(b.Settings.Discovery.Interfaces); err != nil {
			return api.DNSRecords{}, internal(err)
		}
	}
	for _, text := range o.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return api.DNSRecords{}, api.Invalid("address", text, "an IP address")
		}
		zone.Addresses = append(zone.Addresses, a)
	}
	records, err := zone.Records()
	if err != nil {
		field, _, _ := strings.Cut(err.Error(), ":")
		return api.DNSRecords{}, &api.Error{Code: api.CodeInvalid, Message: err.Error(), Field: field}
	}
	out := api.DNSRecords{Name: zone.Name, ID: zone.ID.String(), Notes: notesOn(zone.Addresses)}
	if name, err := dns.ParseName(o.Domain); err == nil {
		out.Domain = name.Host + "."
	}
	for _, r := range records {
		out.Records = append(out.Records, api.DNSRecord{Name: r.Name, TTL: uint32(r.TTL / time.Second), Type: r.Type, Data: r.Data})
	}
	return out, nil
}

// notesOn says from where these addresses are not reached.
func notesOn(addresses []netip.Addr) (notes []string) {
	if len(addresses) == 0 {
		return []string{"this machine is on no LAN, so there is no address: give one with --address"}
	}
	for _, a := range addresses {
		if !a.IsPrivate() {
			return nil
		}
	}
	return []string{"these addresses are private: peers elsewhere need one that leads here, given with --address"}
}

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// The forms of records for name servers.
const (
	formZone   = "zone"
	formUpdate = "nsupdate"
)

func (p commands) dnsRecordsCommand() *cobra.Command {
	var o api.DNSRecordsOptions
	form := formZone
	c := p.Things(&cobra.Command{
		Use:   "dns-records [DOMAIN]",
		Short: "Print what to put into a DNS zone for others to find this cluster by",
		Long: `Print what to put into a DNS zone for others to find this cluster by, where no multicast leads: from another network, or from
outside. What is printed goes into the zone of DOMAIN as it is. Without DOMAIN the names are relative, for any zone.

The SRV record at _kith._tcp says which hosts have a cluster, and at which port; the TXT record of a host has the fingerprint of the
cluster's key, so that a name that leads elsewhere leads nowhere; A and AAAA records are the addresses, of which others see a change
within five minutes unless --ttl says otherwise. Several clusters may be in one domain, each with a host of its own.

Others then "kith peer add DOMAIN", or the name of the host when the domain has several clusters, or have DOMAIN in
discovery.dnsDomains of their config.yaml.

--format nsupdate prints input for nsupdate (BIND) or knsupdate (Knot DNS), which replaces what the zone had of this host. There DOMAIN is
the zone itself.`,
		Example: "  kith dns-records example.org\n  kith dns-records example.org --host lab --address 203.0.113.7\n  kith dns-records example.org --host @ --ttl 1m\n  kith dns-records example.org --format nsupdate | nsupdate -k key.conf",
		Args:    program.Between(0, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Domain = args[0]
			}
			if form == formUpdate && o.Domain == "" {
				return &api.Error{Code: api.CodeInvalid, Message: "nsupdate needs to know the zone", Field: "domain", Do: "`kith dns-records DOMAIN --format nsupdate`"}
			}
			records, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.DNSRecords, error) {
				return kithd.DNSRecords(ctx, o)
			})
			return program.Answer(p.Program, records, err, func(r api.DNSRecords) {
				if form == formUpdate {
					fmt.Fprint(p.Out, screen.CleanLines(updates(r)))
				} else {
					fmt.Fprint(p.Out, screen.CleanLines(zoneFile(r)))
				}
			})
		},
	})
	c.Flags().StringVar(&o.Host, "host", "", "what this machine is called in the zone, @ for the domain itself (default the cluster's name)")
	c.Flags().StringSliceVar(&o.Addresses, "address", nil, "address at which others reach this machine; repeat it for several (default those on its LAN)")
	c.Flags().DurationVar(&o.TTL, "ttl", 0, "how long others may keep the records (default 1h, addresses 5m)")
	program.OneOf(c, &form, "format", "", "for which program: %s (default zone)", formZone, formUpdate)
	return c
}

// zoneFile is the records as lines of a zone file (RFC 1035 section 5).
func zoneFile(r api.DNSRecords) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; cluster %s, ID %s\n", r.Name, r.ID)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "; %s\n", n)
	}
	wide := 0
	for _, one := range r.Records {
		wide = max(wide, len(one.Name))
	}
	for _, one := range r.Records {
		fmt.Fprintf(&b, "%-*s %5d IN %-4s %s\n", wide, one.Name, one.TTL, one.Type, one.Data)
	}
	return b.String()
}

// updates is the records as input of nsupdate (RFC 2136). What others have at the domain's own name stays.
func updates(r api.DNSRecords) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; cluster %s, ID %s\n", r.Name, r.ID)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "; %s\n", n)
	}
	fmt.Fprintf(&b, "zone %s\n", r.Domain)
	gone := map[string]bool{}
	remove := func(name, kind string) {
		if !gone[name+kind] {
			gone[name+kind] = true
			fmt.Fprintf(&b, "update delete %s %s\n", name, kind)
		}
	}
	for _, one := range r.Records {
		switch one.Type {
		case "A", "AAAA": // there may be one kind now, and both before
			remove(one.Name, "A")
			remove(one.Name, "AAAA")
		case "TXT":
			remove(one.Name, "TXT")
		}
		fmt.Fprintf(&b, "update add %s %d IN %s %s\n", one.Name, one.TTL, one.Type, one.Data)
	}
	b.WriteString("send\n")
	return b.String()
}

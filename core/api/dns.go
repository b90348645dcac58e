package api

import (
	"net/netip"
	"net/url"
	"time"
)

// DNSRecordsOptions say which zone shall name this cluster, and how.
type DNSRecordsOptions struct {
	Domain    string        // "example.org"; without one, names are relative to whatever zone they are put into
	Host      string        // what this machine is called there; "" is the cluster's name
	Addresses []string      // at which others reach it; none: those on its LAN
	TTL       time.Duration // of all records; 0: an hour, and five minutes for addresses
}

// maxDNSAddresses is how many a host may have there: more are not read by those who look it up.
const maxDNSAddresses = 16

// Query is what ParseDNSRecordsOptions reads.
func (o DNSRecordsOptions) Query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{"domain": o.Domain, "host": o.Host} {
		if value != "" {
			q.Set(key, value)
		}
	}
	for _, a := range o.Addresses {
		q.Add("address", a)
	}
	if o.TTL != 0 {
		q.Set("ttl", o.TTL.String())
	}
	return q
}

// ParseDNSRecordsOptions reads them from a query.
func ParseDNSRecordsOptions(q url.Values) (o DNSRecordsOptions, err error) {
	o = DNSRecordsOptions{Domain: q.Get("domain"), Host: q.Get("host"), Addresses: q["address"]}
	if len(o.Addresses) > maxDNSAddresses {
		return o, &Error{Code: CodeInvalid, Message: "too many addresses: 16 are read at most", Field: "address"}
	}
	for _, a := range o.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			return o, Invalid("address", a, "an IP address")
		}
	}
	if text := q.Get("ttl"); text != "" {
		if o.TTL, err = time.ParseDuration(text); err != nil {
			return o, Invalid("ttl", text, "a time such as 90s or 5m")
		}
	}
	return o, nil
}

// DNSRecords are what to put into a zone for others to find this cluster by.
type DNSRecords struct {
	Name    string          `json:"name"`             // of the cluster
	ID      string          `json:"id"`               // hash of its key
	Domain  string          `json:"domain,omitempty"` // "example.org."; without one, names are relative
	Records List[DNSRecord] `json:"records"`
	Notes   List[string]    `json:"notes"` // sentences on what does not work as it is
}

// DNSRecord is one of them, as in a zone file (RFC 1035).
type DNSRecord struct {
	Name string `json:"name"` // with a dot at its end, or relative
	TTL  uint32 `json:"ttl"`  // seconds
	Type string `json:"type"` // SRV, TXT, A, AAAA
	Data string `json:"data"` // `0 0 6450 lab.example.org.`
}

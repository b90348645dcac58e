package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	resolvConf   = "/etc/resolv.conf"
	dnsTimeout   = 3 * time.Second // for one question to one server
	maxCNAMEs    = 8
	maxServers   = 4
	ednsUDPBytes = 1232 // fits every path unfragmented
)

// resolver asks the system's name servers itself, because package net tells no TTLs.
type resolver struct {
	servers []string // instead of the system's
}

func (r resolver) current() ([]string, error) {
	if len(r.servers) > 0 {
		return r.servers, nil
	}
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("read the name servers: %w", err)
	}
	var out []string
	for _, s := range conf.Servers[:min(len(conf.Servers), maxServers)] {
		out = append(out, net.JoinHostPort(s, conf.Port))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no name server", resolvConf)
	}
	return out, nil
}

func (r resolver) srv(ctx context.Context, name string) ([]*dns.SRV, time.Duration, error) {
	out, ttl, err := query[*dns.SRV](ctx, r, name, dns.TypeSRV)
	slices.SortStableFunc(out, func(a, b *dns.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight))
	})
	return out, ttl, err
}

func (r resolver) addresses(ctx context.Context, name string) (out []netip.Addr, ttl time.Duration, err error) {
	v4, ttl4, err := query[*dns.A](ctx, r, name, dns.TypeA)
	if err != nil {
		return nil, 0, err
	}
	v6, ttl6, err := query[*dns.AAAA](ctx, r, name, dns.TypeAAAA)
	if err != nil {
		return nil, 0, err
	}
	add := func(ip net.IP) {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			out = append(out, addr.Unmap())
		}
	}
	for _, rr := range v4 {
		add(rr.A)
	}
	for _, rr := range v6 {
		add(rr.AAAA)
	}
	return out, min(ttl4, ttl6), nil
}

// query gives the records of one type at a name, and how long that holds. That there are none is an
// answer too; an error means that nobody would say.
func query[T dns.RR](ctx context.Context, r resolver, name string, qtype uint16) ([]T, time.Duration, error) {
	servers, err := r.current()
	if err != nil {
		return nil, 0, err
	}
	var failures []error
	for _, server := range servers {
		reply, err := exchange(ctx, server, name, qtype)
		if err == nil {
			records, ttl := pick[T](reply, name)
			return records, ttl, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", server, err))
	}
	return nil, 0, fmt.Errorf("ask for %s %s: %w", dns.TypeToString[qtype], name, errors.Join(failures...))
}

func exchange(ctx context.Context, server, name string, qtype uint16) (*dns.Msg, error) {
	question := new(dns.Msg).SetQuestion(name, qtype).SetEdns0(ednsUDPBytes, false)
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: dnsTimeout}
		reply, _, err := client.ExchangeContext(ctx, question, server)
		if err != nil {
			return nil, err
		}
		if len(reply.Question) != 1 || !strings.EqualFold(reply.Question[0].Name, name) || reply.Question[0].Qtype != qtype {
			return nil, errors.New("answers another question")
		}
		if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
			return nil, errors.New(dns.RcodeToString[reply.Rcode])
		}
		if !reply.Truncated {
			return reply, nil
		}
	}
	return nil, errors.New("answer truncated over TCP too")
}

// pick follows the aliases in an answer to the records asked for.
func pick[T dns.RR](reply *dns.Msg, name string) (out []T, ttl time.Duration) {
	ttl = dnsMax
	shorten := func(rr dns.RR) { ttl = min(ttl, time.Duration(rr.Header().Ttl)*time.Second) }
	for range maxCNAMEs {
		alias := ""
		for _, rr := range reply.Answer {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			switch rr := rr.(type) {
			case *dns.CNAME:
				shorten(rr)
				alias = rr.Target
			case T:
				shorten(rr)
				out = append(out, rr)
			}
		}
		if len(out) > 0 {
			return out, ttl
		}
		if alias == "" {
			break
		}
		name = alias
	}
	ttl = min(ttl, dnsNegative)
	for _, rr := range reply.Ns { // RFC 2308 section 5
		if soa, ok := rr.(*dns.SOA); ok {
			shorten(rr)
			ttl = min(ttl, time.Duration(soa.Minttl)*time.Second)
		}
	}
	return nil, ttl
}

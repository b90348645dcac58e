package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	dnsNegative    = 5 * time.Minute // how long "there are none" holds that tells no time
	dnsNegativeMax = 3 * time.Hour   // how long at most (RFC 2308 section 5)
	maxCNAMEs      = 8
	maxAnswer      = 64 // of one answer; the first in their order, not in the server's, which is another every time
)

// question is what a name server is asked.
type question struct {
	name  string // in lower case, with the dot at the end
	qtype uint16
}

func (q question) String() string { return dns.TypeToString[q.qtype] + " " + q.name }

// answer is what a name server said: the records of the type that was asked for, none if it knows of none, and how long that holds.
type answer struct {
	records []dns.RR
	ttl     time.Duration
	server  string
}

// of gives the records of a type.
func of[T dns.RR](records []dns.RR) (out []T) {
	for _, rr := range records {
		if t, ok := rr.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// errOther is that a message is no answer to the question, which proves nothing but that somebody sent it.
var errOther = errors.New("it answers another question")

// failure is that a server has no answer. Basic says that it may know a question without extensions (EDNS, RFC 6891 section 7).
type failure struct {
	rcode int
	basic bool
}

func (f failure) Error() string {
	words := map[int]string{
		dns.RcodeServerFailure: "the servers of that zone do not answer it, or not validly",
		dns.RcodeRefused:       "it does not answer this machine",
		dns.RcodeFormatError:   "it does not understand the question",
	}
	name := dns.RcodeToString[f.rcode]
	if name == "" {
		name = fmt.Sprintf("code %d", f.rcode)
	}
	if w := words[f.rcode]; w != "" {
		return name + " (" + w + ")"
	}
	return name
}

var errTruncated = errors.New("the answer is too long")

// read takes from a message what answers q: records at its name, or at the names that this one is an alias of. Nothing else in the
// message counts, so that nobody says anything of names that he was not asked for. id is that of the question.
func read(m *dns.Msg, id uint16, q question) (answer, error) {
	if m.Id != id || !m.Response {
		return answer{}, errOther
	}
	fails := m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError
	same := len(m.Question) == 1 && strings.EqualFold(m.Question[0].Name, q.name) && m.Question[0].Qtype == q.qtype && m.Question[0].Qclass == dns.ClassINET
	switch {
	case !same && !(fails && len(m.Question) == 0):
		return answer{}, errOther
	case fails:
		return answer{}, failure{m.Rcode, m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented || m.Rcode == dns.RcodeBadVers}
	case m.Truncated:
		return answer{}, errTruncated
	}
	name, a := q.name, answer{ttl: dnsMax}
	for range maxCNAMEs {
		alias := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, name) {
				continue
			}
			if h.Rrtype == q.qtype {
				a.ttl = min(a.ttl, ttlOf(h))
				a.records = append(a.records, rr)
			} else if c, ok := rr.(*dns.CNAME); ok {
				a.ttl = min(a.ttl, ttlOf(h))
				alias = c.Target
			}
		}
		if len(a.records) > 0 {
			a.records = least(a.records)
			return a, nil
		}
		if alias == "" {
			break
		}
		name = alias
	}
	a.ttl = min(a.ttl, negative(m, name))
	return a, nil
}

// negative is how long it holds that there are none (RFC 2308 section 5): as the zone says in which the name would be.
func negative(m *dns.Msg, name string) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok && soa.Hdr.Class == dns.ClassINET && dns.IsSubDomain(soa.Hdr.Name, name) {
			return min(ttlOf(&soa.Hdr), time.Duration(soa.Minttl)*time.Second, dnsNegativeMax)
		}
	}
	return dnsNegative
}

// ttlOf is how long a record holds. One with the highest bit set is 0 (RFC 2181 section 8).
func ttlOf(h *dns.RR_Header) time.Duration {
	if h.Ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(h.Ttl) * time.Second
}

// least keeps the first records in an order of ours, each once.
func least(records []dns.RR) []dns.RR {
	type keyed struct {
		key string
		rr  dns.RR
	}
	all := make([]keyed, 0, len(records))
	for _, rr := range records {
		key := strings.TrimPrefix(rr.String(), rr.Header().String())
		if srv, ok := rr.(*dns.SRV); ok { // the preferred first (RFC 2782)
			key = fmt.Sprintf("%05d %05d %s:%05d", srv.Priority, 65535-int(srv.Weight), strings.ToLower(srv.Target), srv.Port)
		}
		all = append(all, keyed{key, rr})
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	all = slices.CompactFunc(all, func(a, b keyed) bool { return a.key == b.key })
	out := make([]dns.RR, 0, min(len(all), maxAnswer))
	for _, k := range all[:min(len(all), maxAnswer)] {
		out = append(out, k.rr)
	}
	return out
}

// plain undoes the escapes in which a string of a TXT record is shown (RFC 1035 section 5.1): its bytes.
func plain(shown string) string {
	if !strings.Contains(shown, `\`) {
		return shown
	}
	var b strings.Builder
	for i := 0; i < len(shown); i++ {
		c := shown[i]
		if c == '\\' && i+1 < len(shown) {
			digits := shown[i+1:]
			if len(digits) >= 3 && isDigit(digits[0]) && isDigit(digits[1]) && isDigit(digits[2]) {
				n := int(digits[0]-'0')*100 + int(digits[1]-'0')*10 + int(digits[2]-'0')
				b.WriteByte(byte(n))
				i += 3
				continue
			}
			i++
			c = shown[i]
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

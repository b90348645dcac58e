package dns

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	usualNegative = 5 * time.Minute // how long "there are none" holds that tells no time
	maxNegative   = 3 * time.Hour   // how long at most (RFC 2308 section 5)
	maxCNAMEs     = 8
	maxAnswer     = 64 // of one answer; the first in their order, not in the server's, which is another every time
)

// question is what a name server is asked.
type question struct {
	name  string // in lower case, with the dot at the end
	qtype dnsmessage.Type
}

func (q question) String() string { return strings.TrimPrefix(q.qtype.String(), "Type") + " " + q.name }

// answer is what a name server said: the records of the type that was asked for, none if it knows of none, and how long that holds.
type answer struct {
	records []dnsmessage.Resource
	ttl     time.Duration
	server  string
}

// of gives the records of a type.
func of[T dnsmessage.ResourceBody](records []dnsmessage.Resource) (out []T) {
	for _, rr := range records {
		if t, ok := rr.Body.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// errOther is that a message is no answer to the question, which proves nothing but that somebody sent it.
var errOther = errors.New("it answers another question")

// failure is that a server has no answer. Basic says that it may know a question without extensions (EDNS, RFC 6891 section 7).
type failure struct {
	rcode dnsmessage.RCode
	basic bool
}

func (f failure) Error() string {
	switch f.rcode {
	case dnsmessage.RCodeServerFailure:
		return "SERVFAIL (the servers of that zone do not answer it, or not validly)"
	case dnsmessage.RCodeRefused:
		return "REFUSED (it does not answer this machine)"
	case dnsmessage.RCodeFormatError:
		return "FORMERR (it does not understand the question)"
	case dnsmessage.RCodeNotImplemented:
		return "NOTIMP"
	case rcodeBadVersion:
		return "BADVERS"
	}
	return fmt.Sprintf("code %d", f.rcode)
}

// rcodeBadVersion is of a server that knows another version of the extensions (RFC 6891 section 9).
const rcodeBadVersion dnsmessage.RCode = 16

var errTruncated = errors.New("the answer is too long")

// decode reads a packet. A record that is not in order, as one whose name has a dot within a label, is left out.
func decode(packet []byte) (*dnsmessage.Message, error) {
	var p dnsmessage.Parser
	m := new(dnsmessage.Message)
	var err error
	if m.Header, err = p.Start(packet); err != nil {
		return nil, err
	}
	if m.Questions, err = p.AllQuestions(); err != nil {
		return nil, err
	}
	for _, section := range []struct {
		to   *[]dnsmessage.Resource
		next func() (dnsmessage.Resource, error)
		skip func() error
	}{
		{&m.Answers, p.Answer, p.SkipAnswer}, {&m.Authorities, p.Authority, p.SkipAuthority}, {&m.Additionals, p.Additional, p.SkipAdditional},
	} {
		for {
			before := p
			rr, err := section.next()
			if errors.Is(err, dnsmessage.ErrSectionDone) {
				break
			}
			if err == nil {
				*section.to = append(*section.to, rr)
				continue
			}
			p = before
			if err := section.skip(); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// read takes from a message what answers q: records at its name, or at the names that this one is an alias of. Nothing else in the
// message counts, so that nobody says anything of names that he was not asked for. id is that of the question.
func read(m *dnsmessage.Message, id uint16, q question) (answer, error) {
	if m.ID != id || !m.Response {
		return answer{}, errOther
	}
	rcode := m.RCode
	for _, rr := range m.Additionals {
		if rr.Header.Type == dnsmessage.TypeOPT {
			rcode = rr.Header.ExtendedRCode(rcode)
		}
	}
	fails := rcode != dnsmessage.RCodeSuccess && rcode != dnsmessage.RCodeNameError
	same := len(m.Questions) == 1 && isNamed(m.Questions[0].Name, q.name) && m.Questions[0].Type == q.qtype && m.Questions[0].Class == dnsmessage.ClassINET
	switch {
	case !same && !(fails && len(m.Questions) == 0):
		return answer{}, errOther
	case fails:
		basic := rcode == dnsmessage.RCodeFormatError || rcode == dnsmessage.RCodeNotImplemented || rcode == rcodeBadVersion
		return answer{}, failure{rcode, basic}
	case m.Truncated:
		return answer{}, errTruncated
	}
	name, a := q.name, answer{ttl: maxTTL}
	for range maxCNAMEs {
		alias := ""
		for _, rr := range m.Answers {
			if rr.Header.Class != dnsmessage.ClassINET || !isNamed(rr.Header.Name, name) {
				continue
			}
			if rr.Header.Type == q.qtype {
				a.ttl = min(a.ttl, ttlOf(rr.Header))
				a.records = append(a.records, rr)
			} else if c, ok := rr.Body.(*dnsmessage.CNAMEResource); ok {
				a.ttl = min(a.ttl, ttlOf(rr.Header))
				alias = c.CNAME.String()
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

func isNamed(n dnsmessage.Name, name string) bool { return strings.EqualFold(n.String(), name) }

// negative is how long it holds that there are none (RFC 2308 section 5): as the zone says in which the name would be.
func negative(m *dnsmessage.Message, name string) time.Duration {
	for _, rr := range m.Authorities {
		if soa, ok := rr.Body.(*dnsmessage.SOAResource); ok && rr.Header.Class == dnsmessage.ClassINET && within(name, rr.Header.Name.String()) {
			return min(ttlOf(rr.Header), time.Duration(soa.MinTTL)*time.Second, maxNegative)
		}
	}
	return usualNegative
}

// within reports whether a name is in a zone; both have the dot at the end.
func within(name, zone string) bool {
	return strings.HasSuffix("."+strings.ToLower(name), "."+strings.TrimPrefix(strings.ToLower(zone), "."))
}

// ttlOf is how long a record holds. One with the highest bit set is 0 (RFC 2181 section 8).
func ttlOf(h dnsmessage.ResourceHeader) time.Duration {
	if h.TTL > 1<<31-1 {
		return 0
	}
	return time.Duration(h.TTL) * time.Second
}

// least keeps the first records in an order of ours, each once.
func least(records []dnsmessage.Resource) []dnsmessage.Resource {
	type keyed struct {
		key string
		rr  dnsmessage.Resource
	}
	all := make([]keyed, 0, len(records))
	for _, rr := range records {
		key := rr.Body.GoString()                             // all that it says
		if srv, ok := rr.Body.(*dnsmessage.SRVResource); ok { // the preferred first (RFC 2782)
			key = fmt.Sprintf("%05d %05d %s:%05d", srv.Priority, 65535-int(srv.Weight), strings.ToLower(srv.Target.String()), srv.Port)
		}
		all = append(all, keyed{key, rr})
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	all = slices.CompactFunc(all, func(a, b keyed) bool { return a.key == b.key })
	out := make([]dnsmessage.Resource, 0, min(len(all), maxAnswer))
	for _, k := range all[:min(len(all), maxAnswer)] {
		out = append(out, k.rr)
	}
	return out
}

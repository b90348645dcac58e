package mdns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

// What goes over the wire: RFC 6762 (multicast DNS) carrying RFC 6763 (service discovery).
const (
	serviceName = "_kith._tcp.local."
	metaName    = "_services._dns-sd._udp.local." // RFC 6763 section 9, asked by browsers of everything
	cacheFlush  = 1 << 15                         // in the class of a record only its owner has
	unicastBit  = 1 << 15                         // in the class of a question

	// recordTTL is how long a laptop that vanished without a goodbye stays in view. RFC 6762 section 10
	// suggests 120 s for addresses and 75 min for the rest; one packet carries all of ours, so one value.
	recordTTL = 5 * time.Minute

	maxPacket    = 9000 // RFC 6762 section 17, with headers
	maxQuestions = 64   // looked at in one packet
	maxRecords   = 256
	maxInstances = 32
	maxPayload   = 1200 // of what we send: fits any LAN unfragmented
)

// message is a received packet, reduced to what concerns us.
type message struct {
	response  bool
	truncated bool          // more known answers follow in another packet
	browse    bool          // asks for all instances of our service
	meta      bool          // asks which services there are
	asked     []identity.ID // instances asked for by name
	known     []identity.ID // instances the asker knows well enough
	hellos    []hello
	byes      []identity.ID
}

// hello is one instance announced in one packet. Records spread over several packets are not joined: we
// send them together, and what is not joined cannot be mixed from two senders' packets.
type hello struct {
	discovery.TXT
	ttl       time.Duration
	addresses []netip.AddrPort
}

func instanceName(id identity.ID) string { return id.Compact() + "." + serviceName }
func hostName(id identity.ID) string     { return id.Compact() + ".local." }

// instanceID reads the ID an instance's name begins with.
func instanceID(name string) (identity.ID, bool) {
	label, ok := strings.CutSuffix(name, "."+serviceName)
	if !ok || len(label) != 56 {
		return identity.ID{}, false
	}
	id, err := identity.ParseID(label)
	return id, err == nil
}

// parse reads a packet. Malformed ones are an error as a whole; beyond the bounds above, the rest of a
// packet is not looked at.
func parse(packet []byte) (message, error) {
	var p dnsmessage.Parser
	head, err := p.Start(packet)
	if err != nil {
		return message{}, err
	}
	if head.OpCode != 0 || head.RCode != dnsmessage.RCodeSuccess { // RFC 6762 sections 18.3, 18.11
		return message{}, fmt.Errorf("opcode %d, rcode %d", head.OpCode, head.RCode)
	}
	m := message{response: head.Response, truncated: head.Truncated}
	if err := m.readQuestions(&p); err != nil {
		return message{}, err
	}
	r := records{ports: map[identity.ID]srv{}, txts: map[identity.ID]discovery.TXT{}, hosts: map[string][]netip.Addr{}, ttls: map[identity.ID]uint32{}}
	if err := r.read(&p); err != nil {
		return message{}, err
	}
	if !m.response {
		for id, ttl := range r.ttls {
			if time.Duration(ttl)*time.Second >= recordTTL/2 { // RFC 6762 section 7.1
				m.known = append(m.known, id)
			}
		}
		return m, nil
	}
	m.hellos, m.byes = r.instances()
	return m, nil
}

func (m *message) readQuestions(p *dnsmessage.Parser) error {
	for range maxQuestions {
		q, err := p.Question()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return err
		}
		if q.Class&^unicastBit != dnsmessage.ClassINET && q.Class&^unicastBit != dnsmessage.ClassANY {
			continue
		}
		name := strings.ToLower(q.Name.String())
		ptr := q.Type == dnsmessage.TypePTR || q.Type == dnsmessage.TypeALL
		switch {
		case name == serviceName && ptr:
			m.browse = true
		case name == metaName && ptr:
			m.meta = true
		default:
			if host, ok := strings.CutSuffix(name, ".local."); ok && len(host) == 56 {
				name = host + "." + serviceName // its addresses are in the same packet anyway
			}
			if id, ok := instanceID(name); ok {
				m.asked = append(m.asked, id)
			}
		}
	}
	return p.SkipAllQuestions()
}

type srv struct {
	port   uint16
	target string
}

// records collects those of one packet.
type records struct {
	seen  int
	ttls  map[identity.ID]uint32 // of our service's PTR records; 0 is a goodbye
	ports map[identity.ID]srv
	txts  map[identity.ID]discovery.TXT
	hosts map[string][]netip.Addr
}

// read goes through the answers and the additional records; the authority section, in between, holds
// only the proposals of probes.
func (r *records) read(p *dnsmessage.Parser) error {
	if err := r.section(p, p.AnswerHeader, p.SkipAnswer); err != nil {
		return err
	}
	if r.seen >= maxRecords {
		return nil
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return err
	}
	return r.section(p, p.AdditionalHeader, p.SkipAdditional)
}

func (r *records) section(p *dnsmessage.Parser, next func() (dnsmessage.ResourceHeader, error), skip func() error) error {
	for ; r.seen < maxRecords; r.seen++ {
		h, err := next()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err == nil {
			err = r.record(p, h, skip)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *records) record(p *dnsmessage.Parser, h dnsmessage.ResourceHeader, skip func() error) error {
	name := strings.ToLower(h.Name.String())
	id, ours := instanceID(name)
	if h.Class&^cacheFlush != dnsmessage.ClassINET {
		return skip()
	}
	switch {
	case h.Type == dnsmessage.TypePTR && name == serviceName:
		rr, err := p.PTRResource()
		if err != nil {
			return err
		}
		if id, ok := instanceID(strings.ToLower(rr.PTR.String())); ok && len(r.ttls) < maxInstances {
			r.ttls[id] = h.TTL
		}
	case h.Type == dnsmessage.TypeSRV && ours && len(r.ports) < maxInstances:
		rr, err := p.SRVResource()
		if err != nil {
			return err
		}
		r.ports[id] = srv{rr.Port, strings.ToLower(rr.Target.String())}
	case h.Type == dnsmessage.TypeTXT && ours && len(r.txts) < maxInstances:
		rr, err := p.TXTResource()
		if err != nil {
			return err
		}
		if c, ok := discovery.ParseTXT(rr.TXT); ok && c.ID == id {
			r.txts[id] = c
		}
	case h.Type == dnsmessage.TypeA:
		rr, err := p.AResource()
		if err != nil {
			return err
		}
		r.address(name, netip.AddrFrom4(rr.A))
	case h.Type == dnsmessage.TypeAAAA:
		rr, err := p.AAAAResource()
		if err != nil {
			return err
		}
		if a := netip.AddrFrom16(rr.AAAA); !a.Is4In6() { // what speaks IPv4 has an A record
			r.address(name, a)
		}
	default:
		return skip()
	}
	return nil
}

func (r *records) address(host string, a netip.Addr) {
	if discovery.Dialable(a) && len(r.hosts[host]) < discovery.MaxAddresses && (len(r.hosts) < maxInstances || r.hosts[host] != nil) {
		r.hosts[host] = append(r.hosts[host], a)
	}
}

func (r *records) instances() (hellos []hello, byes []identity.ID) {
	for id, ttl := range r.ttls {
		if ttl == 0 { // RFC 6762 section 10.1
			byes = append(byes, id)
			continue
		}
		c, srv := r.txts[id], r.ports[id]
		addrs := r.hosts[srv.target]
		if c.ID.IsZero() || srv.port == 0 || len(addrs) == 0 {
			continue
		}
		h := hello{TXT: c, ttl: time.Duration(min(ttl, 1<<20)) * time.Second}
		for _, a := range addrs {
			h.addresses = append(h.addresses, netip.AddrPortFrom(a, srv.port))
		}
		hellos = append(hellos, h)
	}
	return hellos, byes
}

// composeHello is the one packet that we announce with and answer every question with: all our records
// for one interface. With ttl 0 it is the goodbye.
func composeHello(c discovery.TXT, port uint16, addrs []netip.Addr, ttl time.Duration) ([]byte, error) {
	service, instance := dnsmessage.MustNewName(serviceName), dnsmessage.MustNewName(instanceName(c.ID))
	host := dnsmessage.MustNewName(hostName(c.ID))
	const own = dnsmessage.ClassINET | cacheFlush
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true, Authoritative: true}, Answers: []dnsmessage.Resource{
		record(service, dnsmessage.ClassINET, ttl, &dnsmessage.PTRResource{PTR: instance}),
		record(instance, own, ttl, &dnsmessage.SRVResource{Port: port, Target: host}),
		record(instance, own, ttl, &dnsmessage.TXTResource{TXT: c.Strings()}),
	}}
	for _, a := range addrs[:min(len(addrs), discovery.MaxAddresses)] {
		if a.Is4() {
			m.Answers = append(m.Answers, record(host, own, ttl, &dnsmessage.AResource{A: a.As4()}))
		} else {
			m.Answers = append(m.Answers, record(host, own, ttl, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	return m.Pack()
}

func record(name dnsmessage.Name, class dnsmessage.Class, ttl time.Duration, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Class: class, TTL: uint32(ttl / time.Second)}, Body: body}
}

// composeMeta answers a browser of everything. It is not part of the hello, because the goodbye must
// not take the service's name away from the others.
func composeMeta() ([]byte, error) {
	meta, service := dnsmessage.MustNewName(metaName), dnsmessage.MustNewName(serviceName)
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true, Authoritative: true}, Answers: []dnsmessage.Resource{
		record(meta, dnsmessage.ClassINET, recordTTL, &dnsmessage.PTRResource{PTR: service}),
	}}
	return m.Pack()
}

// knownAnswer is an instance we need not be told of again, and for how long.
type knownAnswer struct {
	id   identity.ID
	left time.Duration
}

const (
	knownAnswerSize   = 12 + 57 + 2 // header and label, the names compressed
	knownPerPacket    = (maxPayload - 100) / knownAnswerSize
	maxBrowsePackets  = 8
	maxAskedPerPacket = 16
)

// composeBrowse asks who is there, listing those we know (RFC 6762 section 7.1) in as many packets as
// they need (section 7.2), up to a bound; who is not listed just answers once more.
func composeBrowse(known []knownAnswer) (packets [][]byte, err error) {
	known = known[:min(len(known), maxBrowsePackets*knownPerPacket)]
	service := dnsmessage.MustNewName(serviceName)
	for first := true; first || len(known) > 0; first = false {
		n := min(len(known), knownPerPacket)
		m := dnsmessage.Message{Header: dnsmessage.Header{Truncated: n < len(known)}}
		if first {
			m.Questions = []dnsmessage.Question{{Name: service, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}}
		}
		for _, k := range known[:n] {
			instance := dnsmessage.MustNewName(instanceName(k.id))
			m.Answers = append(m.Answers, record(service, dnsmessage.ClassINET, k.left, &dnsmessage.PTRResource{PTR: instance}))
		}
		known = known[n:]
		packet, err := m.Pack()
		if err != nil {
			return nil, err
		}
		packets = append(packets, packet)
	}
	return packets, nil
}

// composeAsk asks for instances by name: is it still there?
func composeAsk(ids []identity.ID) ([]byte, error) {
	var m dnsmessage.Message
	for _, id := range ids {
		m.Questions = append(m.Questions, dnsmessage.Question{
			Name: dnsmessage.MustNewName(instanceName(id)), Type: dnsmessage.TypeSRV, Class: dnsmessage.ClassINET,
		})
	}
	return m.Pack()
}

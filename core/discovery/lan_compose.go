package discovery

import (
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/identity"
)

// composeHello is the one packet that we announce with and answer every question with: all our records
// for one interface. With ttl 0 it is the goodbye.
func composeHello(c card, port uint16, addrs []netip.Addr, ttl time.Duration) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Response: true, Authoritative: true})
	b.EnableCompression()
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	instance, err := dnsmessage.NewName(instanceName(c.id))
	if err != nil {
		return nil, err
	}
	service, host := dnsmessage.MustNewName(serviceName), dnsmessage.MustNewName(hostName(c.id))
	head := func(name dnsmessage.Name, class dnsmessage.Class) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name, Class: class, TTL: uint32(ttl / time.Second)}
	}
	const own = dnsmessage.ClassINET | cacheFlush
	if err := b.PTRResource(head(service, dnsmessage.ClassINET), dnsmessage.PTRResource{PTR: instance}); err != nil {
		return nil, err
	}
	if err := b.SRVResource(head(instance, own), dnsmessage.SRVResource{Port: port, Target: host}); err != nil {
		return nil, err
	}
	if err := b.TXTResource(head(instance, own), dnsmessage.TXTResource{TXT: c.txt()}); err != nil {
		return nil, err
	}
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		if a.Is4() {
			err = b.AResource(head(host, own), dnsmessage.AResource{A: a.As4()})
		} else {
			err = b.AAAAResource(head(host, own), dnsmessage.AAAAResource{AAAA: a.As16()})
		}
		if err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// composeMeta answers a browser of everything. It is not part of the hello, because the goodbye must
// not take the service's name away from the others.
func composeMeta() ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Response: true, Authoritative: true})
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	head := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(metaName), Class: dnsmessage.ClassINET, TTL: uint32(recordTTL / time.Second)}
	if err := b.PTRResource(head, dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(serviceName)}); err != nil {
		return nil, err
	}
	return b.Finish()
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
func composeBrowse(known []knownAnswer) ([][]byte, error) {
	known = known[:min(len(known), maxBrowsePackets*knownPerPacket)]
	var packets [][]byte
	for first := true; first || len(known) > 0; first = false {
		n := min(len(known), knownPerPacket)
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Truncated: n < len(known)})
		b.EnableCompression()
		service := dnsmessage.MustNewName(serviceName)
		if err := b.StartQuestions(); err != nil {
			return nil, err
		}
		if first {
			if err := b.Question(dnsmessage.Question{Name: service, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}); err != nil {
				return nil, err
			}
		}
		if err := b.StartAnswers(); err != nil {
			return nil, err
		}
		for _, k := range known[:n] {
			head := dnsmessage.ResourceHeader{Name: service, Class: dnsmessage.ClassINET, TTL: uint32(k.left / time.Second)}
			if err := b.PTRResource(head, dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(instanceName(k.id))}); err != nil {
				return nil, err
			}
		}
		known = known[n:]
		packet, err := b.Finish()
		if err != nil {
			return nil, err
		}
		packets = append(packets, packet)
	}
	return packets, nil
}

// composeAsk asks for instances by name: is it still there?
func composeAsk(ids []identity.ID) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(instanceName(id)), Type: dnsmessage.TypeSRV, Class: dnsmessage.ClassINET}
		if err := b.Question(q); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

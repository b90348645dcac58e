package names

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// question is one that is to be asked in a guest's place.
type question struct {
	tenant *Tenant
	asked  dnsmessage.Question
	here   string // the name that is asked for
	raw    bool   // as it is: the answer is none of this room's business
	ask    []byte // for the cluster's DNS
}

// errNoQuestion: whatever it is, nobody answers it.
var errNoQuestion = errors.New("no question of DNS")

const (
	headerSize = 12
	flagQR     = 0x80 // in the third byte
)

// read reads what a guest asks, and says what to ask in its place; with an answer instead where that is known.
func read(t *Tenant, asked []byte) (q question, answer []byte, err error) {
	var p dnsmessage.Parser
	header, err := p.Start(asked)
	if err != nil || header.Response || len(asked) > mostAsked || binary.BigEndian.Uint16(asked[4:]) != 1 {
		return q, nil, errNoQuestion
	}
	q.tenant = t
	if q.asked, err = p.Question(); err != nil {
		return q, nil, errNoQuestion
	}
	if kind := q.asked.Type; header.OpCode != 0 || kind == dnsmessage.TypeAXFR || kind == typeIXFR {
		return q, q.refusal(header, dnsmessage.RCodeRefused), nil
	}
	here, changed, there := t.here(strings.ToLower(q.asked.Name.String()))
	if !there {
		return q, q.refusal(header, dnsmessage.RCodeNameError), nil
	}
	if q.here, q.raw = here, !changed; q.raw {
		q.ask = append([]byte(nil), asked...)
		return q, nil, nil
	}
	var m dnsmessage.Message
	if err := m.Unpack(asked); err != nil {
		return q, nil, errNoQuestion
	}
	if m.Questions[0].Name, err = dnsmessage.NewName(here); err == nil {
		q.ask, err = m.Pack()
	}
	if err != nil { // longer than a name can be
		return q, q.refusal(header, dnsmessage.RCodeNameError), nil
	}
	return q, nil, nil
}

const typeIXFR dnsmessage.Type = 251

// refusal is an answer without any.
func (q question) refusal(asked dnsmessage.Header, code dnsmessage.RCode) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, OpCode: asked.OpCode, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true, RCode: code, Authoritative: code == dnsmessage.RCodeNameError},
		Questions: []dnsmessage.Question{q.asked},
	}
	b, _ := m.Pack() // what was read can be written
	return b
}

// back is the answer as the guest gets it: with the names and addresses of its home, and no more than most bytes of it.
func (q question) back(answer []byte, most int) ([]byte, error) {
	if q.raw {
		return shortened(answer, most), nil
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, err
	}
	m.Questions = []dnsmessage.Question{q.asked}
	foreign := false
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		for i := range section {
			ok, err := q.change(&section[i])
			if err != nil {
				return nil, err
			}
			foreign = foreign || !ok
		}
	}
	if foreign { // the name of a service of somebody else
		m.RCode, m.Answers, m.Authorities, m.Additionals = dnsmessage.RCodeNameError, nil, nil, nil
	}
	out, err := m.Pack()
	if err == nil && len(out) > most {
		m.Truncated, m.Answers, m.Authorities, m.Additionals = true, nil, nil, nil
		out, err = m.Pack()
	}
	return out, err
}

// change puts home's names and addresses into a record; false when that has a name of somebody else's.
func (q question) change(rr *dnsmessage.Resource) (ours bool, err error) {
	_, _, _, cluster := inside(strings.ToLower(rr.Header.Name.String()))
	ours = true
	if strings.EqualFold(rr.Header.Name.String(), q.here) {
		rr.Header.Name = q.asked.Name
	} else if err = q.rename(&rr.Header.Name, &ours); err != nil {
		return ours, err
	}
	switch body := rr.Body.(type) {
	case *dnsmessage.AResource:
		if cluster {
			body.A = q.tenant.address(netip.AddrFrom4(body.A)).As4()
		}
	case *dnsmessage.PTRResource:
		err = q.rename(&body.PTR, &ours)
	case *dnsmessage.SRVResource:
		err = q.rename(&body.Target, &ours)
	case *dnsmessage.CNAMEResource:
		err = q.rename(&body.CNAME, &ours)
	}
	return ours, err
}

func (q question) rename(name *dnsmessage.Name, ours *bool) error {
	home, ok := q.tenant.home(name.String())
	if !ok {
		*ours = false
		return nil
	}
	to, err := dnsmessage.NewName(home)
	if err == nil {
		*name = to
	}
	return err
}

// shortened is an answer that says that there is more, where it is longer than it may be.
func shortened(answer []byte, most int) []byte {
	if len(answer) <= most {
		return answer
	}
	return truncated(answer)
}

// truncated is an answer to the question in a message which says that it is longer than it could be.
func truncated(m []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(m)
	if err != nil {
		return nil
	}
	asked, _ := p.AllQuestions()
	header.Response, header.RecursionAvailable, header.Truncated = true, true, true
	out, _ := (&dnsmessage.Message{Header: header, Questions: asked}).Pack()
	return out
}

// room is how long an answer by UDP may be (RFC 6891).
func room(asked []byte) int {
	const least = 512
	var m dnsmessage.Message
	if m.Unpack(asked) == nil {
		for _, rr := range m.Additionals {
			if rr.Header.Type == dnsmessage.TypeOPT {
				return min(max(int(rr.Header.Class), least), mostUDP)
			}
		}
	}
	return least
}

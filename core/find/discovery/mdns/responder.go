package mdns

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

// linkKey is one interface in one address family.
type linkKey struct {
	index int
	v6    bool
	zone  string // the interface's name, for link-local addresses
}

// Timing, from RFC 6762 unless said otherwise.
const (
	answerDelayMin = 20 * time.Millisecond // section 6: answers of many are spread
	answerDelayMax = 120 * time.Millisecond
	awaitKnown     = 400 * time.Millisecond // section 7.2: more known answers are on their way
	quietBetween   = time.Second            // section 6: the same records not twice within a second
	announceGap    = time.Second            // section 8.3
	announceTimes  = 2                      // section 8.3
	queryGapFirst  = time.Second            // section 5.2, doubled each time
	queryGapMax    = 15 * time.Minute       // section 5.2 allows an hour; a LAN joined behind a switch tells no link event
	askRefused     = 30 * time.Second       // ours: when strangers were too many to be let in
	maxAskers      = 64
)

// responder is responder and browser on all links: what was heard, what is to be said and when. It knows
// neither sockets nor clocks; packets and times come in, packets go out. Not safe for concurrent use.
type responder struct {
	self  discovery.TXT
	port  uint16
	meta  []byte
	links map[linkKey]*link
	cache *cache
}

type link struct {
	lanInterface
	key        linkKey
	hello, bye []byte

	announceAt time.Time // next unasked announcement; zero: none
	announces  int       // how many were made
	answerAt   time.Time // the answer that is due; zero: none
	askers     map[netip.Addr]bool
	answerMeta bool
	sentAt     time.Time // when our records last went out
	browseAt   time.Time
	browseGap  time.Duration
	browsed    [][]byte  // our last question
	heardAsked time.Time // when another asked what we would
}

// outgoing is a packet to be multicast on a link.
type outgoing struct {
	link   linkKey
	packet []byte
}

func newResponder(self discovery.TXT, port uint16, trusted func(identity.ID) bool) (*responder, error) {
	meta, err := composeMeta()
	if err != nil {
		return nil, err
	}
	return &responder{self: self, port: port, meta: meta, links: map[linkKey]*link{}, cache: newCache(trusted)}, nil
}

// setInterfaces starts anew on every link that is new or changed, and leaves the others alone.
func (s *responder) setInterfaces(now time.Time, interfaces []lanInterface) error {
	want := map[linkKey]lanInterface{}
	for _, i := range interfaces {
		for _, v6 := range []bool{false, true} {
			if i.speaks(v6) {
				want[linkKey{i.index, v6, i.name}] = i
			}
		}
	}
	for key, l := range s.links {
		if i, ok := want[key]; !ok || !i.equal(l.lanInterface) {
			s.cache.linkLost(now, key)
			delete(s.links, key)
		}
	}
	for key, i := range want {
		if s.links[key] != nil {
			continue
		}
		l := &link{lanInterface: i, key: key, browseAt: soon(now), browseGap: queryGapFirst}
		var err error
		if l.hello, err = composeHello(s.self, s.port, i.addresses(), recordTTL); err != nil {
			return err
		}
		if l.bye, err = composeHello(s.self, s.port, nil, 0); err != nil {
			return err
		}
		l.announceAt = soon(now)
		s.links[key] = l
	}
	return nil
}

func soon(now time.Time) time.Time {
	return now.Add(answerDelayMin + rand.N(answerDelayMax-answerDelayMin))
}

// receive takes in one packet. It says whether somebody else announced our own ID, which only a copy of
// our key or a spoofer does. The error says what is wrong with the packet.
func (s *responder) receive(now time.Time, key linkKey, sender netip.Addr, packet []byte) (impostor bool, err error) {
	l := s.links[key]
	if l == nil {
		return false, nil
	}
	own := l.has(sender)
	if own && slices.ContainsFunc(l.browsed, func(p []byte) bool { return bytes.Equal(p, packet) }) {
		return false, nil // our own question, heard back
	}
	m, err := parse(packet)
	if err != nil {
		return false, err
	}
	if !m.response {
		s.asked(now, l, sender, m)
		return false, nil
	}
	for _, h := range m.hellos {
		if h.ID == s.self.ID {
			impostor = impostor || !own
			continue
		}
		if h.addresses = l.onLink(h.addresses); len(h.addresses) == 0 {
			err = fmt.Errorf("%s announces no address on this link", h.ID.Short())
			continue
		}
		s.cache.hear(now, key, sender, h)
	}
	for _, id := range m.byes {
		s.cache.bye(key, sender, id)
	}
	return impostor, err
}

func (s *responder) asked(now time.Time, l *link, sender netip.Addr, m message) {
	knowsUs := slices.Contains(m.known, s.self.ID)
	switch news := knowsNews(m.known, s); { // section 7.3
	case news:
		l.heardAsked = time.Time{} // whom we do not know will not answer this one
	case m.browse:
		l.heardAsked = now
	}
	if !l.has(sender) {
		for _, id := range m.asked {
			s.cache.asked(now, l.key, id)
		}
	}
	if knowsUs && l.askers[sender] { // section 7.2: the list went on in this packet
		if delete(l.askers, sender); len(l.askers) == 0 {
			l.answerAt = time.Time{}
		}
		return
	}
	wantsUs := m.browse && !knowsUs || slices.Contains(m.asked, s.self.ID)
	l.answerMeta = l.answerMeta || m.meta
	if !wantsUs && !m.meta {
		return
	}
	at := soon(now)
	if m.truncated {
		at = at.Add(awaitKnown)
	}
	if quietUntil := l.sentAt.Add(quietBetween); at.Before(quietUntil) {
		at = quietUntil
	}
	l.answerAt = discovery.Earlier(l.answerAt, at)
	if wantsUs {
		if l.askers == nil {
			l.askers = map[netip.Addr]bool{}
		}
		if len(l.askers) < maxAskers {
			l.askers[sender] = true
		} else {
			l.askers[netip.Addr{}] = true // too many to count; none can call it off
		}
	}
}

// knowsNews says whether the asker knows somebody we do not.
func knowsNews(known []identity.ID, s *responder) bool {
	return slices.ContainsFunc(known, func(id identity.ID) bool { return id != s.self.ID && s.cache.entries[id] == nil })
}

// tick says what is to be sent now, and when to be called next (or on a packet; zero: never).
func (s *responder) tick(now time.Time) (out []outgoing, next time.Time, err error) {
	ask, next := s.cache.sweep(now)
	refused := s.cache.refused
	s.cache.refused = false
	for key, l := range s.links {
		due := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
		if due(l.announceAt) {
			l.announces++
			l.announceAt = time.Time{}
			if l.announces < announceTimes {
				l.announceAt = now.Add(announceGap)
			}
			out = append(out, l.say(now))
			if !l.answerMeta {
				l.answerAt = time.Time{}
			}
		}
		if due(l.answerAt) {
			if len(l.askers) > 0 {
				out = append(out, l.say(now))
			}
			if l.answerMeta {
				out = append(out, outgoing{key, s.meta})
			}
			l.answerAt, l.answerMeta, l.sentAt = time.Time{}, false, now
		}
		if again := now.Add(askRefused); refused && l.browseAt.After(again) {
			l.browseAt = again // perhaps the flood is over by then
		}
		if due(l.browseAt) {
			packets, err := s.browse(now, l)
			if err != nil {
				return nil, time.Time{}, err
			}
			out = append(out, packets...)
		}
		for ids := range slices.Chunk(ask[key], maxAskedPerPacket) {
			packet, err := composeAsk(ids)
			if err != nil {
				return nil, time.Time{}, err
			}
			out = append(out, outgoing{key, packet})
		}
		next = discovery.Earlier(discovery.Earlier(discovery.Earlier(next, l.announceAt), l.answerAt), l.browseAt)
	}
	return out, next, nil
}

func (l *link) say(now time.Time) outgoing {
	l.sentAt = now
	clear(l.askers)
	return outgoing{l.key, l.hello}
}

// browse asks for everybody, except when another lately did: answers go to all, so on a LAN of fifty one
// question is enough.
func (s *responder) browse(now time.Time, l *link) (out []outgoing, err error) {
	lately := l.browseGap / 4 // half of the time since our last one
	first := l.browseGap == queryGapFirst
	// A few per cent more or less, so that those who started together do not go on asking together.
	l.browseAt = now.Add(l.browseGap + time.Duration(0.05*rand.Float64()*float64(l.browseGap)))
	l.browseGap = min(2*l.browseGap, queryGapMax)
	if !first && now.Sub(l.heardAsked) < max(lately, queryGapFirst) {
		return nil, nil
	}
	l.browsed, err = composeBrowse(s.cache.known(now, l.key))
	for _, p := range l.browsed {
		out = append(out, outgoing{l.key, p})
	}
	return out, err
}

// goodbye is said when we leave.
func (s *responder) goodbye() (out []outgoing) {
	for _, key := range slices.Collect(maps.Keys(s.links)) {
		out = append(out, outgoing{key, s.links[key].bye})
	}
	return out
}

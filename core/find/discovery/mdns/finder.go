package mdns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/find/discovery"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/trust/identity"
)

// Config says who we are on the LAN.
type Config struct {
	ID   identity.ID
	Name string // the cluster's name, for people; cleaned by discovery.CleanName
	Port uint16 // of the peer API
	// Interfaces to use, as path.Match patterns of names. Empty: every interface of a real LAN.
	Interfaces []string
	// Trusted says whether a peer is one of ours: a flood of strangers cannot displace it. It is called
	// often and must not block. Nil: nobody is.
	Trusted func(identity.ID) bool
	Kernel  *hostnet.Changes
	Log     *slog.Logger
}

// Finder finds clusters on the local network by mDNS and DNS-SD, and lets itself be found.
type Finder struct {
	config   Config
	warnedAt time.Time
}

// New makes the finder; Run starts it.
func New(c Config) *Finder {
	if c.Name = discovery.CleanName(c.Name); c.Name == "" {
		c.Name = c.ID.Short()
	}
	if c.Trusted == nil {
		c.Trusted = func(identity.ID) bool { return false }
	}
	return &Finder{config: c}
}

func (f *Finder) String() string { return "LAN (mDNS)" }

const (
	settle        = 100 * time.Millisecond // after a network change, before looking at it
	eventsBurst   = 256                    // events to others, goodbyes not counted
	eventsSecond  = 20
	warnImpostors = 10 * time.Minute
)

// Run announces this cluster and reports the others until ctx ends; then it says goodbye.
func (f *Finder) Run(ctx context.Context, events chan<- discovery.Event) error {
	responder, err := newResponder(discovery.TXT{ID: f.config.ID, Name: f.config.Name}, f.config.Port, f.config.Trusted)
	if err != nil {
		return fmt.Errorf("discovery on the LAN: %w", err)
	}
	sockets := map[bool]*socket{}
	packets := make(chan incoming, 512)
	failed := make(chan error, 2)
	for _, v6 := range []bool{false, true} {
		s, err := openSocket(v6)
		if err != nil && v6 {
			f.config.Log.Debug("no discovery over IPv6", "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("discovery on the LAN: %w", err)
		}
		defer s.Close()
		sockets[v6] = s
		go func() {
			if err := s.read(packets); err != nil {
				failed <- err
			}
		}()
	}
	changed, stop, err := f.config.Kernel.Listen(hostnet.Links | hostnet.Addresses)
	if err != nil {
		return fmt.Errorf("discovery on the LAN: %w", err)
	}
	defer stop()

	var (
		interfaces []lanInterface
		lookAt     = time.Now() // when to look at the interfaces
		tickAt     = time.Time{}
		limit      = rate.NewLimiter(eventsSecond, eventsBurst)
		timer      = time.NewTimer(0)
	)
	defer timer.Stop()
	for {
		now := time.Now()
		if !lookAt.IsZero() && !now.Before(lookAt) {
			lookAt = time.Time{}
			if interfaces, err = f.look(now, responder, sockets, interfaces); err != nil {
				f.config.Log.Warn("discovery cannot see the network interfaces, will look again", "err", err)
				lookAt = now.Add(5 * time.Second)
			}
			tickAt = now
		}
		if !tickAt.IsZero() && !now.Before(tickAt) {
			var out []outgoing
			if out, tickAt, err = responder.tick(now); err != nil {
				return fmt.Errorf("discovery on the LAN: %w", err)
			}
			f.send(sockets, out)
		}
		// Offer the next event, if there is one and the others have not had too many.
		var offer chan<- discovery.Event
		wake := discovery.Earlier(tickAt, lookAt)
		event, ok := responder.cache.pending()
		free := event.Gone || f.config.Trusted(event.ID)
		if ok && (free || limit.TokensAt(now) >= 1) {
			offer = events
		} else if ok {
			wake = discovery.Earlier(wake, now.Add(time.Second/eventsSecond))
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}

		select {
		case <-ctx.Done():
			f.leave(responder, sockets)
			return nil
		case err := <-failed:
			return fmt.Errorf("discovery on the LAN: %w", err)
		case <-timer.C:
		case _, ok := <-changed:
			if !ok {
				return fmt.Errorf("discovery on the LAN: %w", errSilent)
			}
			lookAt = discovery.Earlier(lookAt, time.Now().Add(settle))
		case offer <- event:
			responder.cache.delivered(event)
			if !free {
				limit.AllowN(time.Now(), 1)
			}
		case in := <-packets:
			f.receive(responder, interfaces, in)
			tickAt = discovery.Earlier(tickAt, time.Now().Add(5*time.Millisecond))
		}
	}
}

func (f *Finder) receive(responder *responder, interfaces []lanInterface, in incoming) {
	n := slices.IndexFunc(interfaces, func(i lanInterface) bool { return i.index == in.link.index })
	if n < 0 {
		return
	}
	in.link.zone = interfaces[n].name
	now := time.Now()
	impostor, err := responder.receive(now, in.link, in.sender, in.packet)
	if err != nil {
		f.config.Log.Debug("dropped an mDNS packet", "sender", in.sender, "interface", in.link.zone, "err", err)
	}
	if impostor && now.Sub(f.warnedAt) > warnImpostors {
		f.warnedAt = now
		f.config.Log.Warn("another machine announces this cluster's ID; if its disk is a copy of this one, remove the identity key there",
			"sender", in.sender, "interface", in.link.zone)
	}
}

// look compares the interfaces with those known so far and starts anew on what changed.
func (f *Finder) look(now time.Time, responder *responder, sockets map[bool]*socket, before []lanInterface) ([]lanInterface, error) {
	all, err := listInterfaces()
	if err != nil {
		return before, err
	}
	lan := slices.DeleteFunc(all, func(i lanInterface) bool { return !i.isLAN(f.config.Interfaces) })
	for _, s := range sockets {
		for _, i := range before {
			if !slices.ContainsFunc(lan, func(j lanInterface) bool { return i.index == j.index }) {
				s.LeaveGroup(&net.Interface{Index: i.index, Name: i.name}, s.group)
			}
		}
		// Being in the group already is an error that does not matter, and the kernel forgets a membership with its interface, so
		// joining again after every change is right.
		for _, i := range lan {
			s.JoinGroup(&net.Interface{Index: i.index, Name: i.name}, s.group)
		}
	}
	if !slices.EqualFunc(before, lan, lanInterface.equal) {
		for _, i := range lan {
			f.config.Log.Debug("discovery on interface", "interface", i.name, "addresses", i.prefixes)
		}
	}
	return lan, responder.setInterfaces(now, lan)
}

func (f *Finder) send(sockets map[bool]*socket, out []outgoing) {
	for _, o := range out {
		s := sockets[o.link.v6]
		if s == nil {
			continue
		}
		if err := s.send(o.link.index, o.packet); err != nil { // usual between a change and its netlink event
			f.config.Log.Debug("cannot send mDNS", "interface", o.link.zone, "ipv6", o.link.v6, "err", err)
		}
	}
}

// leave says goodbye, twice, because nobody confirms it.
func (f *Finder) leave(responder *responder, sockets map[bool]*socket) {
	bye := responder.goodbye()
	f.send(sockets, bye)
	if len(bye) > 0 {
		time.Sleep(30 * time.Millisecond)
		f.send(sockets, bye)
	}
}

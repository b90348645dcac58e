package peering

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"time"

	"kith.dev/core/trust/identity"
)

// Step is how far a Probe came.
type Step string

// The steps, in order.
const (
	StepResolve Step = "resolve" // the name stands for addresses
	StepConnect Step = "connect" // TCP
	StepKey     Step = "key"     // TLS, and the key is the one expected
	StepHello   Step = "hello"   // an answer in a version of the protocol that is spoken here
	StepDone    Step = "done"
)

// probeStep bounds each step.
const probeStep = 4 * time.Second

// Probe is what one try to reach a peer at one address found, as far as it came.
type Probe struct {
	Address  string
	Failed   Step          // the step that failed, or StepDone
	Err      error         // of that step; errors.As finds an *identity.MismatchError, or a *Problem with CodeVersion
	Resolved []netip.Addr  // what the host's name stands for
	TCP      time.Duration // until the connection was there
	Peer     identity.ID   // who answers; zero when not known
	Hello    Hello
	Clock    time.Duration // how far its clock is ahead of ours, to within a second
	HasClock bool
}

// Why puts the error in words for a user; "" when all went well.
func (p *Probe) Why() string {
	var problem *Problem
	switch {
	case p.Err == nil:
		return ""
	case errors.As(p.Err, &problem):
		return problem.Error()
	}
	return because(p.Err)
}

// ProbeAddress tries to reach a peer at host:port, one step after the other, with connections of its own. With the
// zero ID anybody may answer. It takes 16 s at most.
func ProbeAddress(ctx context.Context, me *identity.Identity, expect identity.ID, address string) Probe {
	p := Probe{Address: address}
	for _, step := range []struct {
		name Step
		do   func(context.Context) error
	}{
		{StepResolve, p.resolve},
		{StepConnect, p.connect},
		{StepKey, func(ctx context.Context) error { return p.prove(ctx, me, expect) }},
		{StepHello, func(ctx context.Context) error { return p.greet(ctx, me, expect) }},
	} {
		bounded, cancel := context.WithTimeout(ctx, probeStep)
		err := step.do(bounded)
		cancel()
		if err != nil {
			p.Failed, p.Err = step.name, err
			return p
		}
	}
	p.Failed = StepDone
	return p
}

func (p *Probe) resolve(ctx context.Context) error {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		p.Resolved = []netip.Addr{a}
		return nil
	}
	p.Resolved, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err
}

func (p *Probe) connect(ctx context.Context) error {
	began := time.Now()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return err
	}
	p.TCP = time.Since(began)
	return conn.Close()
}

func (p *Probe) prove(ctx context.Context, me *identity.Identity, expect identity.ID) error {
	dialer := tls.Dialer{Config: me.ClientTLS(expect)}
	dialer.Config.NextProtos = []string{"http/1.1"}
	conn, err := dialer.DialContext(ctx, "tcp", p.Address)
	if mismatch, ok := errors.AsType[*identity.MismatchError](err); ok {
		p.Peer = mismatch.Got
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	p.Peer, _, err = identity.PeerOf(conn.(*tls.Conn).ConnectionState())
	if err == nil && p.Peer == me.ID() {
		err = errors.New("this cluster itself answers there")
	}
	return err
}

// greet asks as any client does. The answer's header is of interest too, so it is not a Call.
func (p *Probe) greet(ctx context.Context, me *identity.Identity, expect identity.ID) error {
	client := NewClient(ClientConfig{Identity: me, Expect: expect, Addresses: []string{p.Address}})
	defer client.Close()
	var asked time.Time // not before the handshakes, which take their time
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { asked = time.Now() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, client.BaseURL()+helloPath, nil)
	if err != nil {
		return err
	}
	resp, err := client.http.Do(req)
	if err != nil {
		return client.failure(ctx, err)
	}
	defer resp.Body.Close()
	p.Clock, p.HasClock = clockOf(resp.Header, asked, time.Now())
	if err := readAnswer(resp, &p.Hello); err != nil {
		return fmt.Errorf("GET %s: %w", helloPath, err)
	}
	return client.checkHello(&p.Hello)
}

package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
)

// called has a laptop call carol back for somebody, whatever she may.
func called(t *testing.T, carol, to *laptop, who identity.ID) net.Conn {
	t.Helper()
	a := &await{from: to.who.ID(), by: who, conn: make(chan net.Conn), gone: make(chan struct{})}
	token := peering.NewToken()
	carol.Relay.mu.Lock()
	carol.awaited[token] = a
	carol.Relay.mu.Unlock()
	if !carol.Server.CallBack(to.who.ID(), peering.CallBack{Token: token, For: who}) {
		t.Fatal("there is no stream to ask by")
	}
	select {
	case conn := <-a.conn:
		t.Cleanup(func() { conn.Close() })
		return conn
	case <-time.After(2 * time.Second):
		return nil
	}
}

// speaks has somebody speak over a connection that carol has, and gives the status of the answer, or 0.
func speaks(t *testing.T, conn net.Conn, who, to *laptop) int {
	t.Helper()
	config := who.who.ClientTLS(to.who.ID())
	config.NextProtos = []string{"http/1.1"}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	secure := tls.Client(conn, config)
	if _, err := io.WriteString(secure, "GET /echo HTTP/1.1\r\nHost: bob\r\n\r\n"); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestAConnectionIsForWhomItWasAskedFor: a peer that relays, and is hostile, cannot bring in anybody else.
func TestAConnectionIsForWhomItWasAskedFor(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	bob.knows("alice", alice, false)
	if got := speaks(t, called(t, carol, bob, alice.who.ID()), alice, bob); got != http.StatusOK {
		t.Errorf("alice is answered %d", got)
	}
	if got := speaks(t, called(t, carol, bob, alice.who.ID()), boot(t, false, Default), bob); got != 0 {
		t.Errorf("a stranger is answered %d on a connection for alice", got)
	}
}

// TestNobodyIsCalledBackWhoIsNotAccepted, also not for itself: a neighbour that is in contact is no peer.
func TestNobodyIsCalledBackWhoIsNotAccepted(t *testing.T) {
	_, bob, carol := three(t, true, Default)
	if called(t, carol, bob, carol.who.ID()) == nil {
		t.Fatal("bob does not call back")
	}
	bob.mu.Lock()
	delete(bob.peers, carol.who.ID())
	bob.mu.Unlock()
	if called(t, carol, bob, carol.who.ID()) != nil {
		t.Error("bob calls somebody back who is no peer")
	}
}

// TestOneOfManyDoesNotFillTheRoom: a peer that calls for many connections at once leaves room for the others.
func TestOneOfManyDoesNotFillTheRoom(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	bob.knows("alice", alice, false)
	dave := boot(t, false, Default)
	bob.knows("dave", dave, false)
	for range 24 { // as many as one has by one peer
		if called(t, carol, bob, alice.who.ID()) == nil {
			t.Fatal("bob does not call back")
		}
	}
	if conn := called(t, carol, bob, alice.who.ID()); conn == nil || speaks(t, conn, alice, bob) != 0 {
		t.Error("one has more connections by a peer than there may be")
	}
	if got := speaks(t, called(t, carol, bob, dave.who.ID()), dave, bob); got != http.StatusOK {
		t.Errorf("another one is answered %d", got)
	}
}

// TestNobodyIsCalledForACallerThatIsNotSerious: bob, who would not call back, is not waited for.
func TestNobodyIsCalledForACallerThatIsNotSerious(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	err := alice.client(t, carol.who.ID()).Call(t.Context(), http.MethodPost, relayPath+bob.who.ID().Compact(), nil, nil)
	if got := code(t, err); got != peering.CodeBadRequest {
		t.Errorf("a call without an upgrade: %s", got)
	}
}

// TestWhoIsNotThereIsAskedForSeldom: a relay that said that somebody is not there is no way for some time, or until that one comes.
func TestWhoIsNotThereIsAskedForSeldom(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	to := bob.who.ID()
	alice.mu.Lock()
	alice.peers[to] = "bob" // without contact, which would ask as well
	alice.mu.Unlock()
	if got := len(alice.Ways(to)); got != 1 {
		t.Fatalf("%d ways by a relay that may lead there", got)
	}
	alice.asked(carol.who.ID(), to, peering.Refuse(peering.CodeNotFound, "no such peer can be called from here now", ""))
	if got := len(alice.Ways(to)); got != 0 {
		t.Errorf("%d ways by a relay where it is not", got)
	}
	alice.came(to)
	if got := len(alice.Ways(to)); got != 1 {
		t.Errorf("%d ways after it came", got)
	}
}

// TestWhatIsPassedOnHereEndsWithTheAcceptance of whoever passes it on.
func TestWhatIsPassedOnHereEndsWithTheAcceptance(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	bob.knows("alice", alice, false)
	conn := called(t, carol, bob, alice.who.ID())
	if got := speaks(t, conn, alice, bob); got != http.StatusOK {
		t.Fatalf("alice is answered %d", got)
	}
	bob.drop(carol.who.ID())
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it goes on")
	}
}

// TestARelayByWhichNothingPassesIsAvoided: one that takes connections and passes nothing on, and one that breaks.
func TestARelayByWhichNothingPassesIsAvoided(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	to := bob.who.ID()
	alice.mu.Lock()
	alice.peers[to] = "bob"
	alice.mu.Unlock()
	for _, failed := range []error{context.DeadlineExceeded, io.ErrUnexpectedEOF} {
		way := alice.Ways(to)[0]
		way.Went(context.Canceled)
		if got := len(alice.Ways(to)); got != 1 {
			t.Errorf("%d ways after another one was the faster", got)
		}
		way.Went(failed)
		if got := len(alice.Ways(to)); got != 0 {
			t.Errorf("%d ways after %v", got, failed)
		}
		way.Went(nil)
		if got := len(alice.Ways(to)); got != 1 {
			t.Errorf("%d ways after it led there", got)
		}
	}
	// By its client, too: of carol the relay only has the name.
	dead := peering.NewClient(peering.ClientConfig{Identity: alice.who, Expect: to, Log: slog.New(slog.DiscardHandler), Ways: func() []peering.Way {
		way := alice.By(carol.who.ID(), to)
		way.Dial = func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			there.Close()
			return here, nil
		}
		return []peering.Way{way}
	}})
	defer dead.Close()
	if _, err := dead.Hello(t.Context()); err == nil || len(alice.Ways(to)) != 0 {
		t.Errorf("it is taken again: %v", err)
	}
}

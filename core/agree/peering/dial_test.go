package peering

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

// silent accepts connections and says nothing.
func silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// closed is an address at which nobody listens.
func closed(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestAddressesThatLeadNowhereAreStrayedPast(t *testing.T) {
	alice, stranger, bob := someone(t), bob(t, Limits{}), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), closed(t), silent(t), stranger.addr, bob.addr)
	hello, err := client.Hello(within(t, dialTimeout/2)) // long before the silent one is given up
	if err != nil || hello.ID != bob.ID() {
		t.Fatalf("%+v, %v", hello, err)
	}
	if client.Address() != bob.addr || client.Addresses()[0] != bob.addr {
		t.Errorf("the address that was good is not tried first: %s", client.Addresses())
	}
}

func TestUnreachableSaysWhy(t *testing.T) {
	alice, stranger := someone(t), bob(t, Limits{})
	nobody := someone(t).ID()
	ctx := within(t, patience)
	var unreachable *UnreachableError

	_, err := dialer(t, alice, nobody, closed(t), closed(t)).Hello(ctx)
	if !errors.As(err, &unreachable) || !unreachable.Refused() || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	_, err = dialer(t, alice, nobody, "[fe80::7%unplugged]:6450").Hello(ctx)
	if !errors.As(err, &unreachable) || !strings.HasSuffix(err.Error(), "[fe80::7%unplugged]:6450: this machine has no interface unplugged") {
		t.Error(err)
	}
	_, err = dialer(t, alice, nobody).Hello(ctx)
	if !errors.As(err, &unreachable) || unreachable.Refused() || !strings.Contains(err.Error(), "no address") {
		t.Error(err)
	}
	_, err = dialer(t, alice, nobody, stranger.addr).Hello(ctx)
	var mismatch *identity.MismatchError
	if !errors.As(err, &unreachable) || unreachable.Refused() || !errors.As(err, &mismatch) || mismatch.Got != stranger.ID() {
		t.Error(err)
	}
	// Ourselves, found by mDNS or typed by mistake.
	mirror := serve(t, alice, "127.0.0.1:0", Limits{})
	_, err = dialer(t, alice, identity.ID{}, mirror.addr).Hello(ctx)
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "this cluster itself") {
		t.Error(err)
	}
}

func TestASilentPeerIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := dialer(t, someone(t), identity.ID{}, silent(t)).Hello(ctx)
	if err == nil || time.Since(begin) >= dialTimeout {
		t.Errorf("%v; the caller did not want to wait so long", err)
	}
}

func TestAddressesChangeUnderWay(t *testing.T) {
	alice, who := someone(t), someone(t)
	before := serve(t, who, "127.0.0.1:0", Limits{})
	client := dialer(t, alice, who.ID(), before.addr)
	ctx := within(t, patience)
	if _, err := client.Hello(ctx); err != nil {
		t.Fatal(err)
	}
	before.stop()
	after := serve(t, who, "127.0.0.1:0", Limits{})
	client.SetAddresses([]string{after.addr})
	if _, err := client.Hello(ctx); err != nil {
		t.Error(err)
	}
}

func TestAFirstContactStaysWithWhoAnsweredFirst(t *testing.T) {
	alice, first, second := someone(t), bob(t, Limits{}), bob(t, Limits{})
	client := dialer(t, alice, identity.ID{}, first.addr)
	ctx := within(t, patience)
	if _, err := client.Hello(ctx); err != nil {
		t.Fatal(err)
	}
	client.Cut()
	client.SetAddresses([]string{second.addr})
	_, err := client.Hello(ctx)
	var mismatch *identity.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Want != first.ID() || mismatch.Got != second.ID() {
		t.Error(err)
	}
}

func TestAClosedClientDialsNoMore(t *testing.T) {
	bob := bob(t, Limits{})
	client := dialer(t, someone(t), bob.ID(), bob.addr)
	if _, err := client.Hello(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if _, err := client.Hello(within(t, patience)); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

package kubelet

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

func TestTheEndpointListensWhereCallsComeInAndIsNamedByWhatIsDialed(t *testing.T) {
	dialed := netip.MustParseAddr("192.0.2.1") // no address of this machine
	k, err := New(Config{Home: fake.NewClientset(), HomeREST: &rest.Config{Host: "https://192.0.2.7"}, IP: dialed, Listen: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.end(); k.server.Close() })
	port, err := k.Port("kith-bob")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if k.cert.ip != dialed {
		t.Errorf("the certificate is for %s", k.cert.ip)
	}
	other, err := New(Config{Home: fake.NewClientset(), HomeREST: &rest.Config{Host: "https://192.0.2.7"}, IP: dialed, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.end)
	if _, err := other.Port("kith-bob"); err == nil {
		t.Error("it listens at an address that this machine does not have")
	}
}

// TestAPortIsFreeAgain when its node is no more, and the next of that name is served.
func TestAPortIsFreeAgain(t *testing.T) {
	k, err := New(Config{Home: fake.NewClientset(), HomeREST: &rest.Config{Host: "https://192.0.2.7"}, IP: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.end(); k.server.Close() })
	for range 3 {
		port, err := k.Port("kith-bob.carol")
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("127.0.0.1:%d", port)
		if conn, err := net.Dial("tcp", at); err != nil {
			t.Fatal(err)
		} else {
			conn.Close()
		}
		k.Close("kith-bob.carol")
		k.Close("kith-bob.carol")
		if again, err := net.Listen("tcp", at); err != nil {
			t.Errorf("the port is not free: %v", err)
		} else {
			again.Close()
		}
	}
	if len(k.ports)+len(k.ends) > 0 {
		t.Errorf("left are %v, %v", k.ports, k.ends)
	}
}

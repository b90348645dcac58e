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

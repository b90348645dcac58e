package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, port int32, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses: addresses, DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}}
}

func internal(ip string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
}
func hostname(s string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeHostName, Address: s}
}

func TestOnlyKubeletsOfNodesWithATunnelAreReached(t *testing.T) {
	own := node("bob", 10250, internal("192.0.2.7"), hostname("bob"))
	for _, tt := range []struct {
		name    string
		virtual *corev1.Node
		asked   string
		want    string
		says    string
	}{
		{name: "its own kubelet", asked: "192.0.2.7:10250", want: "192.0.2.7:10250"},
		{name: "its own kubelet by name", asked: "bob:10250", want: "192.0.2.7:10250"},
		{name: "another port of its own", asked: "192.0.2.7:40001", want: "192.0.2.7:40001"},
		{name: "a pod", asked: "10.42.0.9:8080", want: "10.42.0.9:8080"},
		{name: "a virtual node by an InternalIP", virtual: node("kith-alice", 40001, internal("192.0.2.7"), hostname("192.0.2.7")), asked: "192.0.2.7:40001", says: "failed to find Session for client kith-alice"},
		{name: "a virtual node by its name", virtual: node("kith-alice", 40001, hostname("kith-alice")), asked: "kith-alice:40001", says: "failed to find Session for client kith-alice"},
		{name: "a virtual node by a Hostname that is an address", virtual: node("kith-alice", 40001, hostname("192.0.2.7")), asked: "192.0.2.7:40001", want: "192.0.2.7:40001"},
		{name: "nonsense", asked: "192.0.2.7", says: "missing port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := routes{own: "bob"}
			r.see(own)
			if tt.virtual != nil {
				r.see(tt.virtual)
			}
			got, err := r.route(tt.asked)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%q, %v; want %q", got, err, tt.says)
				}
			} else if err != nil || got != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestProxyJoinsOrAnswers502(t *testing.T) {
	there, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	go func() {
		for {
			c, err := there.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	port := there.Addr().(*net.TCPAddr).Port
	socket := filepath.Join(t.TempDir(), "egress.sock")
	p, err := Open(Options{Socket: socket, Node: "bob"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	ask := func() (*http.Response, net.Conn, *bufio.Reader) {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", port)
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		return resp, c, br
	}
	resp, c, br := ask()
	if resp.StatusCode != http.StatusOK || br.Buffered() != 0 {
		t.Fatalf("%s, and %d bytes behind it", resp.Status, br.Buffered())
	}
	fmt.Fprint(c, "hello")
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(br); err != nil || string(b) != "hello" {
		t.Errorf("came back: %q, %v", b, err)
	}
	c.Close()
	p.routes.see(node("kith-alice", int32(port), internal("127.0.0.1")))
	resp, c, _ = ask()
	c.Close()
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a node without a tunnel: %s", resp.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
